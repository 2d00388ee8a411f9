"""Predict with a model that `molslice fit` wrote."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from molslice.config import DataConfig
from molslice.data.molecules.base import MoleculeDataset
from molslice.data.molecules.describe import DescribedMolecules, MoleculeDescriber
from molslice.fitted_folder import ROWS, FittedModel, row_columns
from molslice.inference.base import NOT_FINITE, Predictions, SmilesPredictor
from molslice.learners import Features
from molslice.types import MolsliceError

__all__ = ["FittedPredictor"]


class Encoder(Protocol):
    """Computes embeddings of molecules, as `molslice.inference.load.Predictor` does."""

    def embed(self, smiles: Sequence[str]) -> np.ndarray:
        """Compute the embedding of each SMILES: float32 [n, E]."""
        ...


class FittedPredictor(SmilesPredictor):
    """A stack of learners on descriptors and fingerprints, which predicts in the units of its targets.

    A prediction depends on the molecule only. It is the mean over the folds of the fit.

    Args:
        model: The learners and their weights.
        name: The name of the model in messages.
        folder: The folder of the model.
        encoder: The encoder whose embeddings are features; None for a model without one.
    """

    def __init__(self, model: FittedModel, name: str, folder: Path, encoder: Encoder | None = None) -> None:
        self.model, self.name, self.folder, self.encoder = model, name, folder, encoder
        self.targets = model.targets

    @property
    def data_config(self) -> DataConfig:
        """The rows of the fit as a data set, divided as in the fit."""
        options = {
            "path": str(self.folder / ROWS),
            "target_columns": row_columns(self.target_names),
            "units": list(self.target_units),
            "kind": self.targets.kind,
            "split": {"kind": "column", "column": "split"},
        }
        return DataConfig("csv", options)

    def reader(self, workers: int = 0) -> MoleculeDescriber:
        """Return a reader that computes descriptors and fingerprint counts."""
        return MoleculeDescriber(workers)

    def predict_part(self, part: DescribedMolecules) -> Predictions:
        """Predict described molecules; see `SmilesPredictor.predict_part`."""
        values = np.full((len(part), len(self.target_names)), np.nan, np.float32)
        errors = list(part.errors)
        good = np.flatnonzero([reason is None for reason in errors])
        if len(good):
            values[good] = self.member_predictions(self.features(part.take(good))).mean(0)
        for row in good[~np.isfinite(values[good]).all(1)]:
            values[row], errors[row] = np.nan, NOT_FINITE
        return Predictions(values, errors)

    def features(self, part: DescribedMolecules) -> Features:
        """Return the features of molecules without errors."""
        embedding = None if self.encoder is None else self.encoder.embed(part.canonical)
        return Features(part.descriptors, part.counts, embedding)

    def member_predictions(self, features: Features) -> np.ndarray:
        """Predict with the stack of each fold: float64 [folds, n, T] in the units of the targets."""
        columns = []
        for learners, stack in zip(self.model.learners, self.model.stacks, strict=True):
            parts = {name: learner.predict(features) for name, learner in learners.items()}
            columns.append(stack.combine(parts))
        if len({len(column) for column in columns}) != 1:
            raise MolsliceError(f"the targets of {self.name} have different numbers of folds")
        return np.stack(columns, axis=2)

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
