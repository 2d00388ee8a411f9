"""Extremely randomized trees on descriptors, fingerprint counts and embedding."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from molslice.files.processes import count_cores
from molslice.learners.base import Learner
from molslice.learners.features import Features
from molslice.learners.trees import Trees
from molslice.types import MolsliceError

__all__ = ["ExtraTrees"]

NUM_TREES = 250  # of all folds together
MIN_LEAF_ROWS = {"regression": 1, "classification": 3}
ROWS_PER_LEAF_ROW = 2_000  # a leaf has one more row for as many training rows, which bounds the nodes
SHARE_OF_COLUMNS = 0.2  # candidates of a split in a regression; the square root of all for classes
LARGEST = 1e30  # scikit-learn's forests compare in float32


class ExtraTrees(Learner):
    """Forest of trees with random thresholds, fitted by scikit-learn, evaluated here.

    A missing value is replaced by zero. The score of a class is its probability.

    Source: Geurts, Ernst and Wehenkel 2006, "Extremely randomized trees".
    """

    def __init__(self, trees: Trees, num_features: int) -> None:
        self.trees, self.num_features = trees, num_features

    @classmethod
    def fit(
        cls, features: Features, values: np.ndarray, folds: np.ndarray, *, classes: bool, seed: int
    ) -> tuple[Self, np.ndarray]:
        """Fit one forest for each fold; see `Learner.fit`."""
        from sklearn.ensemble import ExtraTreesRegressor

        matrix = _as_float32(features.matrix())
        columns = np.flatnonzero(np.nanmax(matrix, 0) > np.nanmin(matrix, 0))
        columns = columns if len(columns) else np.array([0])
        chosen = np.nan_to_num(matrix[:, columns])
        num_folds = int(folds.max()) + 1
        models = []
        for fold in range(num_folds):
            # for the targets 0 and 1, the squared error of a regression chooses the splits of the Gini index
            share: Any = "sqrt" if classes else SHARE_OF_COLUMNS
            smallest = MIN_LEAF_ROWS["classification" if classes else "regression"]
            model = ExtraTreesRegressor(
                n_estimators=max(1, NUM_TREES // num_folds),
                max_features=share,
                min_samples_leaf=smallest + len(values) // ROWS_PER_LEAF_ROW,
                n_jobs=count_cores(),
                random_state=seed + fold,
            )
            models.append(model.fit(chosen[folds != fold], values[folds != fold]))
        learner = cls(Trees.of_forests(models, columns), matrix.shape[1])
        return learner, learner.trees.predict(matrix)[folds, np.arange(len(folds))]

    def predict(self, features: Features) -> np.ndarray:
        """Predict with the forest of each fold; see `Learner.predict`."""
        matrix = features.matrix()
        if matrix.shape[1] != self.num_features:
            raise MolsliceError(f"extra trees take {self.num_features} features, got {matrix.shape[1]}")
        return self.trees.predict(_as_float32(matrix))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the trees; see `Learner.arrays`."""
        return {**self.trees.arrays(), "num_features": np.array([self.num_features], np.int64)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild the learner; see `Learner.from_arrays`."""
        trees, num_features = Trees.of_learner(arrays, "extra trees")
        return cls(trees, num_features)


def _as_float32(matrix: np.ndarray) -> np.ndarray:
    return np.clip(matrix, -LARGEST, LARGEST).astype(np.float32)
