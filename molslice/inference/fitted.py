"""Predict with a model that `molslice fit` wrote."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from molslice.config import DataConfig
from molslice.data.molecules.base import MoleculeDataset
from molslice.data.molecules.describe import CHUNK_ROWS, DescribedMolecules, MoleculeDescriber
from molslice.data.molecules.store import MoleculeStore
from molslice.files.cache import file_checksum
from molslice.folders.fitted import (
    DISAGREEMENT,
    ENCODER,
    FINE_TUNED,
    FIT,
    LEARNER_FILE,
    NETWORKS,
    ROWS,
    SIZE,
    FittedModel,
    row_columns,
)
from molslice.folders.fitted_rows import out_of_fold_calibration, training_rows
from molslice.inference.base import ChunkReader, SmilesPredictor
from molslice.inference.domain import ARRAYS as DOMAIN_ARRAYS
from molslice.inference.domain import DOMAIN, TrainingDomain
from molslice.inference.predictions import NOT_FINITE, Members, Predictions
from molslice.learners import Features
from molslice.learners.folds import by_member
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import ARRAYS as CALIBRATION_ARRAYS
from molslice.uncertainty.calibration import CALIBRATION, Calibration

__all__ = ["FittedPredictor", "network_scores"]

FILES = (FIT, LEARNER_FILE, ROWS, CALIBRATION, CALIBRATION_ARRAYS, DOMAIN, DOMAIN_ARRAYS)  # of a prediction
SMALLEST_ODDS = 1e-7  # probabilities of networks are float32


class Network(Protocol):
    """A trained network on molecules, as `molslice.inference.load.Predictor` is.

    Attributes:
        device: Where it computes.
    """

    device: torch.device

    def reader(self, workers: int = 0) -> AbstractContextManager[ChunkReader]:
        """Return a reader of SMILES."""
        ...

    def embed_store(self, store: MoleculeStore) -> Predictions:
        """Compute the embeddings of the rows of a store, float32 [n, E]."""
        ...

    def predict_store(self, store: MoleculeStore) -> Predictions:
        """Predict the rows of a store, float32 [n, T]."""
        ...


def network_scores(predicted: np.ndarray, targets: TargetInfo) -> np.ndarray:
    """Convert predictions of a fine-tuned network to what a learner predicts.

    Args:
        predicted: Standardized values, or probabilities of class 1, float32 [n, T].
        targets: The description of the targets, with the mean and the spread of what was learned.

    Returns:
        What was learned, values or their logarithms, or log-odds, float64 [n, T].
    """
    values = predicted.astype(np.float64)
    if targets.kind == "classification":
        bounded = np.clip(values, SMALLEST_ODDS, 1.0 - SMALLEST_ODDS)
        return np.log(bounded) - np.log1p(-bounded)
    return values * np.array(targets.std) + np.array(targets.mean)


class FittedPredictor(SmilesPredictor):
    """A stack of learners on descriptors, fingerprints and embeddings, and of fine-tuned networks.

    A prediction depends on the molecule only. It is the mean over the members of the fit.

    Args:
        model: The learners and their weights.
        name: The name of the model in messages.
        folder: The folder of the model.
        encoder: The encoder whose embeddings are features; None for a model without one.
        networks: The fine-tuned network of each fold; empty for a model without them.
    """

    chunk_rows = CHUNK_ROWS

    def __init__(
        self,
        model: FittedModel,
        name: str,
        folder: Path,
        encoder: Network | None = None,
        networks: Sequence[Network] = (),
    ) -> None:
        self.model, self.name, self.folder = model, name, folder
        self.encoder, self.networks = encoder, tuple(networks)
        self.targets, self.num_members = model.targets, model.num_members
        self.fragment, self.wildcards = model.fragment, model.wildcards
        self.device = encoder.device if encoder is not None else torch.device("cpu")

    @property
    def data_config(self) -> DataConfig:
        """The rows of the fit as a data set, divided as in the fit."""
        options = {
            "path": str(self.folder / ROWS),
            "target_columns": row_columns(self.target_names),
            "units": list(self.target_units),
            "kind": self.targets.kind,
            "outliers": "keep",  # if the fit has kept some
            "split": {"kind": "column", "column": "split", "valid_fraction": 0},
        }
        if self.fragment != "keep":
            options["fragment"] = self.fragment
        if self.wildcards != "refuse":
            options["wildcards"] = self.wildcards
        return DataConfig("csv", options)

    def checksum(self) -> str:
        """Return a checksum of the files of the model; see `SmilesPredictor.checksum`.

        Other files of the folder do not count: predictions may be written there.
        """
        files = [self.folder / name for name in FILES]
        for part in (ENCODER, NETWORKS):
            files += sorted((self.folder / part).rglob("*"))
        files = [path for path in files if path.is_file()]
        names = [path.relative_to(self.folder).as_posix() for path in files]
        return hashlib.sha256(
            repr([*zip(names, map(file_checksum, files), strict=True)]).encode()
        ).hexdigest()

    def reader(self, workers: int = 0) -> MoleculeDescriber:
        """Return a reader that computes descriptors and fingerprint counts."""
        return MoleculeDescriber(workers)

    def predict_part(self, part: DescribedMolecules) -> Predictions:
        """Predict described molecules; see `SmilesPredictor.predict_part`."""
        values = np.full((len(part), len(self.target_names)), np.nan, np.float32)
        errors = list(part.errors)
        members, difficulty = np.zeros((2, self.num_members, *values.shape))
        good = np.flatnonzero([reason is None for reason in errors])
        if len(good):
            members[:, good], difficulty[:, good] = self.member_predictions(part.take(good))
            values[good] = members[:, good].mean(0)
        for row in good[~np.isfinite(values[good]).all(1)]:
            values[row], errors[row] = np.nan, NOT_FINITE
        by_row = members.transpose(1, 0, 2)
        return self.with_intervals(
            Predictions(values, errors),
            Members(by_row.std(1), by_row, difficulty.transpose(1, 0, 2)),
        )

    def find_calibration(self) -> Calibration:
        """Return the out-of-fold predictions of the training rows; see `SmilesPredictor.find_calibration`.

        The calibration of a folder without one is read from its `rows.csv`.
        """
        found = Calibration.read(self.folder, self.targets.kind, self.target_names)
        found = found or out_of_fold_calibration(self.folder, self.model)
        if found.num_folds != self.num_members:
            raise MolsliceError(
                f"{self.folder} has held-out rows of {found.num_folds} folds, but {self.num_members} members"
            )
        for target, stack in zip(found.targets, self.model.stacks, strict=True):
            if target.logarithmic != stack.logarithmic:
                raise MolsliceError(
                    f"{self.folder} has held-out rows of {target.name!r} on another scale than its model"
                )
        return found

    def find_domain(self) -> TrainingDomain:
        """Return the training molecules, of an older folder from its `rows.csv`; see `SmilesPredictor`."""
        if (self.folder / DOMAIN).exists():
            return self.read_domain(self.folder)
        smiles, values = training_rows(self.folder, self.target_names)
        return TrainingDomain.of_smiles(smiles, self.fragment, values=values)

    def member_predictions(self, part: DescribedMolecules) -> tuple[np.ndarray, np.ndarray]:
        """Predict molecules without errors with the stack of each member; see `molslice.learners.folds`.

        Returns:
            The predictions in the units of the targets, and the expected error in the unit of the learners
            (in older folders the standard deviation over the learners; 0 for classes and where no interval
            needs it), float64 [members, n, T] each.
        """
        store = self._read(part.canonical)
        embedding = None if self.encoder is None or store is None else self.encoder.embed_store(store).values
        features = Features(part.descriptors, part.counts, embedding)
        tuned = [
            network_scores(network.predict_store(store).values, self.targets)
            for network in self.networks
            if store is not None
        ]
        columns, difficulty = [], []
        model = self.model
        for index, (learners, stack, scale) in enumerate(
            zip(model.learners, model.stacks, model.scales, strict=True)
        ):
            parts, indicators = {}, {}
            for name, learner in learners.items():
                if scale is None or not learner.indicators or not self.needs_spread:
                    parts[name] = learner.predict(features)
                else:
                    parts[name], found = learner.predict_with_indicators(features)
                    indicators |= found
            if tuned:
                parts[FINE_TUNED] = np.stack([scores[:, index] for scores in tuned])
            parts, indicators = self._by_member(parts), self._by_member(indicators)
            columns.append(stack.combine(parts))
            if self.targets.kind == "classification" or not self.needs_spread:
                difficulty.append(np.zeros_like(columns[-1]))
                continue
            apart = stack.disagreement(parts)
            if scale is None:
                difficulty.append(apart)
            else:
                size = np.broadcast_to(features.size(), apart.shape)
                difficulty.append(scale.expect({**indicators, DISAGREEMENT: apart, SIZE: size}))
        return np.stack(columns, axis=2), np.stack(difficulty, axis=2)

    def _by_member(self, predicted: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Average the models of each member, float64 [members, n] each."""
        found = {}
        for name, values in predicted.items():
            if len(values) not in (self.model.num_folds, self.model.num_folds * self.model.num_assignments):
                raise MolsliceError(f"{name} of {self.name} has another number of folds")
            found[name] = by_member(values, self.model.num_folds, self.num_members)
        return found

    def _read(self, smiles: list[str]) -> MoleculeStore | None:
        """Convert SMILES once for the encoder and all networks; None for a model without them."""
        if self.encoder is None:
            return None
        with self.encoder.reader() as reader:
            return next(iter(reader.read([smiles])))

    def predict_dataset(
        self,
        dataset: MoleculeDataset,
        rows: np.ndarray,
        *,
        atom_permutation: int | None = None,
        progress: bool = False,
    ) -> Predictions:
        """Predict rows of a data set.

        Raises:
            MolsliceError: `atom_permutation` is given; descriptors have no order of atoms.
        """
        if atom_permutation is not None:
            raise MolsliceError(
                f"{self.name} predicts from descriptors, which do not depend on the order of atoms"
            )
        smiles = dataset.smiles()
        return self.predict_with_errors([smiles[row] for row in rows], progress=progress)
