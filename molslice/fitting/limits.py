"""Limits of the targets of a fit, from their cells and from columns of relations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from molslice.data.molecules.limits import ReadValues, read_limits
from molslice.data.molecules.side_columns import SideColumns, columns_beside
from molslice.data.target_values import find_kind
from molslice.files.tables import NumberFormat, labels, numbers
from molslice.files.urls import File
from molslice.fitting.classes import ReadClasses
from molslice.fitting.columns import Cells
from molslice.fitting.data import FitData, FitOptions
from molslice.tasks.targets import Kind
from molslice.types import MolsliceError

DONE = {"learn": "learned as limits", "drop": "left out", "exact": "learned as exact values"}


class TargetValues(NamedTuple):
    """The targets of a table.

    Attributes:
        kind: Their kind.
        doubts: What may be wrong with it, one sentence each.
        exact: Exact values, float64 [n, T], NaN where missing or a limit.
        bounds: See `FitData`.
        findings: A sentence for each target with limits.
        losses: Findings that say why there are fewer values than in the table.
    """

    kind: Kind
    doubts: list[str]
    exact: np.ndarray
    bounds: np.ndarray | None = None
    findings: Sequence[str] = ()
    losses: Sequence[str] = ()


def find_relations(names: Sequence[str], side: SideColumns, options: FitOptions) -> tuple[str | None, ...]:
    """Return the column of relations of each target, None without one: as given, or the only one."""
    can_have = options.limits != "exact" and options.kind in (None, "regression")
    return columns_beside(len(names), options.relations, side.relations if can_have else ())


def read_targets(
    cells: Cells,
    names: Sequence[str],
    relations: Sequence[str | None],
    classes: ReadClasses,
    written: NumberFormat,
    options: FitOptions,
    path: File,
) -> TargetValues:
    """Read what the fit learns. A column of relations that nobody named is not used for classes.

    Raises:
        MolsliceError: A cell is not a number, a relation is unknown or contradicts the cell, there are limits
            of classes, or classes beside numbers.
    """
    read, no_sides = list[ReadValues](), np.zeros(len(cells), np.int8)
    for name, column in zip(names, relations, strict=True):
        if name in classes.values:
            read.append(ReadValues(classes.values[name], no_sides, no_sides))
        elif options.kind == "classification" or written.classes:
            parse = labels if options.kind == "classification" else numbers
            values = parse(cells[name], name, cells.where, written).astype(np.float64)
            read.append(ReadValues(values, no_sides, no_sides))
        else:
            given = None if column is None else (column, cells[column])
            read.append(read_limits(cells[name], name, cells.where, given, written))
    values = np.stack([target.values for target in read], axis=1)
    kind, doubts = options.kind or classes.kind(values, names, path), list[str]()
    if kind is None:
        kind, doubts = find_kind(values, names)
    if kind != "regression":
        sides = [target.of_cells for target in read]
        sides += [target.of_column for target in read if options.relations is not None]
        if np.any(sides):
            raise MolsliceError("the targets are classes, which have no limits; give --kind regression")
        return TargetValues(kind, doubts, values)
    findings = []
    for name, column, target in zip(names, relations, read, strict=True):
        if target.sides.any():
            counts = [
                f"{(target.sides == side).sum():,} {word}" for side, word in ((1, "lower"), (-1, "upper"))
            ]
            detected = " (detected)" * (options.relations is None)
            source = "" if column is None else f", from column {column!r}{detected}"
            findings.append(
                f"{name}: {(target.sides != 0).sum():,} of {np.isfinite(target.values).sum():,} values are "
                f"limits ({' and '.join(counts)}{source}), {DONE[options.limits]}"
            )
    if not findings or options.limits == "exact":
        return TargetValues(kind, doubts, values, None, findings)
    exact = np.where(np.stack([target.sides for target in read], axis=1) != 0, np.nan, values)
    if options.limits == "drop":
        return TargetValues(kind, doubts, exact, None, findings, findings)
    return TargetValues(kind, doubts, exact, np.stack([target.bounds for target in read], axis=2), findings)


def merged_bounds(bounds: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge bounds of k rows of a molecule, float64 [2, k, T]: exact values win, else the tightest limits.

    `values` are the means of their exact values, float64 [T], NaN without any.

    Returns:
        The bounds, float64 [2, T], the values, float64 [T], with limits that leave one value, and whether
        limits contradict each other, bool [T]; these count as missing.
    """
    limits = np.where(np.isnan(bounds), np.array([-np.inf, np.inf])[:, None, None], bounds)
    lower, upper = limits[0].max(0), limits[1].min(0)
    exact = np.isfinite(values)
    values = np.where(~exact & (lower == upper), lower, values)
    contradicting = ~exact & (lower > upper)
    missing = ~exact & (contradicting | (np.isinf(lower) & np.isinf(upper)))
    merged = np.where(np.isfinite(values), values, np.stack([lower, upper]))
    return np.where(missing, np.nan, merged), values, contradicting


def describe_held_out(data: FitData) -> list[str]:
    """Say how many held-out values are limits, a sentence for each target that has some."""
    counts, known = data.limited[data.test].sum(0), data.known[data.test].sum(0)
    return [
        f"{name}: {count:,} of {of:,} held-out values are limits; one that is met has no error, otherwise "
        "the error is the distance to the limit"
        for name, count, of in zip(data.names, counts, known, strict=True)
        if count
    ]
