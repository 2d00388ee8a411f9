"""The baselines that a fit is measured beside."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from molslice.fitting.learner_fits import BASELINES
from molslice.learners import Features
from molslice.learners.boosting import splittable_columns
from molslice.learners.standardizing import standardize


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("classes", [False, True])
def test_a_missing_descriptor_is_not_a_zero(name, classes):
    """The target is 1 where a descriptor is missing; the other values of this descriptor are -1, 0 and 1."""
    draw = np.random.default_rng(0)
    missing = draw.random(200) < 0.3
    descriptors = draw.normal(size=(200, 3))
    descriptors[:, 0] = np.where(missing, np.nan, draw.choice([-1.0, 0.0, 1.0], 200))
    descriptors[:150, 1] = np.nan  # without a value in the training rows
    features = Features(descriptors, np.zeros((200, 8), np.uint8))
    rows, test = np.arange(150), np.arange(150, 200)
    found = BASELINES[name](features, rows, test, missing.astype(float), classes, 0)
    np.testing.assert_allclose(found, missing[test], atol=0.15)


@pytest.mark.parametrize("name", BASELINES)
def test_huge_descriptors_are_limited(name):
    draw = np.random.default_rng(0)
    descriptors = draw.normal(size=(120, 2))
    descriptors[:, 1] = np.where(descriptors[:, 0] > 0, np.inf, 1e200)
    found = BASELINES[name](
        Features(descriptors, np.zeros((120, 8), np.uint8)),
        np.arange(100),
        np.arange(100, 120),
        descriptors[:, 0],
        False,
        0,
    )
    assert np.abs(found - descriptors[100:, 0]).mean() < 0.3


@pytest.mark.parametrize("classes", [False, True])
def test_predictions_of_the_forest_do_not_depend_on_threads(classes):
    draw = np.random.default_rng(0)
    descriptors = draw.integers(0, 3, (300, 3)).astype(float)  # leaves are means of several rows
    features = Features(descriptors, np.zeros((300, 8), np.uint8))
    values = draw.normal(size=300)
    values = (values > 0).astype(float) if classes else values
    rows, test = np.arange(100), np.arange(100, 300)
    predictions = {
        BASELINES["random forest"](features, rows, test, values, classes, 0).tobytes() for _ in range(4)
    }
    assert len(predictions) == 1


def test_a_column_is_splittable_if_a_leaf_differs_from_the_rest():
    """A leaf has 20 rows or more."""
    matrix = np.full((100, 4), 7.0)
    matrix[:19, 0] = matrix[:20, 1] = 9.0
    matrix[:20, 2] = np.nan
    np.testing.assert_array_equal(splittable_columns(matrix), [1, 2])
    np.testing.assert_array_equal(splittable_columns(matrix[:, [0, 3]]), [0])  # none, but a model needs one


@pytest.mark.parametrize("classes", [False, True])
def test_boosting_without_rare_columns_is_boosting(classes):
    """The columns that scikit-learn is given are those that a tree can split; more give the same trees."""
    draw = np.random.default_rng(0)
    counts = draw.random((260, 40)) < np.linspace(0.0, 1.0, 40)
    descriptors = np.where(draw.random((260, 3)) < 0.05, np.nan, draw.normal(size=(260, 3)))
    descriptors[5:, 2] = 1.0  # hardly varies
    features = Features(descriptors, counts.astype(np.uint8))
    values = np.nan_to_num(descriptors[:, 0]) + counts[:, 10:30].sum(1)
    values = (values > np.median(values)).astype(float) if classes else values
    rows, test = np.arange(200), np.arange(200, 260)
    found = BASELINES["boosting"](features, rows, test, values, classes, 0)
    if classes:
        model = HistGradientBoostingClassifier(random_state=0).fit(features.matrix()[rows], values[rows])
        np.testing.assert_array_equal(found, model.predict_proba(features.matrix()[test])[:, 1])
        return
    standardized, mean, spread = standardize(values[rows])
    model = HistGradientBoostingRegressor(random_state=0).fit(features.matrix()[rows], standardized)
    np.testing.assert_array_equal(found, model.predict(features.matrix()[test]) * spread + mean)
