"""Divide the training rows of a fit into folds; the member of a fold is trained on the other folds."""

from collections.abc import Sequence

import numpy as np

from molslice.fitting.data import FitData
from molslice.number_text import counted
from molslice.types import MolsliceError

MIN_MEMBER_ROWS = 5  # with a value of a target
MAX_PAIRED = 10  # folds; there are as many members of the model as pairs of folds
MAX_ROWS = 2_000  # training rows; the learners of more take minutes


def assign_folds(data: FitData, members: int, seed: int, assignments: int = 2) -> np.ndarray:
    """Divide rows into folds once or twice; see `divide_into_folds`.

    Returns:
        Fold of each row in each assignment, int [A, n]; -1 for held-out rows. There is only one assignment
        with more than ten folds or 2,000 training rows, or if a second one is not valid or puts the same rows
        together.

    Raises:
        MolsliceError: The first assignment is not valid.
    """
    first = divide_into_folds(data, members, seed)
    if assignments == 1 or members > MAX_PAIRED or (first >= 0).sum() > MAX_ROWS:
        return first[None]
    second = _divide(data, _find_groups(data), members, np.random.default_rng((seed, 1)))
    both = np.stack([first, second])
    pairs = np.unique(both[:, first >= 0], axis=1).shape[1]
    return both if pairs > members and _find_problem(data, second, members) is None else first[None]


def divide_into_folds(data: FitData, members: int, seed: int) -> np.ndarray:
    """Assign the groups of rows that stay together to folds of nearly equal size: int [n], -1 if held out.

    If dates divide the rows, the folds are consecutive periods, so that each period is predicted from others.
    Otherwise, and if such folds have one of the problems below, groups are assigned from the largest to the
    smallest, each to the fold with the fewest rows; equal ones in random order. Rows of one group are in one
    fold. If this leaves a fold without a value of a target, or a member with too few of them or without a
    class, the groups with rare rows are assigned first, each to the fold with the fewest of them. Rare rows
    have the rarer class, or a value.

    Raises:
        MolsliceError: A fold has no value of a target, or a member has too few rows or no row of a class.
    """
    groups = _find_groups(data)
    if len(groups) < members:
        noun = "cluster" if data.grouped_by == "cluster" else "group"
        count = counted(len(groups), noun)
        raise MolsliceError(f"{count} of training rows cannot be divided into {members} folds")
    folds = _divide(data, groups, members, np.random.default_rng(seed))
    if problem := _find_problem(data, folds, members):
        description, advice = problem
        if data.grouped_by != "compound":
            other = "other groups" if data.grouped_by == "group" else "the split random"
            advice = f"{other} or {advice}"
        raise MolsliceError(f"{description}; choose {advice}")
    if len(data.dates):
        problem = _find_problem(data, _divide_by_date(data, groups, members), members)
        drawn = f"drawn at random: of consecutive periods, {problem[0]}" if problem else "consecutive periods"
        data.findings.append(f"folds: {drawn}")
    largest, rows = max(map(len, groups)), (folds >= 0).sum()
    if data.grouped_by != "compound" and 2 * largest > rows:
        data.findings.append(
            f"one {data.grouped_by} has {largest:,} of {rows:,} training rows; the member without "
            "it is trained on the others only"
        )
    return folds


def _find_groups(data: FitData) -> list[list[int]]:
    """Return the training rows that stay together."""
    numbers = data.number_groups()
    groups: dict[int, list[int]] = {}
    for row in np.flatnonzero(~data.test).tolist():
        groups.setdefault(int(numbers[row]), []).append(row)
    return list(groups.values())


def _divide(
    data: FitData, groups: Sequence[list[int]], members: int, draw: np.random.Generator
) -> np.ndarray:
    """Return the fold of each row, int [n]; rare rows are spread only if this is needed."""
    if len(data.dates):
        folds = _divide_by_date(data, groups, members)
        if _find_problem(data, folds, members) is None:
            return folds
    shuffled = [groups[i] for i in draw.permutation(len(groups))]
    shuffled.sort(key=len, reverse=True)
    folds = _fill_folds(shuffled, members, np.zeros((len(data.test), 0), bool))
    if _find_problem(data, folds, members):
        folds = _fill_folds(shuffled, members, _find_rare_rows(data))
    return folds


