"""Limits of the targets of a fit, from their cells and from columns of relations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from molslice.data.molecules.side_columns import SideColumns
from molslice.data.molecules.tables import MoleculeTable
from molslice.data.target_values import find_kind
from molslice.files.tables import Chunk, NumberFormat, is_missing, labels, numbers
from molslice.files.tables.limits import side_of, split_limits
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

    Attributes:
        columns: The column of relations of each target; None for a target without one.
        used: The columns of relations that are used.

    Raises:
        MolsliceError: A named column of relations is missing, or cannot be one.
    """

    def __init__(
        self, table: MoleculeTable, names: Sequence[str], side: SideColumns, options: FitOptions
    ) -> None:
        self._names, self._options = names, options
        self._given = options.relations is not None
        found = side.relations if options.limits != "exact" and options.kind != "classification" else []
        self.columns: list[str | None] = [None] * len(names)
        if options.relations is not None:
            self.columns = list(options.relations)
        elif len(names) == len(found) == 1:
            self.columns = [*found]
        for column in filter(None, options.relations or ()):
            if table.find(column) in {table.find(name) for name in (table.smiles_column, *names)}:
                raise MolsliceError(f"the column {column!r} cannot be both a relation and a target or SMILES")
        self._values: list[np.ndarray] = []
        self._of_cells: list[np.ndarray] = []
        self._of_columns: list[np.ndarray] = []

    @property
    def used(self) -> list[str]:
        """The columns of relations that are used, each once."""
        return list(dict.fromkeys(column for column in self.columns if column is not None))

    def add(self, chunk: Chunk, written: NumberFormat) -> None:
        """Read the rows of a chunk.

        Raises:
            MolsliceError: A cell is not a number, or a relation is unknown or contradicts the cell.
        """
        is_class = self._options.kind == "classification"
        values, of_cells, of_columns = [], [], []
        for name, column in zip(self._names, self.columns, strict=True):
            cells, sides = chunk[name], np.zeros(len(chunk), np.int8)
            if not is_class and not written.classes:
                cells, sides = split_limits(cells)
            values.append((labels if is_class else numbers)(cells, name, chunk.where, written))
            of_cells.append(sides)
            of_columns.append(self._relations(chunk, column, ~np.isnan(values[-1])))
            if (wrong := np.flatnonzero(sides * of_columns[-1] < 0)).size:
                row = int(wrong[0])
                raise MolsliceError(
                    f"{chunk.where(row)}, column {name!r}: {chunk[name][row]!r} contradicts "
                    f"{chunk[column or name][row]!r} in column {column!r}"
                )
        for blocks, columns in (
            (self._values, values),
            (self._of_cells, of_cells),
            (self._of_columns, of_columns),
        ):
            blocks.append(np.stack(columns, axis=1))

    def _relations(self, chunk: Chunk, column: str | None, known: np.ndarray) -> np.ndarray:
        sides = np.zeros(len(chunk), np.int8)
        if column is None:
            return sides
        for row in np.flatnonzero(known):
            cell = chunk[column][row]
            side = 0 if is_missing(cell.strip().strip("'\"")) else side_of(cell)
            if side is None:
                advice = "" if self._given else "; give --limits exact if the column has no relations"
                raise MolsliceError(
                    f"{chunk.where(int(row))}, column {column!r}: {cell!r} is not a relation; "
                    f"choices: =, <, >, <=, >=, ~{advice}"
                )
            sides[row] = side
        return sides

    def targets(self) -> "TargetValues":
        """Return what the fit learns. A column of relations that nobody named is not used for classes.

        Raises:
            MolsliceError: There are limits of classes.
        """
        values, kind, doubts = np.concatenate(self._values).astype(np.float64), self._options.kind, []
        if kind is None:
            kind, doubts = find_kind(values, self._names)
        of_cells, of_columns = np.concatenate(self._of_cells), np.concatenate(self._of_columns)
        if kind == "classification":
            if of_cells.any() or (self._given and of_columns.any()):
                raise MolsliceError("the targets are classes, which have no limits; give --kind regression")
            self.columns = [None] * len(self._names)
            return TargetValues(kind, doubts, values)
        sides = np.where(np.isnan(values), 0, np.where(of_cells != 0, of_cells, of_columns))
        findings = [*filter(None, map(self._finding, range(len(self._names)), sides.T, values.T))]
        if not sides.any() or self._options.limits == "exact":
            return TargetValues(kind, doubts, values, None, findings)
        exact = np.where(sides != 0, np.nan, values)
        if self._options.limits == "drop":
            return TargetValues(kind, doubts, exact, None, findings, findings)
        bounds = np.stack([np.where(sides < 0, -np.inf, values), np.where(sides > 0, np.inf, values)])
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
