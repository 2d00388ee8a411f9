"""The errors of predictions of a table whose columns hold the measured values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from molslice.data.molecules.input_files import name_of
from molslice.data.molecules.limits import ReadValues, read_limits
from molslice.data.molecules.side_columns import SideColumns
from molslice.data.molecules.tables import MoleculeTable
from molslice.files.tables import Chunk, labels
from molslice.files.tables.classes import class_numbers
from molslice.inference.base import SmilesPredictor
from molslice.inference.predictions import NOT_FINITE, TableRows
from molslice.tasks.metrics import METRIC_NAMES, mean_absolute_error, roc_auc
from molslice.tasks.several_classes import SeveralClasses
from molslice.types import MolsliceError

__all__ = ["MeasuredValues"]


class MeasuredValues:
    """Measured values in the input, and their predictions.

    A limit, such as `>10`, has no error if the prediction meets it, and else the distance to it.

    Args:
        predictor: The model.
        table: The input.

    Attributes:
        columns: Number of each target that has a column, by its name.
        trained: Number of rows with a value whose molecule is a known training molecule of the model.

    Raises:
        MolsliceError: The input has no column with the name of a target, or more than one.
    """

    def __init__(self, predictor: SmilesPredictor, table: MoleculeTable) -> None:
        targets = predictor.targets
        self._targets, self._smiles = targets, table.smiles_column
        self._treatment = predictor.fragment, predictor.standardize
        present = {name.strip() for name in table.names}
        self.columns = {name: index for index, name in enumerate(targets.names) if name.strip() in present}
        if not self.columns:
            raise MolsliceError(
                f"{name_of(table.paths)} has no measured values: no column {' or '.join(targets.names)}"
            )
        for name in self.columns:
            table.find(name)
        side = SideColumns(table, list(self.columns)) if targets.kind == "regression" else None
        relations = side.relations if side is not None and len(self.columns) == 1 else []
        self._relation = relations[0] if len(relations) == 1 else None
        self._domain, self.trained = predictor.known_domain(), 0
        self._several: SeveralClasses | None = getattr(predictor, "classes", None)
        self._class_names: Sequence[Sequence[str]] = getattr(predictor, "class_names", ())
        width = len(self._several.names) if self._several else len(self.columns)
        self._values, self._predicted = [np.empty((0, len(self.columns)))], [np.empty((0, width))]
        self._limits = np.zeros(len(self.columns), int)

    @property
    def needed(self) -> list[str]:
        """The columns of the input that `add` needs beside the SMILES."""
        return [*self.columns, *([] if self._relation is None else [self._relation])]

    def add(self, chunk: Chunk, predictions: TableRows) -> None:
        """Keep the values of a chunk.

        Raises:
            MolsliceError: A cell is not a number.
        """
        places = [*range(len(self._several.names))] if self._several else [*self.columns.values()]
        predicted = predictions.values[:, places]
        # a prediction that is not finite counts as infinitely wrong
        failed = np.array([reason not in (None, NOT_FINITE) for reason in predictions.errors])
        if self._targets.kind == "regression":
            read = [read_limits(chunk, name, self._relation) for name in self.columns]
            self._limits += [int((target.sides[~failed] != 0).sum()) for target in read]
            values = np.stack(list(map(_nearest, read, predicted.T)), axis=1)
        else:
            values = np.stack([self._read_classes(chunk, name) for name in self.columns], axis=1)
        values[failed] = np.nan
        self._values.append(values)
        self._predicted.append(predicted)
        if self._domain is not None:
            measured, texts = np.isfinite(self._values[-1]).any(1), chunk[self._smiles]
            smiles = [texts[row] for row in np.flatnonzero(measured)]
            self.trained += int(self._domain.contains(smiles, *self._treatment).sum())

    def _read_classes(self, chunk: Chunk, name: str) -> np.ndarray:
        """Read the indices of the classes of a target."""
        if self._class_names:
            classes = self._class_names[self.columns[name]]
            return class_numbers(chunk[name], name, chunk.where, classes)
        return labels(chunk[name], name, chunk.where)

    def compare(self) -> list[dict[str, Any]]:
        """Return the error of each measured target over the rows with a value and a prediction."""
        values, predicted = np.concatenate(self._values), np.concatenate(self._predicted)
        if self._several is not None:
            count, name = int(np.isfinite(values).sum()), self._targets.names[0]
            return [
                {"name": name, "unit": "", "count": count, "metric": metric}
                | {"value": self._several.measure(metric, predicted, values[:, 0])}
                for metric in self._several.metrics
            ]
        metric = METRIC_NAMES[self._targets.kind]
        compute = roc_auc if self._targets.kind == "classification" else mean_absolute_error
        return [
            {
                "name": name,
                "unit": self._targets.units[index],
                "count": int(np.isfinite(values[:, place]).sum()),
                **({"limits": int(self._limits[place])} if self._limits[place] else {}),
                "metric": metric,
                "value": compute(predicted[:, place], values[:, place]),
            }
            for place, (name, index) in enumerate(self.columns.items())
        ]


def _nearest(read: ReadValues, predicted: np.ndarray) -> np.ndarray:
    """Return measured values, or for limits the possible values that are nearest to the predictions, [n]."""
    numbers = np.where(np.isnan(predicted), read.values, predicted)
    return np.where(read.sides != 0, np.clip(numbers, *read.bounds), read.values)
