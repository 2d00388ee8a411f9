"""The rows of a fit as the table has them, with their out-of-fold predictions."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from molslice.chem.canonical import canonical_molecule
from molslice.data.molecules.fragments import choose_fragments
from molslice.fitting.duplicates import Conflict, find_conflicts
from molslice.folders.fitted import ROWS, row_columns
from molslice.inference.fitted import FittedPredictor, prediction_row_columns
from molslice.report.measure import read_value
from molslice.report.table_rows import MeasuredRow, TableRow, knows_table, read_csv, read_table_rows
from molslice.tasks.target_types import column_slices
from molslice.types import MolsliceError


@dataclass(slots=True)
class Entry:
    """A row of the table.

    Attributes:
        place: Where it is.
        row: Its row of `rows.csv`, from 0; a negative number for a molecule that has none.
        molecule: What rows of one molecule in the same conditions have in common.
        values: The values of the targets, NaN where missing or a limit.
    """

    place: TableRow
    row: int
    molecule: object
    values: list[float]


class MarkedRows(NamedTuple):
    """The rows of a target with an out-of-fold prediction.

    Attributes:
        rows: Rows of `rows.csv`, from 0, int [n].
        truth: Their values, float64 [n].
        predicted: Their predictions, or the probabilities of class 1, float64 [n].
        is_suspicious: Whether a value of the row is suspicious, bool [n].
    """

    rows: np.ndarray
    truth: np.ndarray
    predicted: np.ndarray
    is_suspicious: np.ndarray


class JudgedRows(NamedTuple):
    """The rows of the table with a value of a target and an out-of-fold prediction.

    Attributes:
        truth: Their values, float64 [n]; of a limit, the limit.
        predicted: The prediction of their molecule, or the probability of class 1, float64 [n].
        is_suspicious: Whether the value is suspicious, bool [n].
        molecules: Number of the molecule in its conditions, int [n].
    """

    truth: np.ndarray
    predicted: np.ndarray
    is_suspicious: np.ndarray
    molecules: np.ndarray


class FitRows:
    """The rows of a fit: `rows.csv`, `table_rows.csv` and the calibration."""

    def __init__(self, predictor: FittedPredictor) -> None:
        self.predictor, self.file = predictor, predictor.folder / ROWS
        self.types, self.names = predictor.types, predictor.target_names
        self.columns, self.units = row_columns(self.names), predictor.target_units
        self.rows = read_csv(self.file, [*self.columns, "smiles", "split"])
        self.calibration = predictor.find_calibration()
        predicted = prediction_row_columns(self.names, self.types, predictor.condition_names)
        try:
            targets = [*zip(self.columns, self.types, strict=True)]
            values = [
                [read_value(row[name], target_type) for name, target_type in targets] for row in self.rows
            ]
            cells = [[float(row[name] or "nan") for name in predicted] for row in self.rows]
        except (KeyError, ValueError) as error:
            raise MolsliceError(f"cannot read {self.file}: {error}") from error
        self.values = np.array(values).reshape(len(self.rows), len(self.columns))
        self.predictions = np.array(cells).reshape(len(self.rows), len(predicted))
        self.knows_table = knows_table(predictor)
        self.entries = self._read_entries()
        self.conflicts = self._find_conflicts()

    def text(self, index: int, value: float) -> str:
        """Return a value of a target as text, for a class its name."""
        target_type = self.types[index]
        return target_type.class_names[int(value)] if target_type.has_classes else f"{value:.6g}"

    def conditions(self, row: int) -> tuple[str, ...]:
        """Return the conditions and the second molecule of a row of `rows.csv`."""
        return tuple(self.rows[row].get(name, "") for name in self.predictor.condition_names)

    def _read_entries(self) -> list[Entry]:
        if self.knows_table:
            rows = read_table_rows(self.predictor, len(self.rows))
        else:
            places = [
                TableRow(self.file.name, number, number + 1, cells["smiles"])
                for number, cells in enumerate(self.rows, 1)
            ]
            rows = [MeasuredRow(place, row, self.values[row].tolist()) for row, place in enumerate(places)]
        entries = [
            Entry(measured_row.place, measured_row.row, measured_row.row, measured_row.values)
            for measured_row in rows
        ]
        if self.predictor.fit_options.get("duplicates") == "keep":
            names = choose_fragments(
                [entry.place.smiles for entry in entries], *self.predictor.treatment
            ).smiles
            for entry, name in zip(entries, names, strict=True):
                if entry.row >= 0:
                    entry.molecule = canonical_molecule(name).smiles, self.conditions(entry.row)
        return entries

    def _find_conflicts(self) -> list[Conflict]:
        """Find the conflicts that the fit names; their rows are numbers of entries."""
        molecules: dict[object, list[int]] = {}
        for number, entry in enumerate(self.entries):
            molecules.setdefault(entry.molecule, []).append(number)
        values = np.array([entry.values for entry in self.entries]).reshape(-1, len(self.names))
        has_classes = np.array([target_type.has_classes for target_type in self.types])
        several = [rows for rows in molecules.values() if len(rows) > 1]
        return find_conflicts(values, has_classes, several, self.predictor.fit_options.get("scale"))

    def held_out_rows(self, index: int) -> np.ndarray:
        """Find the rows of `rows.csv` that the held-out rows of a target are, int [n]."""
        held_out, columns = self.calibration.targets[index], [*column_slices(self.types)][index]
        matched, row = [], -1
        for truth, predicted in zip(held_out.truth, held_out.predicted, strict=True):
            row += 1
            while row < len(self.rows) and not (
                self.rows[row]["split"] == "train"
                and np.allclose(self.predictions[row, columns], predicted, atol=0.0)
                and (np.isclose(self.values[row, index], truth, atol=0.0) or self.limit(index, row))
            ):
                row += 1
            if row == len(self.rows):
                raise MolsliceError(f"{self.file} does not fit the calibration of {self.predictor.name}")
            matched.append(row)
        return np.array(matched, np.int64)

    def limit(self, index: int, row: int) -> str:
        """Return the limit of a target in a row, such as `>10`; "" without one."""
        is_known = math.isfinite(self.values[row, index])
        return "" if is_known else self.rows[row].get(f"{self.columns[index]}_limit", "")
