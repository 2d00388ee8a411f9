"""Limits of the targets of a fit, from their cells and from columns of relations."""

from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np

from molslice.data.molecules.limits import ReadValues, read_limits
from molslice.data.molecules.side_columns import SideColumns
from molslice.data.molecules.tables import MoleculeTable
from molslice.data.target_values import find_kind
from molslice.files.tables import Chunk, NumberFormat, labels, numbers
from molslice.files.urls import File
from molslice.fitting.classes import ReadClasses
from molslice.fitting.data import FitData, FitOptions
from molslice.tasks.targets import Kind
from molslice.types import MolsliceError

__all__ = ["LimitReader", "TargetValues", "describe_held_out", "merged_bounds"]

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


class LimitReader:
    """Reads values and limits of the targets from the chunks of a table.

    Args:
        table: The table, of which no row is read yet.
        names: The targets.
        side: The columns with relations, units and types.
        options: The options of the fit.
        words: The targets whose cells are words, which are not read here.

    Attributes:
        columns: The column of relations of each target; None for a target without one.
        used: The columns of relations that are used.

    Raises:
        MolsliceError: A named column of relations is missing, or cannot be one.
    """

    def __init__(
        self,
        table: MoleculeTable,
        names: Sequence[str],
        side: SideColumns,
        options: FitOptions,
        words: Container[str] = (),
    ) -> None:
        self._names, self._options, self._words = names, options, words
        self._given = options.relations is not None
        detected = (
            side.relations if options.limits != "exact" and options.kind in (None, "regression") else []
        )
        self.columns: list[str | None] = [None] * len(names)
        if options.relations is not None:
            self.columns = [*options.relations]
        elif len(names) == len(detected) == 1:
            self.columns = [*detected]
        for column in self.used if self._given else ():
            if table.find(column) in {table.find(name) for name in (table.smiles_column, *names)}:
                raise MolsliceError(f"the column {column!r} cannot be both a relation and a target or SMILES")
        self._read: list[list[ReadValues]] = [[] for _ in names]

    @property
    def used(self) -> list[str]:
        """The columns of relations that are used, each once."""
        return list(dict.fromkeys(column for column in self.columns if column is not None))

    def add(self, chunk: Chunk, written: NumberFormat) -> None:
        """Read the rows of a chunk.

        Raises:
            MolsliceError: A cell is not a number, or a relation is unknown or contradicts the cell.
        """
        no_relations = np.zeros(len(chunk), np.int8)
        for name, column, read in zip(self._names, self.columns, self._read, strict=True):
            if name in self._words:
                read.append(ReadValues(np.full(len(chunk), np.nan), no_relations, no_relations))
            elif self._options.kind == "classification" or written.classes:
                parse = labels if self._options.kind == "classification" else numbers
                values = parse(chunk[name], name, chunk.where, written)
                read.append(ReadValues(values, no_relations, no_relations))
            else:
                read.append(read_limits(chunk, name, column, written))

    def targets(self, classes: ReadClasses, path: File) -> "TargetValues":
        """Return what the fit learns. A column of relations that nobody named is not used for classes.

        Args:
            classes: The targets whose cells are words.
            path: The table, for messages.

        Raises:
            MolsliceError: There are limits of classes, or classes beside numbers.
        """
        read = [ReadValues(*map(np.concatenate, zip(*parts, strict=True))) for parts in self._read]
        values = np.stack([target.values for target in read], axis=1).astype(np.float64)
        classes.fill(values, self._names)
        kind, doubts = self._options.kind or classes.kind(values, self._names, path), []
        if kind is None:
            kind, doubts = find_kind(values, self._names)
        if kind != "regression":
            given = [target.of_column for target in read if self._given]
            if any(sides.any() for sides in [*given, *(target.of_cells for target in read)]):
                raise MolsliceError("the targets are classes, which have no limits; give --kind regression")
            self.columns = [None] * len(self._names)
            return TargetValues(kind, doubts, values)
        sides = np.stack([target.sides for target in read], axis=1)
        findings = [*filter(None, map(self._finding, range(len(self._names)), sides.T, values.T))]
        if not sides.any() or self._options.limits == "exact":
            return TargetValues(kind, doubts, values, None, findings)
        exact = np.where(sides != 0, np.nan, values)
        if self._options.limits == "drop":
            return TargetValues(kind, doubts, exact, None, findings, findings)
        bounds = np.stack([target.bounds for target in read], axis=2)
        return TargetValues(kind, doubts, exact, bounds, findings)

    def _finding(self, index: int, sides: np.ndarray, values: np.ndarray) -> str | None:
        if not sides.any():
            return None
        column = self.columns[index]
        counts = [f"{(sides == side).sum():,} {word}" for side, word in ((1, "lower"), (-1, "upper"))]
        source = "" if column is None else f", from column {column!r}" + " (detected)" * (not self._given)
        return (
            f"{self._names[index]}: {(sides != 0).sum():,} of {np.isfinite(values).sum():,} values are "
            f"limits ({' and '.join(counts)}{source}), {DONE[self._options.limits]}"
        )


def merged_bounds(bounds: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge the limits of several rows of a molecule: exact values win, else the tightest limits.

    Args:
        bounds: Bounds of k rows, float64 [2, k, T].
        values: Mean of their exact values, float64 [T], NaN without any.

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
