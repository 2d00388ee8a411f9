"""scikit-learn's checks of estimators, on molecules made from rows of numbers.

The estimators say that they take one-dimensional text, so that scikit-learn runs only its checks of names and
parameters on them. `numbers.py` converts rows of numbers to molecules, so that all other checks run as well.
None of them is expected to fail. They fit 10 to 200 rows, so `conftest.py` lowers the least number of rows.
"""

import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from molslice.estimators import MolsliceClassifier, MolsliceFeaturizer, MolsliceRegressor
from tests.estimators.numbers import NumbersClassifier, NumbersFeaturizer, NumbersRegressor

FAST = {"encoder": None, "members": 2, "random_state": 0}


@pytest.mark.parametrize("estimator", [MolsliceRegressor(), MolsliceClassifier(), MolsliceFeaturizer()])
def test_scikit_learn_accepts_the_interface(estimator):
    with pytest.warns(match="Can't test estimator .* which requires input  of type"):
        check_estimator(estimator)


@pytest.mark.slow
@parametrize_with_checks([NumbersRegressor(**FAST), NumbersClassifier(**FAST), NumbersFeaturizer()])
def test_a_check_of_scikit_learn(estimator, check):
    check(estimator)
