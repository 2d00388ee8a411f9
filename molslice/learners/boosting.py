"""Gradient boosting of decision trees on descriptors, fingerprint counts and embedding."""

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np

from molslice.files.processes import count_cores
from molslice.learners.features import Features
from molslice.learners.fold_averages import left_out
from molslice.learners.labels import Labels
from molslice.learners.standardizing import standardize
from molslice.learners.trees import TreeLearner, Trees, hidden_warnings

MIN_LEAF_ROWS = 20  # scikit-learn's default
BINS = 63  # of a column; 255, the default of scikit-learn, takes 1.5 times as long, for the same error


class Boosting(TreeLearner):
    """Histogram gradient boosting as in LightGBM, fitted by scikit-learn, evaluated here.

    Source: Ke et al. 2017, "LightGBM: A Highly Efficient Gradient Boosting Decision Tree".
    """

    label = "boosting"

    @classmethod
    def fit(
        cls,
        features: Features,
        labels: Labels,
        folds: np.ndarray,
        *,
        classes: bool,
        seed: int,
        learning_rate: float = 0.1,
        trees: int = 100,
        leaves: int = 31,
        least_rows: int = MIN_LEAF_ROWS,
        columns: float = 1.0,
    ) -> tuple[Self, np.ndarray]:
        """Fit one model for each fold; see `Learner.fit`. Scores of classes are log-odds.

        `columns` is the share of the columns that are candidates of a split.
        """
        parameters = {
            "learning_rate": learning_rate,
            "max_iter": trees,
            "max_leaf_nodes": leaves,
            "min_samples_leaf": least_rows,
            "max_features": columns,
            "max_bins": BINS,
        }
        matrix = cls.matrix_of(features)
        splittable = splittable_columns(matrix, least_rows)
        chosen = matrix[:, splittable]

        def fit_model(number: int, used: np.ndarray) -> tuple[Any, tuple[float, float]]:
            values, weights = labels.of_model(number, used)
            learned, *unit = (values, 0.0, 1.0) if classes else standardize(values)
            settings = {**parameters, "random_state": seed + number}
            return _fit_one(chosen[used], learned, weights, classes, settings), (unit[0], unit[1])

        with hidden_warnings(), ThreadPoolExecutor(count_cores()) as threads:
            models, units = zip(*threads.map(fit_model, itertools.count(), ~left_out(folds)), strict=True)
        return cls.of_training(Trees.of_boosting(models, splittable, units), matrix, folds)

    @classmethod
    def choices(cls, *, classes: bool) -> Mapping[str, Sequence[Any]]:  # noqa: ARG003
        """Return values of the settings; see `Learner.choices`. The defaults are of scikit-learn."""
        return {
            "learning_rate": (0.1, 0.05, 0.02),
            "trees": (100, 200, 400),
            "leaves": (31, 7, 15),
            "least_rows": (MIN_LEAF_ROWS, 10, 40),  # fewer take several times as long
            "columns": (1.0, 0.3, 0.1),
        }


def _fit_one(
    matrix: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray | None,
    classes: bool,
    parameters: Mapping[str, Any],
) -> Any:  # noqa: ANN401
    """Fit one model with one thread: folds run side by side, and small tables gain nothing from more."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    model: Any = (HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor)()
    model.set_params(early_stopping=False, **parameters)
    with threadpool_limits(1, user_api="openmp"):  # of this thread only
        return model.fit(_defined(matrix), values, sample_weight=weights)


def splittable_columns(matrix: np.ndarray, least_rows: int = MIN_LEAF_ROWS) -> np.ndarray:
    """Return the columns that a tree can split: at least a leaf's rows differ from the most common value.

    Boosting without the others gives the same model. Most fingerprint bins are rare, and the time of boosting
    is proportional to the number of columns.
    """
    matrix = _defined(matrix)
    middle = np.nanmedian(matrix, axis=0)
    differing = (matrix != middle).sum(0)  # if a value is in most rows, it is the median
    columns = np.flatnonzero(differing >= least_rows)
    return columns if len(columns) else np.array([0])


def _defined(matrix: np.ndarray) -> np.ndarray:
    """Replace columns without any defined value by zeros; scikit-learn cannot bin them."""
    return np.where(np.isnan(matrix).all(0), 0.0, matrix)
