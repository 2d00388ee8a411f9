"""Numbers rounded as their intervals or standard errors allow, for people to read."""

import math

from molslice.number_text import format_metric

UNLIMITED = "unlimited"
DIGITS = 2  # significant digits of a standard error, or of the distance to the nearer end of an interval
LEAST, MOST = 1e-4, 1e6  # numbers outside are written with an exponent
MOST_ZEROS = 4  # decimals of a number that rounds to zero
NEGLIGIBLE = 1e-9  # standard error relative to the value, or the reverse: what rounding of sums leaves


def rounded_interval(value: float, lower: float, upper: float) -> tuple[str, str, str]:
    """Format a prediction and the ends of its interval, without digits that the interval makes meaningless.

    If both ends have the same sign, as for a target whose logarithm is learned, each number keeps two
    significant digits of its own, so that none of them is shown as 0.

    Returns:
        The prediction, the lower and the upper end, such as `-3.9`, `-5.3` and `-2.4`. An infinite end is
        `unlimited`. With an interval without width, the numbers have four significant digits.
    """
    sides = [side for side in (value - lower, upper - value) if 0.0 < side < math.inf]
    decimals = DIGITS - 1 - math.floor(math.log10(min(sides))) if sides else None
    least = lower * upper > 0.0
    shown, *ends = (_rounded(number, decimals, least=least) for number in (value, lower, upper))
    return shown, *ends  # pyright: ignore[reportReturnType]


def rounded_error(value: float | None, error: float | None, *, signed: bool = False) -> str:
    """Format a value with its standard error, which has two significant digits and decides the decimals.

    A value that is smaller than its standard error keeps two significant digits of its own.

    Args:
        value: A metric or a change; None or NaN if it is not defined.
        error: Its standard error or another spread, in the same unit; None or NaN if it is not known.
        signed: Whether a value that is not negative has a plus sign.

    Returns:
        Text such as `0.833 ± 0.081`, `1230 ± 140` or `4.8e+05 ± 1.6e+06`. Without an error, the value alone,
        as `format_metric` writes it.
    """
    shown, *others = _value_and_error(value, error)
    sign = "+" * (signed and shown[0] != "-")
    return " ± ".join([sign + shown, *others])


def rounded_share(share: float, error: float) -> str:
    """Format a share with its standard error as percentages, such as `92.3% ± 1.5%`; see `rounded_error`."""
    return " ± ".join(f"{text}%" for text in _value_and_error(100.0 * share, 100.0 * error))


def _value_and_error(value: float | None, error: float | None) -> list[str]:
    if value is None or error is None or not (math.isfinite(value) and math.isfinite(error)):
        return [format_metric(value)]
    if error <= NEGLIGIBLE * abs(value):
        return [format_metric(value), "0"]
    of_value = of_error = _decimals(error)
    if NEGLIGIBLE * error < abs(value) < error:
        of_value = max(of_error, _decimals(value))
    write = _fixed if LEAST <= max(abs(value), error) < MOST else _scientific
    return [write(value, of_value), write(error, of_error)]


def _decimals(number: float) -> int:
    """Return the decimals with which a number has `DIGITS` significant digits; negative for large numbers."""
    rounded = float(f"{number:.{DIGITS - 1}e}")  # 0.0996 is 0.10
    return DIGITS - 1 - math.floor(math.log10(abs(rounded)))


def _rounded(number: float, decimals: int | None, *, least: bool) -> str:
    """Format a number with some decimals; with `least`, it has at least two significant digits."""
    if math.isinf(number):
        return UNLIMITED
    if decimals is None or math.isnan(number):
        return f"{number:.4g}"
    if least:
        decimals = max(decimals, _decimals(number))
    return (_fixed if LEAST <= abs(number) < MOST else _scientific)(number, decimals)


def _fixed(number: float, decimals: int) -> str:
    return f"{round(number, decimals) + 0.0:.{max(decimals, 0)}f}"  # not -0


def _scientific(number: float, decimals: int) -> str:
    if not round(number, decimals):
        return _fixed(number, decimals) if decimals <= MOST_ZEROS else "0"
    return f"{number:.{max(decimals + math.floor(math.log10(abs(number))), 0)}e}"
