"""Gradient boosting of decision trees on descriptors, fingerprint counts and embedding."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from molslice.learners.base import Learner
from molslice.learners.features import Features
from molslice.learners.trees import Trees
from molslice.types import MolsliceError

__all__ = ["Boosting"]


class Boosting(Learner):
    """Histogram gradient boosting as in LightGBM, fitted by scikit-learn, evaluated here.

    Source: Ke et al. 2017, "LightGBM: A Highly Efficient Gradient Boosting Decision Tree".
    """

    def __init__(self, trees: Trees, num_features: int) -> None:
        self.trees, self.num_features = trees, num_features

    @classmethod
    def fit(
        cls, features: Features, values: np.ndarray, folds: np.ndarray, *, classes: bool, seed: int
    ) -> tuple[Self, np.ndarray]:
        """Fit one model for each fold; see `Learner.fit`. Scores of classes are log-odds."""
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        matrix = features.matrix()
        columns = _varying(matrix)
        varying = matrix[:, columns]
        kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
        models = []
        for fold in range(int(folds.max()) + 1):
            model: Any = kind(random_state=seed + fold)
            model.set_params(early_stopping=False)
            models.append(model.fit(varying[folds != fold], values[folds != fold]))
        learner = cls(Trees.of_boosting(models, columns), matrix.shape[1])
        return learner, learner.trees.predict(matrix)[folds, np.arange(len(folds))]

    def predict(self, features: Features) -> np.ndarray:
        """Predict with the model of each fold; see `Learner.predict`."""
        matrix = features.matrix()
        if matrix.shape[1] != self.num_features:
            raise MolsliceError(f"boosting takes {self.num_features} features, got {matrix.shape[1]}")
        return self.trees.predict(matrix)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the trees; see `Learner.arrays`."""
        return {**self.trees.arrays(), "num_features": np.array([self.num_features], np.int64)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild the learner; see `Learner.from_arrays`."""
        try:
            trees, num_features = Trees.from_arrays(arrays), int(arrays["num_features"][0])
        except (KeyError, IndexError, TypeError) as error:
            raise MolsliceError(f"the arrays do not describe boosting: {error}") from error
        trees.check(num_features)
        return cls(trees, num_features)


def _varying(matrix: np.ndarray) -> np.ndarray:
    """Return the columns with two different values, or one value that is missing in some rows."""
    first = matrix[:1]
    same = (matrix == first) | (np.isnan(matrix) & np.isnan(first))
    columns = np.flatnonzero(~same.all(0))
    return columns if len(columns) else np.array([0])
