"""Gradient boosting of decision trees on descriptors, fingerprint counts and embedding."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np

from molslice.files.processes import count_cores
from molslice.learners.base import Learner
from molslice.learners.features import Features
from molslice.learners.trees import Trees
from molslice.types import MolsliceError

__all__ = ["Boosting"]

MIN_LEAF_ROWS = 20  # scikit-learn's default


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
        matrix = features.matrix()
        columns = _splittable(matrix)
        chosen = matrix[:, columns]

        def fit_fold(fold: int) -> Any:  # noqa: ANN401
            return _fit_one(chosen[folds != fold], values[folds != fold], classes, seed + fold)

        with ThreadPoolExecutor(count_cores()) as threads:
            models = list(threads.map(fit_fold, range(int(folds.max()) + 1)))
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
        trees, num_features = Trees.of_learner(arrays, "boosting")
        return cls(trees, num_features)


def _fit_one(matrix: np.ndarray, values: np.ndarray, classes: bool, seed: int) -> Any:  # noqa: ANN401
    """Fit one model with one thread: folds run side by side, and small tables gain nothing from more."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    model: Any = (HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor)()
    model.set_params(early_stopping=False, min_samples_leaf=MIN_LEAF_ROWS, random_state=seed)
    with threadpool_limits(1, user_api="openmp"):  # of this thread only
        return model.fit(matrix, values)


def _splittable(matrix: np.ndarray) -> np.ndarray:
    """Return the columns that a tree can split: at least a leaf's rows differ from the most common value.

    Most fingerprint bins are rare, and the time of boosting is proportional to the number of columns.
    """
    middle = np.nanmedian(np.where(np.isnan(matrix).all(0), 0.0, matrix), axis=0)
    differing = (matrix != middle).sum(0)  # if a value is in most rows, it is the median
    columns = np.flatnonzero(differing >= MIN_LEAF_ROWS)
    return columns if len(columns) else np.array([0])