def _divide_by_date(data: FitData, groups: Sequence[list[int]], members: int) -> np.ndarray:
    """Return the fold of each row, int [n], as consecutive periods with nearly equal numbers of rows."""
    folds, done = np.full(len(data.test), -1), 0
    total = sum(map(len, groups))
    for rows in sorted(groups, key=lambda rows: (data.dates[rows[0]], rows[0])):
        folds[rows] = int(members * (done + len(rows) / 2) / total)
        done += len(rows)
    return folds


def _fill_folds(groups: Sequence[list[int]], members: int, rare: np.ndarray) -> np.ndarray:
    """Assign groups of rows to folds; those with the rarest rows first, each to the fold with the fewest.

    Args:
        groups: Rows of each group, from the largest group to the smallest.
        members: Number K of folds.
        rare: Rows that are spread over all folds, for each of T reasons, bool [n, T].

    Returns:
        Fold of each row, int [n]; -1 for rows of no group.
    """
    folds, sizes = np.full(len(rare), -1), np.zeros(members, np.int64)
    rare = rare[:, np.argsort(rare.sum(0), kind="stable")]  # the rarest first
    rare_sizes = np.zeros((members, rare.shape[1]), np.int64)
    counts = [rare[rows].sum(0) for rows in groups]

    def order(index: int) -> tuple[int, int]:
        concerned = np.flatnonzero(counts[index])
        return int(concerned[0]) if len(concerned) else rare.shape[1], -int(counts[index].sum())

    for index in sorted(range(len(groups)), key=order):
        concerned = np.flatnonzero(counts[index])[::-1]  # the last key of lexsort is the first to decide
        fold = int(np.lexsort((sizes, *rare_sizes[:, concerned].T))[0])
        folds[groups[index]] = fold
        sizes[fold] += len(groups[index])
        rare_sizes[fold] += counts[index]
    return folds


def _find_rare_rows(data: FitData) -> np.ndarray:
    """Return the training rows of the rarer class of each target, or those with a value, bool [n, P]."""
    columns = []
    for of_target, values in zip(data.types, data.targets.T, strict=True):
        learned = values[:, None] if of_target.several is None else of_target.several.split(values)
        known = np.isfinite(learned) & ~data.test[:, None]
        if of_target.has_classes:
            ones = known & (learned == 1.0)
            known = np.where(2 * ones.sum(0) > known.sum(0), known & ~ones, ones)
        columns.append(known)
    return np.concatenate(columns, axis=1)


def _find_problem(data: FitData, folds: np.ndarray, count: int) -> tuple[str, str] | None:
    """Describe a fold without values or a member with too few, and what to choose; None without a problem."""
    if empty := count - len(np.unique(folds[folds >= 0])):
        return f"{empty} of {count} folds have no rows", "fewer members"
    for name, of_target, values in zip(data.names, data.types, data.targets.T, strict=True):
        known = (folds >= 0) & np.isfinite(values)
        filled = len(np.unique(folds[known]))
        if filled < count:
            return f"target {name!r} has values in {filled} of {count} folds", "fewer members"
        for fold in range(count):
            seen = values[known & (folds != fold)]
            if len(seen) < MIN_MEMBER_ROWS:
                problem = (
                    f"a member of the model has {len(seen)} training rows with a value of {name!r}; it needs "
                    f"{MIN_MEMBER_ROWS}"
                )
                return problem, "more members"
            if of_target.kind == "classification" and np.ptp(seen) == 0:
                problem = f"a member of the model would be trained on class {seen[0]:.0f} of {name!r} only"
                return problem, "more members"
            if (absent := of_target.absent_class(seen)) is not None:
                problem = f"a member of the model would be trained without the class {absent!r} of {name!r}"
                return problem, "more members"
    return None
