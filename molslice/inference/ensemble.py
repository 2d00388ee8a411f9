"""An ensemble: networks that were trained on the same rows from different seeds."""

import copy
import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

import numpy as np

from molslice.config import DataConfig
from molslice.data.molecules.base import MoleculeDataset
from molslice.data.molecules.store import MoleculeStore
from molslice.inference.base import ChunkReader, SmilesPredictor
from molslice.inference.domain import TrainingDomain
from molslice.inference.network import Predictor
from molslice.inference.predictions import Members, Predictions
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import Calibration

__all__ = ["EnsemblePredictor"]


class EnsemblePredictor(SmilesPredictor):
    """The mean of the predictions of several networks, with a spread; see `Members.of_ensemble`.

    Args:
        members: The networks.
        name: The name of the model in messages.
        folder: The folder of the ensemble.

    Raises:
        MolsliceError: The members predict different targets, or from different arrays.
    """

    def __init__(self, members: Sequence[Predictor], name: str, folder: Path) -> None:
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
    def atom_order(self) -> str:
        """Order of the atoms in training, `canonical` or `input`."""
        return self.members[0].atom_order

    def with_dropout(self, passes: int) -> Self:
        """Return the ensemble with dropout passes of each member; see `SmilesPredictor.with_dropout`."""
        found = copy.copy(self)
        found.dropout_passes = passes
        found.members = tuple(member.with_dropout(passes) for member in self.members)
        return found

    def checksum(self) -> str:
        """Return a checksum of the weights of all members; see `SmilesPredictor.checksum`."""
        return hashlib.sha256("".join(member.checksum() for member in self.members).encode()).hexdigest()

    def reader(self, workers: int = 0) -> AbstractContextManager[ChunkReader]:
        """Return the reader of the members; see `Predictor.reader`."""
        return self.members[0].reader(workers)

    def predict_part(self, part: MoleculeStore) -> Predictions:
        """Predict the rows of a store; see `SmilesPredictor.predict_part`."""
        return self._mean([member.predict_store(part) for member in self._asked_members()])

    def predict_dataset(
        self,
        dataset: MoleculeDataset,
        rows: np.ndarray,
        *,
        atom_permutation: int | None = None,
        progress: bool = False,
    ) -> Predictions:
        """Predict rows of a data set; see `Predictor.predict_dataset`."""
        parts = [
            member.predict_dataset(dataset, rows, atom_permutation=atom_permutation, progress=progress)
            for member in self._asked_members()
        ]
        return self._mean(parts)

    def _asked_members(self) -> list[Predictor]:
        """Return the members, with their own spreads if that of the ensemble is needed."""
        return [member.with_members() if self.needs_spread else member for member in self.members]

    def find_calibration(self) -> Calibration:
        """Return the held-out rows of the ensemble; see `SmilesPredictor.find_calibration`."""
        return self.read_calibration(self.folder)

    def find_domain(self) -> TrainingDomain:
        """Return the training molecules; see `SmilesPredictor.find_domain`."""
        return self.read_domain(self.folder)

    def _mean(self, parts: Sequence[Predictions]) -> Predictions:
        """Return the mean; a row that a member cannot predict has its reason."""
        values = np.stack([part.values for part in parts], axis=1)
        errors = [
            next((e for e in each if e is not None), None)
            for each in zip(*(p.errors for p in parts), strict=True)
        ]
        found = Predictions(values.astype(np.float64).mean(1).astype(np.float32), errors)
        spreads = [part.members.spread for part in parts if part.members is not None]
        stated = [spread for spread in spreads if spread is not None]
        return self.with_intervals(
            found, Members.of_ensemble(values, np.stack(stated, axis=1) if stated else None)
        )


def _described(member: Predictor) -> tuple[object, ...]:
    targets = member.targets
    return targets.names, targets.units, targets.kind, member.atom_order, member.fragment, member.wildcards
