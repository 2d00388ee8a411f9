"""Limits of the targets of a fit, from their cells and from columns of relations."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from molslice.data.molecules.limits import ReadValues, read_limits
from molslice.data.molecules.side_columns import SideColumns, columns_beside
from molslice.data.target_values import find_kind
from molslice.files.tables import NumberFormat, labels, numbers
from molslice.fitting.classes import ReadClasses
from molslice.fitting.columns import Cells
from molslice.fitting.data import FitData, FitOptions
from molslice.tasks.target_types import TargetType
from molslice.tasks.targets import Kind
from molslice.types import MolsliceError

DONE = {"learn": "learned as limits", "drop": "left out", "exact": "learned as exact values"}


class TargetValues(NamedTuple):
    """The targets of a table.

    Attributes:
        types: What each of them is.
        doubts: What may be wrong with these types, one sentence each.
        relations: The column of relations of each target, None without one.
        exact: Exact values, float64 [n, T], NaN where missing or a limit.
        bounds: See `FitData`.
        findings: A sentence for each target with limits.
        losses: Findings that say why there are fewer values than in the table.
    """

    types: tuple[TargetType, ...]
    doubts: list[str]
    relations: tuple[str | None, ...]
    exact: np.ndarray
    bounds: np.ndarray | None
    findings: Sequence[str]
    losses: Sequence[str]


def find_relations(
    types: Sequence[TargetType], side: SideColumns, options: FitOptions
) -> tuple[str | None, ...]:
    """Return the column of relations of each target, None without one: as given, or found for a number."""
    numbers = [not target_type.has_classes and options.limits != "exact" for target_type in types]
    return columns_beside(numbers, options.relations, side.relations)


def read_targets(
    cells: Cells,
    names: Sequence[str],
    side: SideColumns,
    classes: ReadClasses,
    written: Mapping[str, NumberFormat],
    options: FitOptions,
) -> TargetValues:
    """Read what the fit learns. A column of relations that nobody named is not used for classes.

    `written` is how the numbers of each target are written.

    Raises:
        MolsliceError: A cell is not a number, a relation is unknown or contradicts the cell, or there are
            limits of classes.
    """
    read, types, doubts = list[ReadValues](), list[TargetType](), list[str]()
    for name, kind in zip(names, options.kinds_of(names), strict=True):
        read.append(_read_target(cells, name, kind, classes, written[name]))
        if kind is None and name not in classes.values:
            kind, of_target = find_kind(read[-1].values[:, None], [name])
            doubts += of_target
        types.append(classes.types.get(name) or TargetType(kind or "regression"))
    relations = find_relations(types, side, options)
    for index, (name, column) in enumerate(zip(names, relations, strict=True)):
        if types[index].has_classes and read[index].of_cells.any():
            raise MolsliceError(
                f"column {name!r}: the targets are classes, which have no limits; give --kind regression"
            )
        if column is not None and not types[index].has_classes:
            given = column, cells[column]
            read[index] = read_limits(cells[name], name, cells.where, given, written[name])
    values = np.stack([target.values for target in read], axis=1)
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
    bounds, losses = None, list[str]()
    if findings and options.limits != "exact":
        values = np.where(np.stack([target.sides for target in read], axis=1) != 0, np.nan, values)
        if options.limits == "drop":
            losses = findings
        else:
            bounds = np.stack([target.bounds for target in read], axis=2)
    return TargetValues(tuple(types), doubts, relations, values, bounds, findings, losses)


def _read_target(
    cells: Cells, name: str, kind: Kind | None, classes: ReadClasses, written: NumberFormat
) -> ReadValues:
    """Read a target without a column of relations."""
    if name in classes.values:
        return _without_limits(classes.values[name])
    if kind == "classification" or written.classes:
        parse = labels if kind == "classification" else numbers
        return _without_limits(parse(cells[name], name, cells.where, written).astype(np.float64))
    return read_limits(cells[name], name, cells.where, None, written)


def _without_limits(values: np.ndarray) -> ReadValues:
    no_sides = np.zeros(len(values), np.int8)
    return ReadValues(values, no_sides, no_sides)


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
