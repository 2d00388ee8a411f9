"""Rows of a fit with the same molecule: merge them to one row, keep them, or refuse them."""

import numpy as np

from molslice.files.urls import File
from molslice.fitting.data import Duplicates, FitData
from molslice.tasks.targets import Kind
from molslice.types import MolsliceError

__all__ = ["merge_duplicates"]

SAME = 1e-9  # relative difference of values that count as equal


def merge_duplicates(data: FitData, path: File, duplicates: Duplicates, *, by_column: bool) -> np.ndarray:
    """Replace the rows of each molecule by one row with their mean, unless duplicates are kept.

    Args:
        data: The rows, which are changed.
        path: The table, for messages.
        duplicates: What happens to several rows of one molecule.
        by_column: Whether a column divides the rows. Training and held-out rows are not merged then.

    Returns:
        The targets with the geometric mean instead, float64 [n, T]; the smallest value if it is not positive.

    Raises:
        MolsliceError: There are duplicates, and they are refused.
    """
    groups: dict[tuple[str, bool], list[int]] = {}
    for row, canonical in enumerate(data.molecules.canonical):
        groups.setdefault((canonical, bool(data.test[row]) if by_column else False), []).append(row)
    if by_column:
        both = {name for name, test in groups if test} & {name for name, test in groups if not test}
        if both:
            overlap = (
                "1 held-out molecule is also a training molecule"
                if len(both) == 1
                else f"{len(both):,} held-out molecules are also training molecules"
            )
            if duplicates == "refuse":
                raise MolsliceError(
                    f"{path}: {overlap}; the first: {min(both)}. Remove them, or choose duplicates average "
                    "or keep"
                )
            data.findings.append(f"{overlap}; both are kept")
    several = [rows for rows in groups.values() if len(rows) > 1]
    if not several:
        return data.targets
    differing = [rows for rows in several if _differ(data.targets[rows])]
    count = (
        f"1 molecule has several rows, with {'different' if differing else 'equal'} values"
        if len(several) == 1
        else f"{len(several):,} molecules have several rows, {len(differing):,} of them with different values"
    )
    if duplicates == "refuse":
        first = " and ".join(dict.fromkeys(data.smiles[row] for row in several[0][:2]))
        raise MolsliceError(
            f"{path}: {count}; the first: {first}. Remove them, or choose duplicates average or keep"
        )
    if duplicates == "keep":
        data.findings.append(f"{count}; all are kept")
        return data.targets
    verb = "they are averaged" if data.kind == "regression" else "conflicting labels count as missing"
    data.lose(f"{count}; {verb}")
    merged, geometric = data.targets.copy(), data.targets.copy()
    for rows in several:
        merged[rows[0]] = _merged(data.targets[rows], data.kind)
        geometric[rows[0]] = _geometric_mean(data.targets[rows])
    data.targets = merged
    first_rows = np.array(sorted(rows[0] for rows in groups.values()))
    kept = first_rows[np.isfinite(data.targets[first_rows]).any(1)]
    data.keep(kept)
    return geometric[kept]


def _differ(values: np.ndarray) -> bool:
    """Whether a target has two different known values in these rows [k, T]."""
    known = np.isfinite(values)
    high = np.where(known, values, -np.inf).max(0)
    low = np.where(known, values, np.inf).min(0)
    measured = known.any(0)
    largest = np.maximum(np.abs(high[measured]), np.abs(low[measured]))
    return bool((high[measured] - low[measured] > SAME * largest).any())


def _merged(values: np.ndarray, kind: Kind) -> np.ndarray:
    """Return the mean of the known values of each target; NaN for classes that disagree."""
    known = np.isfinite(values)
    counts = known.sum(0)
    mean = np.where(known, values, 0.0).sum(0) / np.maximum(counts, 1)
    agreed = counts > 0
    if kind != "regression":
        agreed &= (~known | (values == mean)).all(0)
    return np.where(agreed, mean, np.nan)


def _geometric_mean(values: np.ndarray) -> np.ndarray:
    """Return the geometric mean of the known values of each target, or the smallest if it is not positive."""
    smallest = np.fmin.reduce(values)
    logarithms = np.log(values, where=values > 0, out=np.full(values.shape, np.nan))
    return np.where(smallest > 0, np.exp(_merged(logarithms, "regression")), smallest)
