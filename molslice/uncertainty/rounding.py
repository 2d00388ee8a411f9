"""Predictions rounded as their intervals allow, for people to read."""

import math

UNLIMITED = "unlimited"
DIGITS_OF_INTERVAL = 2  # significant digits of the distance to the nearer end
LEAST, MOST = 1e-4, 1e6  # numbers outside are written with an exponent


def rounded_interval(value: float, lower: float, upper: float) -> tuple[str, str, str]:
    """Format a prediction and the ends of its interval, without digits that the interval makes meaningless.

    Returns:
        The prediction, the lower and the upper end, such as `-3.9`, `-5.3` and `-2.4`. An infinite end is
        `unlimited`. With an interval without width, the numbers have four significant digits.
    """
    sides = [side for side in (value - lower, upper - value) if 0.0 < side < math.inf]
    decimals = DIGITS_OF_INTERVAL - 1 - math.floor(math.log10(min(sides))) if sides else None
    numbers = (value, lower, upper)
    return tuple(_rounded(number, decimals) for number in numbers)  # pyright: ignore[reportReturnType]


def _rounded(number: float, decimals: int | None) -> str:
    if math.isinf(number):
        return UNLIMITED
    if decimals is None or math.isnan(number):
        return f"{number:.4g}"
    size, rounded = abs(number), round(number, decimals) + 0.0  # not -0
    if rounded and not LEAST <= size < MOST:
        return f"{number:.{max(decimals + math.floor(math.log10(size)), 0)}e}"
    return f"{rounded:.{max(decimals, 0)}f}"
