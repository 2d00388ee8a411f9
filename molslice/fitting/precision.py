"""How precise the rows of a fit are: a column of weights, and columns of standard errors."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from molslice.files.tables import NumberFormat, numbers
from molslice.fitting.columns import Cells
from molslice.fitting.data import FitData, FitOptions
from molslice.types import MolsliceError


def read_precision(cells: Cells, written: NumberFormat, options: FitOptions) -> dict[str, np.ndarray]:
    """Read the columns of weights and of standard errors, float64 [n] by name, NaN where missing.

    Raises:
        MolsliceError: A cell is not a positive number.
    """
    read = {}
    for column in filter(None, (options.weight, *(options.errors or ()))):
        read[column] = values = numbers(
            cells[column], column, cells.where, replace(written, classes=False), of_target=False
        )
        if (wrong := np.flatnonzero(values <= 0)).size:
            row = int(wrong[0])
            raise MolsliceError(
                f"{cells.where(row)}, column {column!r}: {cells[column][row]!r} is not positive; leave the "
                "cell empty if it is not known"
            )
    return read


def attach_precision(data: FitData, read: Mapping[str, np.ndarray], options: FitOptions) -> None:
    """Make weights and standard errors a part of the rows, which are all rows of the table.

    A row without a weight gets the median of the others. A missing standard error is NaN.

    Raises:
        MolsliceError: The column of weights is empty.
    """
    if options.weight is not None:
        weights, finding = _filled(read[options.weight], np.asarray(data.known.any(1)), options.weight)
        data.weights = np.repeat(weights[:, None], len(data.names), axis=1)
        data.findings.append(f"weights: column {options.weight!r}{finding}")
    if any(options.errors or ()):
        zero = np.zeros(len(data.smiles))
        data.noise = np.stack([read[column] if column else zero for column in options.errors or ()], axis=1)


def fill_errors(data: FitData, options: FitOptions) -> None:
    """Replace missing standard errors by the median of the others, all in the unit of their target.

    Raises:
        MolsliceError: A column is empty.
    """
    for index, (name, column) in enumerate(zip(data.names, options.errors or (), strict=False)):
        if data.noise is not None and column is not None:
            data.noise[:, index], finding = _filled(data.noise[:, index], data.known[:, index], column)
            data.findings.append(f"{name}: standard errors in column {column!r}{finding}")


def _filled(values: np.ndarray, known: np.ndarray, column: str) -> tuple[np.ndarray, str]:
    """Replace missing values by the median of rows with a target, and say how many there are."""
    given, missing = np.isfinite(values) & known, np.isnan(values) & known
    if not given.any():
        raise MolsliceError(f"the column {column!r} has no value in any row with a target")
    median = float(np.median(values[given]))
    note = f"; {missing.sum():,} are missing and count as the median, {median:.4g}" if missing.any() else ""
    return np.where(np.isnan(values), median, values), note
