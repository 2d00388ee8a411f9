"""The errors of predictions of a table whose columns hold the measured values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from molslice.data.molecules.input_files import name_of
from molslice.data.molecules.tables import MoleculeTable
from molslice.files.tables import Chunk, labels, numbers
from molslice.files.tables.classes import class_numbers
from molslice.inference.base import SmilesPredictor
from molslice.inference.predictions import NOT_FINITE, TableRows
from molslice.tasks.metrics import METRIC_NAMES, mean_absolute_error, roc_auc
from molslice.tasks.several_classes import SeveralClasses
from molslice.types import MolsliceError

__all__ = ["MeasuredValues"]


class MeasuredValues:
    """Measured values in the input, and their predictions.

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
        self._targets, self._fragment, self._smiles = targets, predictor.fragment, table.smiles_column
        present = {name.strip() for name in table.names}
        self.columns = {name: index for index, name in enumerate(targets.names) if name.strip() in present}
        if not self.columns:
            raise MolsliceError(
                f"{name_of(table.paths)} has no measured values: no column {' or '.join(targets.names)}"
            )
        for name in self.columns:
            table.find(name)
        self._domain, self.trained = predictor.known_domain(), 0
        self._several: SeveralClasses | None = getattr(predictor, "classes", None)
        self._class_names: Sequence[Sequence[str]] = getattr(predictor, "class_names", ())
        width = len(self._several.names) if self._several else len(self.columns)
        self._values, self._predicted = [np.empty((0, len(self.columns)))], [np.empty((0, width))]

    def add(self, chunk: Chunk, predictions: TableRows) -> None:
        """Keep the values of a chunk.

        Raises:
            MolsliceError: A cell is not a number.
        """
        self._values.append(np.stack([self._read(chunk, name) for name in self.columns], axis=1))
        # a prediction that is not finite counts as infinitely wrong
        failed = np.array([reason not in (None, NOT_FINITE) for reason in predictions.errors])
        self._values[-1][failed] = np.nan
        places = [*range(len(self._several.names))] if self._several else [*self.columns.values()]
        self._predicted.append(predictions.values[:, places])
        if self._domain is not None:
            measured, texts = np.isfinite(self._values[-1]).any(1), chunk[self._smiles]
            smiles = [texts[row] for row in np.flatnonzero(measured)]
            self.trained += int(self._domain.contains(smiles, self._fragment).sum())

    def _read(self, chunk: Chunk, name: str) -> np.ndarray:
        """Read the measured values of a target, or the indices of its classes."""
        if self._class_names:
            classes = self._class_names[self.columns[name]]
            return class_numbers(chunk[name], name, chunk.where, classes)
        read = labels if self._targets.kind == "classification" else numbers
        return read(chunk[name], name, chunk.where)

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
                "metric": metric,
                "value": compute(predicted[:, place], values[:, place]),
            }
            for place, (name, index) in enumerate(self.columns.items())
        ]
