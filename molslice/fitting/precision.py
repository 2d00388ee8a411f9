"""How precise the rows of a fit are: a column of weights, and columns of standard errors."""

from collections.abc import Sequence

import numpy as np

from molslice.data.molecules.tables import MoleculeTable
from molslice.files.tables import Chunk, NumberFormat, numbers
from molslice.fitting.data import FitData, FitOptions
from molslice.types import MolsliceError

__all__ = ["PrecisionReader"]


class PrecisionReader:
    """Reads weights and standard errors from the chunks of a table.

    Args:
        table: The table, of which no row is read yet.
        names: The targets.
        options: The options of the fit.

    Attributes:
        columns: The columns that are needed, each once.

    Raises:
        MolsliceError: A column is missing, or is a target or the column of SMILES.
    """

    def __init__(self, table: MoleculeTable, names: Sequence[str], options: FitOptions) -> None:
        self._names, self._weight = names, options.weight
        self._errors = options.errors or (None,) * len(names)
        used = [column for column in (options.weight, *self._errors) if column is not None]
        self.columns = list(dict.fromkeys(used))
        others = {table.find(name) for name in (table.smiles_column, *names)}
        for column in self.columns:
            if table.find(column) in others:
                raise MolsliceError(
                    f"the column {column!r} cannot be both a weight or an error and a target or SMILES"
                )
        self._read: list[np.ndarray] = []

    def add(self, chunk: Chunk, written: NumberFormat) -> None:
        """Read the rows of a chunk.

        Raises:
            MolsliceError: A cell is not a positive number.
        """
        plain = NumberFormat(written.decimal, written.missing)
        block = np.empty((len(chunk), len(self.columns)))
        for place, column in enumerate(self.columns):
            block[:, place] = values = numbers(chunk[column], column, chunk.where, plain)
            if (wrong := np.flatnonzero(values <= 0)).size:
                row = int(wrong[0])
                raise MolsliceError(
                    f"{chunk.where(row)}, column {column!r}: {chunk[column][row]!r} is not positive; leave "
                    "the cell empty if it is not known"
                )
        self._read.append(block)

    def attach(self, data: FitData) -> None:
        """Make weights and standard errors a part of the rows, which are all rows of the table.

        A row without a weight gets the median of the others. A missing standard error is NaN.

        Raises:
            MolsliceError: A column is empty.
        """
        if not self.columns:
            return
        read = dict(zip(self.columns, np.concatenate(self._read).T, strict=True))
        if self._weight is not None:
            data.weights, finding = _filled(read[self._weight], np.asarray(data.known.any(1)), self._weight)
            data.findings.append(f"weights: column {self._weight!r}{finding}")
        if any(self._errors):
            no_errors = np.zeros(len(data.smiles))
            data.noise = np.stack(
                [no_errors if column is None else read[column] for column in self._errors], axis=1
            )

    def fill_errors(self, data: FitData) -> None:
        """Replace missing standard errors by the median of the others, all in the unit of their target.

        Raises:
            MolsliceError: A column is empty.
        """
        if data.noise is None:
            return
        for index, (name, column) in enumerate(zip(self._names, self._errors, strict=True)):
            if column is not None:
                data.noise[:, index], finding = _filled(data.noise[:, index], data.known[:, index], column)
                data.findings.append(f"{name}: standard errors in column {column!r}{finding}")


def _filled(values: np.ndarray, known: np.ndarray, column: str) -> tuple[np.ndarray, str]:
    """Replace missing values by the median of rows with a target, and say how many there are."""
    given, missing = np.isfinite(values) & known, np.isnan(values) & known
    if not given.any():
        raise MolsliceError(f"the column {column!r} has no value in any row with a target")
    median = float(np.median(values[given]))
    said = f"; {missing.sum():,} are missing and count as the median, {median:.4g}" if missing.any() else ""
    return np.where(np.isnan(values), median, values), said
