"""The errors of predictions of a table whose columns hold the measured values."""

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from molslice.chem.concentrations import is_same_unit, plain_unit
from molslice.data.molecules.input_files import name_of
from molslice.data.molecules.limits import ReadValues, plain_cell, read_limits
from molslice.data.molecules.side_columns import SideColumns, columns_beside, split_unit
from molslice.data.molecules.tables import MoleculeTable, check_decimal_comma, check_decimal_mark
from molslice.files.tables import Chunk, labels
from molslice.files.tables.classes import class_numbers
from molslice.inference.base import Predictor
from molslice.inference.groups import number_names
from molslice.inference.predictions import NOT_FINITE, TableRows
from molslice.tasks.standard_errors import measure_rows
from molslice.tasks.target_types import TargetType, column_slices
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError


class MeasuredValues:
    """Measured values in the input, and their predictions.

    A limit, such as `>10`, has no error if the prediction meets it, and else the distance to it. The columns
    of relations and units are found as in the fit. Rows of one molecule count as one in standard errors, of
    a symmetric pair as in `number_names`.

    Args:
        predictor: The model.
        table: The input.
        decimal: The decimal mark of the values; None for the one of the training.
        missing_values: Values that stand for a missing value; without any, as in the training.

    Attributes:
        columns: Number of each target that has a column, by the name of the column. It has the name of the
            target, or this name and the unit of the target in brackets.
        rows: Number of rows with a value.
        trained: Number of them whose molecule or pair is known from the training of the model.

    Raises:
        MolsliceError: The input has no column with the name of a target, or more than one, or the points of
            its numbers may be decimal marks or separate thousands.
    """

    def __init__(
        self,
        predictor: Predictor,
        table: MoleculeTable,
        decimal: str | None = None,
        missing_values: Sequence[float | str] = (),
    ) -> None:
        targets, trained = predictor.targets, predictor.number_format
        missing = tuple(missing_values) or trained.missing
        self._format = replace(trained, decimal=decimal or trained.decimal, missing=missing)
        self._targets, self._smiles = targets, table.smiles_column
        present = {name.strip() for name in table.names}
        self.columns = _columns_of(targets, predictor.measured_columns, table.names)
        if not self.columns:
            raise MolsliceError(
                f"{name_of(table.paths)} has no measured values: no column {' or '.join(targets.names)}"
            )
        for name in self.columns:
            table.find(name)
        check_decimal_mark(table, list(self.columns), self._format.decimal)
        self._relations: dict[str, str] = {}
        self._unit_columns: dict[str, str] = {}
        self._units = {name: _plain_unit(targets.units[index]) for name, index in self.columns.items()}
        self._types = predictor.types
        self._numbers = {name for name, index in self.columns.items() if not self._types[index].has_classes}
        if self._format.decimal == "," and decimal is None:
            numbers = [name for name in self.columns if name in self._numbers]
            check_decimal_comma(table, numbers, ("--decimal ,", "--decimal ."))
        if self._numbers:
            side, options = SideColumns(table, list(self.columns)), predictor.fit_options
            if options.get("limits") != "exact":
                self._relations = self._beside(options.get("relations"), side.relations, present)
            if "unit_columns" in options and options.get("transform") is None:
                self._unit_columns = self._beside(options["unit_columns"], side.units, present)
        self._count_trained, self._partner = predictor.count_trained, predictor.partner
        self.trained = self.rows = 0
        slices = [*column_slices(self._types)]
        self._places = {name: slices[index] for name, index in self.columns.items()}
        self._values, self._predicted = [np.empty((0, len(self.columns)))], [np.empty((0, slices[-1].stop))]
        self._limits = np.zeros(len(self.columns), int)
        self._is_logarithmic, self._name_molecules = predictor.is_logarithmic, predictor.name_molecules
        # the molecules by which rows are counted: the first one of each row, of a symmetric pair both
        self._names: list[list[str]] = [[], []] if predictor.symmetric else [[]]

    @property
    def needed(self) -> list[str]:
        """The columns of the input that `add` needs beside the SMILES."""
        beside = [*self._relations.values(), *self._unit_columns.values()]
        return [*self.columns, *dict.fromkeys(beside)]

    def _beside(
        self, named: Sequence[str | None] | None, detected: Sequence[str], present: Container[str | None]
    ) -> dict[str, str]:
        """Return the column beside each measured number, by the target; `named` are beside all targets."""
        of_measured = None if named is None else [named[index] for index in self.columns.values()]
        numbers = [name in self._numbers for name in self.columns]
        columns = zip(self.columns, columns_beside(numbers, of_measured, detected), strict=True)
        return {
            name: column
            for name, column in columns
            if name in self._numbers and column and column.strip() in present
        }

    def _check_units(self, chunk: Chunk, name: str, values: np.ndarray) -> None:
        """Check that values are in the unit of the model, or in one unit if the model has none.

        Raises:
            MolsliceError: One is in another unit.
        """
        cells = chunk[self._unit_columns[name]]
        for row in np.flatnonzero(np.isfinite(values)).tolist():
            if not (unit := _plain_unit(cells[row])):
                continue
            self._units[name] = self._units[name] or unit
            if not is_same_unit(unit, self._units[name]):
                raise MolsliceError(
                    f"{chunk.where(row)}: the value of {name!r} is in {unit}, but "
                    f"{'the model predicts' if self._targets.units[self.columns[name]] else 'others are in'} "
                    f"{self._units[name]}; convert it"
                )

    def add(self, chunk: Chunk, predictions: TableRows) -> None:
        """Keep the values of a chunk.

        Raises:
            MolsliceError: A cell is not a number, or a value is in another unit.
        """
        predicted = predictions.values[:, : self._predicted[0].shape[1]]
        # a prediction that is not finite counts as infinitely wrong
        failed = np.array([reason not in (None, NOT_FINITE) for reason in predictions.errors])
        columns = []
        for place, (name, index) in enumerate(self.columns.items()):
            if name not in self._numbers:
                columns.append(self._read_classes(chunk, name, self._types[index]))
                continue
            target = self._read_limits(chunk, name)
            if name in self._unit_columns:
                self._check_units(chunk, name, target.values)
            self._limits[place] += int((target.sides[~failed] != 0).sum())
            columns.append(_nearest(target, predicted[:, self._places[name].start]))
        values = np.stack(columns, axis=1)
        values[failed] = np.nan
        measured = np.flatnonzero(np.isfinite(values).any(1))
        self._values.append(values[measured])
        self._predicted.append(predicted[measured])
        cells = [chunk[name] for name in (self._smiles, self._partner) if name is not None]
        named = [self._name_molecules([texts[row] for row in measured]) for texts in cells]
        for known, names in zip(self._names, named, strict=False):
            known += names
        self.trained += self._count_trained(*named)
        self.rows += len(measured)

    def _read_limits(self, chunk: Chunk, name: str) -> ReadValues:
        column = self._relations.get(name)
        relations = None if column is None else (column, chunk[column])
        return read_limits(chunk[name], name, chunk.where, relations, self._format)

    def _read_classes(self, chunk: Chunk, name: str, of_target: TargetType) -> np.ndarray:
        """Read the indices of the classes of a target."""
        if of_target.words or of_target.several is not None:
            return class_numbers(chunk[name], name, chunk.where, of_target.class_names, self._format)
        return labels(chunk[name], name, chunk.where, self._format)

    def compare(self) -> list[dict[str, Any]]:
        """Return the errors of each measured target over the rows with a value and a prediction."""
        values, predicted = np.concatenate(self._values), np.concatenate(self._predicted)
        molecules = number_names(*self._names)
        entries = []
        for place, (name, index) in enumerate(self.columns.items()):
            truth, of_target = values[:, place], self._types[index]
            entry = {
                "name": self._targets.names[index],
                "unit": self._targets.units[index] if of_target.several is None else "",
                "count": int(np.isfinite(truth).sum()),
                **({"limits": int(self._limits[place])} if self._limits[place] else {}),
            }
            columns, several = predicted[:, self._places[name]].astype(np.float64), of_target.several
            values_of_target = columns[:, 0] if several is None else columns
            metrics = [of_target.metric] if several is None else several.metrics
            if self._is_logarithmic(index):
                metrics = [*metrics, "fold_error"]
            for metric in metrics:
                measured = measure_rows(of_target, values_of_target, truth, molecules, metric)
                spread = measured.standard_error if np.isfinite(measured.standard_error) else None
                error = {"metric": metric, "value": measured.value, "standard_error": spread}
                entries.append({**entry, **error, **({"unit": ""} if metric == "fold_error" else {})})
        return entries


def _columns_of(targets: TargetInfo, learned: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    """Return the number of each target that has a column in a table, by the name of the column.

    Of several columns, the one that the model has `learned` counts, then the one with the name of the target.
    """
    present, columns = dict.fromkeys(map(str.strip, names)), dict[str, int]()
    for index, (target, unit) in enumerate(zip(targets.names, targets.units, strict=True)):
        divided = {name: split_unit(name) for name in present if unit}
        possible = [target] * (target.strip() in present) + [
            name
            for name, (plain, of_name) in divided.items()
            if plain == target and is_same_unit(of_name, unit)
        ]
        if possible:
            columns[learned[index] if learned[index] in possible else possible[0]] = index
    return columns


def _plain_unit(cell: str) -> str:
    """Return a unit with one spelling of micro; empty for a missing unit."""
    return plain_unit(plain_cell(cell))


def _nearest(read: ReadValues, predicted: np.ndarray) -> np.ndarray:
    """Return measured values, or for limits the possible values that are nearest to the predictions, [n]."""
    numbers = np.where(np.isnan(predicted), read.values, predicted)
    return np.where(read.sides != 0, np.clip(numbers, *read.bounds), read.values)
