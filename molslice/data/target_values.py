"""What the values of targets say about them: numbers or classes, and which of them are not to be believed."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from molslice.data.base import Kind
from molslice.number_text import counted
from molslice.registry import check_choice
from molslice.types import MolsliceError

CLASSES = {0.0, 1.0}
FEW_VALUES = 5  # different values of a target that may be a class
FEW_ROWS = 4  # rows of such a target for each of its values
ROWS_AT_ONCE = 1_000_000
COMPARED_ROWS, COMPARED_VALUES = 20, 10  # fewer say little about what is usual
FAR, FAR_REPEATED, FAR_IN_LOGARITHMS, GAP = 30.0, 10.0, 5.0, 5.0  # interquartile ranges
SAME_SIGN = 0.9
TIMES, TAIL_WIDTHS, UPPER, TAIL_VALUES = 300.0, 3.0, 0.9, 100  # of the upper tenth of log-normal values
MARKERS = [sign * float("9" * digits) for digits in (3, 4, 5, 6) for sign in (-1, 1)]  # of missing values
TAILS, WIDE = (0.01, 0.99), 10.0  # ratio of these quantiles beyond which a logarithm may be learned
MOST_OUTLIERS = 10
SHOWN_ROWS = 5
OUTLIERS = ("refuse", "keep")


def checked_kind(kind: str | None) -> Kind | None:
    """Check the option `kind` and return it."""
    if kind not in (None, "regression", "classification"):
        raise MolsliceError(f"kind must be regression or classification, got {kind!r}")
    return kind


def listed_values(missing: float | str | Sequence[float | str]) -> tuple[float | str, ...]:
    """Return one value or several ones as a tuple."""
    if isinstance(missing, int | float | str):
        return (missing,)
    if not isinstance(missing, Sequence):
        raise MolsliceError(f"missing values must be a list of numbers and texts, got {missing!r}")
    return tuple(missing)


def find_kind(targets: np.ndarray, names: Sequence[str]) -> tuple[Kind, list[str]]:
    """Find the kind of targets: they are classes if all known values of all targets are 0 or 1.

    Args:
        targets: [n, T], NaN where missing. Parts of its rows are read one after the other.
        names: Names of the targets.

    Returns:
        The kind, and a sentence for each target that is taken for numbers and may be classes.
    """
    few = [_few_values(targets, column) for column in range(len(names))]
    if any(few) and all(values is not None and values <= CLASSES for values in few):
        return "classification", []
    return "regression", [
        f"{name}: {_as_numbers(values)}" for name, values in zip(names, few, strict=True) if values
    ]


def _few_values(targets: np.ndarray, column: int) -> set[float] | None:
    """Return the different values of a target; None if they are many, or as many as its rows."""
    values, known = set[float](), 0
    for rows in _parts(targets, column):
        values.update(np.unique(rows).tolist())
        known += len(rows)
        if len(values) > FEW_VALUES:
            return None
    return values if len(values) <= 2 or known >= FEW_ROWS * len(values) else None


def _parts(targets: np.ndarray, column: int) -> Iterator[np.ndarray]:
    """Yield the known values of a target, float64, a part of the rows at a time."""
    for start in range(0, len(targets), ROWS_AT_ONCE):
        rows = np.asarray(targets[start : start + ROWS_AT_ONCE])[:, column].astype(np.float64)
        yield rows[np.isfinite(rows)]


def _as_numbers(values: set[float]) -> str:
    *others, last = [f"{value:.15g}" for value in sorted(values)]
    listed = f"{', '.join(others)} and {last}" if others else last
    if values <= CLASSES:
        return "has only 0 and 1, but is learned as numbers, like the others; learn it alone for classes"
    advice = "write them as 0 and 1" if len(values) <= 2 else "give molslice fit --kind multiclass"
    return f"has only {listed}, but is learned as numbers; if they are classes, {advice}"


def check_outliers(
    targets: np.ndarray,
    names: Sequence[str],
    source: str,
    where: Callable[[int], str],
    outliers: str,
    advice: tuple[str, str] = ("--missing-value={}", "--outliers keep"),
    limits: np.ndarray | None = None,
) -> list[str]:
    """Refuse or name the values of targets that are far outside the others; see `find_outliers`.

    Args:
        targets: [n, T], NaN where missing.
        names: Names of the targets.
        source: Their file, for messages.
        where: Describes a row by its index, for messages.
        outliers: `refuse` them, or `keep` them.
        advice: The option for one that stands for a missing value, with `{}` for it, and that to keep it.
        limits: The limits, such as 10 of `>10`, [n, T], NaN elsewhere. They are named and not refused,
            because a limit may be a concentration far above all measured ones. None without limits.

    Returns:
        A sentence for each target with such values.

    Raises:
        MolsliceError: `refuse` is chosen, and there are some; or the choice is unknown.
    """
    check_choice("outliers", outliers, OUTLIERS)
    notices = []
    for column, name in enumerate(names):
        values = np.asarray(targets[:, column])
        if limits is not None:
            notices += _limit_notices(values, limits[:, column], name, source, where)
        if far := find_outliers(values):
            notice = _describe_outliers(values, far, lambda row: where(row).removeprefix(f"{source}, "))
            if outliers == "refuse":
                first = _text_of(next(iter(far)), values)
                raise MolsliceError(
                    f"{source}, column {name!r}: {notice}. If {first} stands for a missing value, give "
                    f"{advice[0].format(first)}; if it is right, give {advice[1]}"
                )
            notices.append(f"{name}: {notice}")
    return notices


def _limit_notices(
    values: np.ndarray, limits: np.ndarray, name: str, source: str, where: Callable[[int], str]
) -> list[str]:
    """Name the limits that are far outside the values of a target, float64 [n] each, NaN where missing."""
    stated = np.where(np.isfinite(values), values, limits)
    far = {
        value: rows for value, rows in find_outliers(stated).items() if not np.isfinite(values[rows]).any()
    }
    if not far:
        return []
    notice = _describe_outliers(stated, far, lambda row: where(row).removeprefix(f"{source}, "))
    return [f"{name}: limits of {notice}; a model may be worse for them, and --limits drop leaves them out"]


def _describe_outliers(
    values: np.ndarray, far: Mapping[float, np.ndarray], where: Callable[[int], str]
) -> str:
    usual = values[np.isfinite(values) & ~np.isin(values, list(far))]
    listed = "; ".join(f"{_text_of(value, values)} in {_places(rows, where)}" for value, rows in far.items())
    return f"{listed}: far outside the other values, {usual.min():.6g} to {usual.max():.6g}"


def _text_of(value: float, values: np.ndarray) -> str:
    return f"{value:.7g}" if values.dtype == np.float32 else f"{value:.12g}"


def _places(rows: np.ndarray, where: Callable[[int], str]) -> str:
    """Return the number of some rows and the first of them."""
    shown = [where(int(row)) for row in rows[:SHOWN_ROWS]]
    others = len(rows) - SHOWN_ROWS
    more = f" and {counted(others, 'other')}" if others > 0 else ""
    return f"{counted(len(rows))} ({', '.join(shown)}{more})"


def is_log_normal(values: np.ndarray) -> bool:
    """Whether values are positive, wide, and closer to a log-normal distribution than to a normal one.

    The likelihoods of a normal distribution of the logarithms and of the values are compared, with the mean
    and the variance of each.

    Source: Box and Cox 1964, "An Analysis of Transformations" (the exponents 0 and 1).
    """
    low, high = np.quantile(values, TAILS)
    if values.min() <= 0 or high < WIDE * low:
        return False
    logs = np.log(values)
    return bool(np.exp(logs.mean()) * logs.std() < values.std())


def find_outliers(values: np.ndarray) -> dict[float, np.ndarray]:
    """Find values that are far outside the others, such as -999 for a missing value, or a typing error.

    The smallest and the largest value are compared with the other different values, each counted once. Far
    outside is a value that is further than 5 interquartile ranges from all others, and from their nearest
    quartile further than 30 interquartile ranges, or 10 if it is repeated. If nine tenths of the others have
    one sign and are log-normal, the value must also be further than 5 interquartile ranges on the logarithmic
    scale, or with at least 100 others be 300 times the largest one, and three times as far from it there as
    their 0.9 quantile; a repeated value of the other sign is far outside if no other value has it. Values are
    only compared with at least ten others, or with 0 and 1. With fewer, -999, 9999 and such markers are far
    outside if they are larger than the others and further from them than five times their range.

    Args:
        values: The values of a target, [n], NaN where missing.

    Returns:
        The rows of each such value, int [k], for at most ten values.
    """
    known, outliers = np.isfinite(values), dict[float, np.ndarray]()
    step = -(-max(1, int(known.sum())) // ROWS_AT_ONCE)
    while len(outliers) < MOST_OUTLIERS and known.sum() >= COMPARED_ROWS:
        rest = values[known].astype(np.float64)
        different = np.unique(rest[::step])
        for value in (float(rest.min()), float(rest.max())):
            others = different[different != value]
            if _is_outside(value, int((rest == value).sum()) > 1, others):
                outliers[value] = np.flatnonzero(values == value)
                known &= values != value
                break
        else:
            break
    return outliers


def _is_outside(value: float, repeated: bool, others: np.ndarray) -> bool:
    if len(others) < COMPARED_VALUES and set(others.tolist()) != CLASSES:
        others = others[~np.isin(others, MARKERS)]
        if value not in MARKERS or not len(others) or abs(value) <= np.abs(others).max():
            return False
        return bool(np.abs(others - value).min() > GAP * np.ptp(others))
    sign = np.sign(np.median(others))
    magnitudes = sign * others[others * sign > 0]
    if len(magnitudes) >= SAME_SIGN * len(others) > 0 and is_log_normal(magnitudes):
        if sign * value <= 0:  # zero is usual beside a log-normal distribution
            return repeated and value != 0 and bool((sign * others >= 0).all())
        logs, value_log = np.log(magnitudes), np.log(sign * value)
        gap, tail = value_log - logs.max(), logs.max() - np.quantile(logs, UPPER)
        if len(logs) >= TAIL_VALUES and gap > max(np.log(TIMES), TAIL_WIDTHS * tail):
            return True
        if _distance(value_log, logs) <= FAR_IN_LOGARITHMS:
            return False
    low, high = np.quantile(others, (0.25, 0.75))
    gap = np.abs(others - value).min() / (high - low)
    return bool(gap > GAP and _distance(value, others) > (FAR_REPEATED if repeated else FAR))


def _distance(value: float, others: np.ndarray) -> float:
    """Return the distance to the nearest quartile, in interquartile ranges."""
    low, high = np.quantile(others, (0.25, 0.75))
    return float(max(value - high, low - value) / (high - low))
