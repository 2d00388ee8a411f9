"""The out-of-fold predictions of the training rows of a fit, from its `rows.csv`."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from molslice.files.received import check_received
from molslice.folders.fitted import ROW_COLUMNS, ROWS, FittedModel, row_columns
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import CALIBRATION, Calibration, HeldOut

__all__ = ["OUT_OF_FOLD", "out_of_fold_calibration", "training_rows"]

OUT_OF_FOLD = "out-of-fold predictions of the training rows"


def out_of_fold_calibration(folder: Path, model: FittedModel) -> Calibration:
    """Read the calibration of a folder that was written without one.

    The intervals have equal width for all rows, because `rows.csv` does not have the difficulty of a row.

    Args:
        folder: The folder.
        model: Its model.

    Raises:
        MolsliceError: `rows.csv` is missing or damaged, or has no out-of-fold predictions, or the model has
            several assignments.
    """
    if model.num_assignments > 1:
        raise MolsliceError(f"{folder} is incomplete: {folder / CALIBRATION} is missing")
    file, targets = folder / ROWS, model.targets
    columns = row_columns(targets.names)
    start, count = len(ROW_COLUMNS), len(columns)
    check_received(file)
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            header, *lines = csv.reader(stream)
        if header[: start + count] != [*ROW_COLUMNS, *columns] or len(header) != start + 2 * count:
            raise ValueError(f"unexpected columns {', '.join(header)}")
        training = [line for line in lines if line[1] == "train"]
        folds = np.array([int(line[2]) for line in training], np.int64)
        cells = np.array(
            [[float(cell) if cell else np.nan for cell in line[start:]] for line in training], np.float64
        ).reshape(len(training), 2 * count)
    except (OSError, ValueError, IndexError, UnicodeDecodeError, csv.Error) as error:
        raise MolsliceError(f"cannot read out-of-fold predictions from {file}: {error}") from error
    if len(folds) and not (folds.min() >= 0 and folds.max() < model.num_folds):
        raise MolsliceError(f"{file} has folds up to {folds.max()}, but the model has {model.num_folds}")
    held_out = tuple(
        HeldOut.of_rows(
            name,
            targets.kind,
            cells[:, index],
            cells[:, count + index],
            folds,
            logarithmic=model.stacks[index].logarithmic,
        )
        for index, name in enumerate(targets.names)
    )
    return Calibration(targets.kind, model.num_folds, OUT_OF_FOLD, held_out)


def training_rows(folder: Path, targets: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Read the training rows.

    Args:
        folder: The folder of the model.
        targets: Names of the T targets.

    Returns:
        The SMILES of the n rows, and the measured values, float64 [n, T], NaN where missing.

    Raises:
        MolsliceError: `rows.csv` is missing or damaged.
    """
    file, columns = folder / ROWS, row_columns(targets)
    check_received(file)
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            rows = [row for row in csv.DictReader(stream) if row["split"] == "train"]
        values = [[float(row[name] or np.nan) for name in columns] for row in rows]
        return [row["smiles"] for row in rows], np.array(values).reshape(len(rows), len(columns))
    except (OSError, KeyError, ValueError, TypeError, UnicodeDecodeError, csv.Error) as error:
        raise MolsliceError(f"cannot read the training molecules from {file}: {error}") from error
