"""What the values of targets say about them: whether they are numbers or classes."""

from collections.abc import Iterator, Sequence

import numpy as np

from molslice.data.base import Kind
from molslice.types import MolsliceError

__all__ = ["checked_kind", "find_kind"]

CLASSES = {0.0, 1.0}
FEW_VALUES = 5  # different values of a target that may be a class
FEW_ROWS = 4  # rows of such a target for each of its values
ROWS_AT_ONCE = 1_000_000


def checked_kind(kind: str | None) -> Kind | None:
    """Check the option `kind` and return it.

    Raises:
        MolsliceError: The kind is unknown.
    """
    if kind not in (None, "regression", "classification"):
        raise MolsliceError(f"kind must be regression or classification, got {kind!r}")
    return kind


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
    advice = "write classes as 0 and 1"
    if len(values) > 2:
        advice = "of classes, only two can be learned, written as 0 and 1"
    return f"has only {listed}, but is learned as numbers; {advice}"
