"""scikit-learn's checks of estimators, on molecules made from rows of numbers.

The estimators say that they take one-dimensional text, so that scikit-learn runs only its checks of names and
parameters on them. `numbers.py` converts rows of numbers to molecules, so that all other checks run as well.
Some are expected to fail, for the reasons below. They fit 10 to 200 rows, so `conftest.py` lowers the least
number of rows.
"""

import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from molslice.estimators import MolsliceClassifier, MolsliceFeaturizer, MolsliceRegressor
from tests.estimators.numbers import NumbersClassifier, NumbersFeaturizer, NumbersRegressor

FAST = {"encoder": None, "members": 2, "random_state": 0}
OF_FEATURIZER = {
    "check_methods_subset_invariance": "float32 embeddings differ by rounding, up to 1e-6, between batches; "
    "the check allows 1e-7"
}
FOUR_MOLECULES = "it fits four different molecules"
OF_FITS = {
    "check_sample_weights_shape": FOUR_MOLECULES,
    "check_sample_weights_not_overwritten": FOUR_MOLECULES,
    "check_sample_weight_equivalence_on_dense_data": "repeated rows of a molecule are averaged",
    "check_class_weight_classifiers": "class_weight is balanced or None; it gives a dictionary",
}


@pytest.mark.parametrize("estimator", [MolsliceRegressor(), MolsliceClassifier(), MolsliceFeaturizer()])
def test_scikit_learn_accepts_the_interface(estimator):
    with pytest.warns(match="Can't test estimator .* which requires input  of type"):
        check_estimator(estimator)


@pytest.mark.exhaustive
@parametrize_with_checks(
    [NumbersRegressor(**FAST), NumbersClassifier(**FAST), NumbersFeaturizer()],
    expected_failed_checks=lambda estimator: (
        OF_FEATURIZER if isinstance(estimator, NumbersFeaturizer) else OF_FITS
    ),
)
def test_a_check_of_scikit_learn(estimator, check):
    check(estimator)
