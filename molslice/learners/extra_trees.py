"""Extremely randomized trees on descriptors, fingerprint counts and embedding."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from molslice.files.processes import count_cores
from molslice.learners.features import Features
from molslice.learners.fold_averages import left_out
from molslice.learners.labels import Labels
from molslice.learners.standardizing import standardize
from molslice.learners.trees import TreeLearner, Trees, hidden_warnings

NUM_TREES = 250  # of all models together
MIN_LEAF_ROWS = {"regression": 1, "classification": 3}
ROWS_PER_LEAF_ROW = 2_000  # a leaf has one more row for as many training rows, which bounds the nodes
LEAST_WEIGHT = 0.5  # of a leaf, in mean weights of a row; a leaf of one row would ignore its weight
SHARE_OF_COLUMNS = 0.2  # candidates of a split in a regression; the square root of all for classes
LARGEST = 1e30  # fits float32


class ExtraTrees(TreeLearner):
    """Forest of trees with random thresholds, fitted by scikit-learn, evaluated here.

    A missing value is replaced by zero. The score of a class is its probability.

    Source: Geurts, Ernst and Wehenkel 2006, "Extremely randomized trees".
    """

    label = "the forest of extra trees"
    indicators = ("trees",)

    @classmethod
    def fit(
        cls,
        features: Features,
        labels: Labels,
        folds: np.ndarray,
        *,
        classes: bool,
        seed: int,
        columns: float | str | None = None,
        least_rows: int | None = None,
    ) -> tuple[Self, np.ndarray]:
        """Fit one forest for each fold; see `Learner.fit`.

        `columns` is the share of the columns that are candidates of a split; None is the default.
        """
        from sklearn.ensemble import ExtraTreesRegressor

        matrix = cls.matrix_of(features)
        filled = np.nan_to_num(matrix)
        varying = np.flatnonzero(filled.max(0) > filled.min(0))
        varying = varying if len(varying) else np.array([0])
        chosen = filled[:, varying]
        masks = left_out(folds)
        share: Any = columns or ("sqrt" if classes else SHARE_OF_COLUMNS)
        smallest = least_rows or MIN_LEAF_ROWS["classification" if classes else "regression"]
        models, units = [], []
        for number, used in enumerate(~masks):
            values, weights = labels.of_model(number, used)
            # for the targets 0 and 1, the squared error of a regression chooses the splits of the Gini index
            model = ExtraTreesRegressor(
                n_estimators=max(1, NUM_TREES // len(masks)),
                max_features=share,
                min_samples_leaf=smallest + len(labels) // ROWS_PER_LEAF_ROW,
                min_weight_fraction_leaf=0.0 if weights is None else LEAST_WEIGHT / len(values),
                n_jobs=count_cores(),
                random_state=seed + number,
            )
            learned, offset, scale = (values, 0.0, 1.0) if classes else standardize(values)
            with hidden_warnings():
                models.append(model.fit(chosen[used], learned, sample_weight=weights))
            units.append((offset, scale))
        return cls.of_training(Trees.of_forests(models, varying, units), matrix, folds)

    @classmethod
    def choices(cls, *, classes: bool) -> Mapping[str, Sequence[Any]]:
        """Return values of the settings; see `Learner.choices`."""
        if classes:
            return {
                "columns": ("sqrt", 0.1, SHARE_OF_COLUMNS, 0.5),
                "least_rows": (MIN_LEAF_ROWS["classification"], 1, 2, 5),
            }
        return {
            "columns": (SHARE_OF_COLUMNS, 0.05, 0.1, 0.5, 1.0),
            "least_rows": (MIN_LEAF_ROWS["regression"], 2, 3, 5),
        }

    def predict_with_indicators(self, features: Features) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Predict; the indicator `trees` is the standard deviation over the trees of a model."""
        predicted, spread = self.trees.predict_with_spread(self.checked_matrix(features))
        return predicted, {"trees": spread}

    @classmethod
    def matrix_of(cls, features: Features) -> np.ndarray:
        """Return the features in float32, as scikit-learn's forests compare them."""
        return np.clip(features.matrix(), -LARGEST, LARGEST).astype(np.float32)
