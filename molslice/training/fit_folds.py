"""Divide the training rows of a fit into folds; the member of a fold is trained on the other folds."""

from collections.abc import Sequence

import numpy as np

from molslice.training.fit_data import FitData
from molslice.types import MolsliceError

__all__ = ["divide_into_folds"]

MIN_MEMBER_ROWS = 5  # with a value of a target


def divide_into_folds(found: FitData, members: int, seed: int, *, by_scaffold: bool) -> np.ndarray:
    """Assign molecules (or scaffolds) to folds of nearly equal size: int [n], -1 for held-out rows.

    Groups are assigned from the largest to the smallest, each to the fold with the fewest rows; equal ones in
    random order. Rows of one molecule are in one fold. If this leaves a member without rows of a class, the
    groups with rows of the rarer classes are assigned first, each to the fold with the fewest such rows.

    Raises:
        MolsliceError: A fold is empty, or a member has too few rows or no row of a class.
    """
    groups: dict[str, list[int]] = {}
    for row in np.flatnonzero(~found.test):
        name = found.scaffold_or_molecule(int(row)) if by_scaffold else found.molecules.canonical[row]
        groups.setdefault(name, []).append(int(row))
    ordered = list(groups.values())
    shuffled = [ordered[i] for i in np.random.default_rng(seed).permutation(len(ordered))]
    shuffled.sort(key=len, reverse=True)
    if len(ordered) < members:
        raise MolsliceError(f"{len(ordered)} groups of training rows cannot be divided into {members} folds")
    folds = _fill_folds(shuffled, members, np.zeros((len(found.test), 0), bool))
    if found.kind == "classification" and _describe_poor_member(found, folds):
        folds = _fill_folds(shuffled, members, _of_rarer_class(found))
    if problem := _describe_poor_member(found, folds):
        advice = "choose the split random or more members" if by_scaffold else "choose more members"
        raise MolsliceError(f"{problem}; {advice}")
    largest, rows = len(shuffled[0]), (folds >= 0).sum()
    if by_scaffold and 2 * largest > rows:
        found.findings.append(
            f"one scaffold has {largest:,} of {rows:,} training rows; the member without it is trained on "
            "the others only"
        )
    return folds


def _fill_folds(groups: Sequence[list[int]], members: int, rare: np.ndarray) -> np.ndarray:
    """Assign groups of rows to folds, first those with rare rows.

    Args:
        groups: Rows of each group, from the largest group to the smallest.
        members: Number K of folds.
        rare: Rows that are spread over all folds, for each of T reasons, bool [n, T].

    Returns:
        Fold of each row, int [n]; -1 for rows of no group.
    """
    folds = np.full(len(rare), -1)
    sizes, rare_sizes = np.zeros(members, np.int64), np.zeros((members, rare.shape[1]), np.int64)
    counts = [rare[rows].sum(0) for rows in groups]
    for index in sorted(range(len(groups)), key=lambda index: -int(counts[index].sum())):
        rows, concerned = groups[index], counts[index] > 0
        crowded = rare_sizes[:, concerned].max(1) if concerned.any() else np.zeros(members, np.int64)
        fold = int(np.lexsort((sizes, crowded))[0])
        folds[rows] = fold
        sizes[fold] += len(rows)
        rare_sizes[fold] += counts[index]
    return folds


def _of_rarer_class(found: FitData) -> np.ndarray:
    """Return which training rows are of the rarer class of each target, bool [n, T]."""
    known = np.isfinite(found.targets) & ~found.test[:, None]
    ones = known & (found.targets == 1.0)
    return np.where(2 * ones.sum(0) > known.sum(0), known & ~ones, ones)


def _describe_poor_member(found: FitData, folds: np.ndarray) -> str | None:
    """Describe a member that has too few training rows, or rows of one class only; None if there is none."""
    for name, values in zip(found.names, found.targets.T, strict=True):
        for fold in range(int(folds.max()) + 1):
            seen = values[(folds >= 0) & (folds != fold) & np.isfinite(values)]
            if len(seen) < MIN_MEMBER_ROWS:
                return (
                    f"a member of the model has {len(seen)} training rows with a value of {name!r}; it needs "
                    f"{MIN_MEMBER_ROWS}"
                )
            if found.kind == "classification" and np.ptp(seen) == 0:
                return f"a member of the model would be trained on class {seen[0]:.0f} of {name!r} only"
    return None
