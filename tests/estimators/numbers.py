"""Estimators of rows of numbers, each converted to a molecule, so that scikit-learn's checks can run."""

import zlib

import numpy as np
from sklearn.utils.validation import validate_data

from molslice.estimators import MolsliceClassifier, MolsliceFeaturizer, MolsliceRegressor

PARTS = ("C", "O", "N", "S", "C(F)", "C(=O)", "C(C)", "C(Cl)")


def smiles_of(row):
    """Return a chain of a part for each of the first numbers; the parts at its end differ between rows."""
    row = np.asarray(row, np.float64)
    places = np.clip(np.round(2 * row[:6]) + 4, 0, 7).astype(int)
    end = f"{zlib.crc32(row.tobytes()) % 8**5:05o}"
    return "".join(PARTS[place] for place in places) + "".join(PARTS[int(digit)] for digit in end) + "Br"


class _Numbers:
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = tags.input_tags.allow_nan = False
        tags.input_tags.two_d_array = True
        for each in (tags.regressor_tags, tags.classifier_tags):
            if each is not None:
                each.poor_score = True  # the chains say little about the numbers
        return tags

    def _smiles(self, X):
        return [smiles_of(row) for row in validate_data(self, X)]

    def _rows(self, X):
        X = validate_data(self, X, reset=False)
        return [smiles_of(row) for row in X]


class NumbersRegressor(_Numbers, MolsliceRegressor):
    def fit(self, X, y=None, sample_weight=None):
        return super().fit(self._smiles(X), y, sample_weight=sample_weight)

    def _predictions(self, X, interval=None):
        self._model()  # not fitted
        return super()._predictions(self._rows(X), interval)


class NumbersClassifier(_Numbers, MolsliceClassifier):
    def fit(self, X, y=None, sample_weight=None):
        return super().fit(self._smiles(X), y, sample_weight=sample_weight)

    def _predictions(self, X, interval=None):
        self._model()
        return super()._predictions(self._rows(X), interval)


class NumbersFeaturizer(_Numbers, MolsliceFeaturizer):
    def fit(self, X, y=None):
        return super().fit(self._smiles(X), y)

    def transform(self, X):
        return super().transform(self._rows(X))
