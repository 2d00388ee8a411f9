"""An ensemble: networks that were trained on the same rows from different seeds."""

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from molslice.config import DataConfig
from molslice.data.molecules.base import MoleculeDataset
from molslice.data.molecules.store import MoleculeStore
from molslice.files.tables import NumberFormat
from molslice.inference.base import ChunkReader, Predictor
from molslice.inference.network import NetworkPredictor
from molslice.inference.options import PLAIN, PredictionOptions, add_uncertainty
from molslice.inference.predictions import Members, Predictions
from molslice.types import MolsliceError


class EnsemblePredictor(Predictor):
    """The mean of the predictions of several networks, with a spread; see `Members.of_ensemble`.

    Raises:
        MolsliceError: The members predict different targets, or from different arrays.
    """

    def __init__(self, members: Sequence[NetworkPredictor], name: str, folder: Path) -> None:
        first = members[0]
        for member in members:
            if _described(member) != _described(first):
                raise MolsliceError(f"{member.name} predicts other targets than {first.name}")
            if member.data.predicts_variance != first.data.predicts_variance:
                raise MolsliceError(f"{member.name} and {first.name} were trained with other losses")
            if member.data.num_descriptors != first.data.num_descriptors:
                raise MolsliceError(f"{member.name} takes other descriptors than {first.name}")
        self.members, self.name, self.folder = tuple(members), name, folder
        self.targets, self.device, self.chunk_rows = first.targets, first.device, first.chunk_rows
        self.num_members = len(members)
        self.fragment, self.wildcards = first.fragment, first.wildcards

    @property
    def data_config(self) -> DataConfig:
        """The data set that the members were trained on."""
        return self.members[0].data_config

    @property
    def number_format(self) -> NumberFormat:
        """How numbers and missing values were written in the table of the members."""
        return self.members[0].number_format

    @property
    def atom_order(self) -> str:
        """Order of the atoms in training, `canonical` or `input`."""
        return self.members[0].atom_order

    def checksum(self) -> str:
        """Return a checksum of the weights of all members; see `Predictor.checksum`."""
        return hashlib.sha256("".join(member.checksum() for member in self.members).encode()).hexdigest()

    def reader(self, workers: int = 0) -> AbstractContextManager[ChunkReader]:
        """Return the reader of the members; see `NetworkPredictor.reader`."""
        return self.members[0].reader(workers)

    def predict_molecules(
        self,
        molecules: MoleculeStore,
        options: PredictionOptions = PLAIN,
        **rows: Any,  # noqa: ANN401
    ) -> Predictions:
        """Predict the rows of a store, or some of them, as `NetworkPredictor.predict_molecules`.

        A row that a member cannot predict has its reason.
        """
        # the spreads of the members are needed for the spread of the ensemble
        asked = PredictionOptions(
            dropout_passes=options.dropout_passes, with_members=self.needs_spread(options)
        )
        predicted = [member.predict_molecules(molecules, asked, **rows) for member in self.members]
        values = np.stack([predictions.values for predictions in predicted], axis=1)
        errors = [
            next((reason for reason in reasons if reason is not None), None)
            for reasons in zip(*(predictions.errors for predictions in predicted), strict=True)
        ]
        mean = Predictions(values.astype(np.float64).mean(1).astype(np.float32), errors)
        members = [predictions.members for predictions in predicted if predictions.members is not None]
        spreads = [member.spread for member in members if member.spread is not None]
        stated = np.stack(spreads, axis=1) if spreads else None
        return add_uncertainty(mean, Members.of_ensemble(values, stated), options)

    def predict_dataset(
        self,
        dataset: MoleculeDataset,
        rows: np.ndarray,
        options: PredictionOptions = PLAIN,
        *,
        atom_permutation: int | None = None,
        progress: bool = False,
    ) -> Predictions:
        """Predict rows of a data set; see `NetworkPredictor.predict_dataset`."""
        return self.predict_molecules(
            dataset.store, options, rows=rows, atom_permutation=atom_permutation, progress=progress
        )


def _described(member: NetworkPredictor) -> tuple[object, ...]:
    targets = member.targets
    return targets.names, targets.units, targets.kind, member.atom_order, member.fragment, member.wildcards
