"""The unit in which learners are fitted."""

import numpy as np
import pytest

from molslice.learners import LEARNERS, Features, Labels
from molslice.learners.standardizing import standardize


@pytest.mark.parametrize(("factor", "offset"), [(1e6, 0.0), (3e-7, 0.0), (1.0, 6.0), (-7.0, 0.3)])
def test_standardized_values_are_equal_in_every_unit(factor, offset):
    values = np.random.default_rng(0).gamma(2.0, size=300)
    expected, mean, spread = standardize(values)
    found, found_mean, found_spread = standardize(values * factor + offset)
    np.testing.assert_array_equal(found, np.sign(factor) * expected)
    assert found_mean == pytest.approx(mean * factor + offset)
    assert found_spread == pytest.approx(spread * abs(factor))
    np.testing.assert_allclose(expected * spread + mean, values, atol=1e-8)


def test_equal_values_have_no_spread():
    standardized, mean, spread = standardize(np.full(5, 7.0))
    assert (standardized.tolist(), mean, spread) == ([0.0] * 5, 7.0, 1.0)


@pytest.mark.parametrize("name", LEARNERS.names())
def test_a_learner_does_not_depend_on_the_unit(name, few_trees):
    """Integers have many splits that are equally good; rounding must not choose between them."""
    draw = np.random.default_rng(0)
    counts = draw.integers(0, 3, (120, 64)).astype(np.uint8)
    features = Features(draw.integers(0, 4, (120, 6)).astype(float), counts)
    values = counts[:, :8].sum(1) + draw.integers(0, 3, 120).astype(float)
    folds, learner = np.arange(120) % 3, LEARNERS.find(name)
    for factor, offset in ((1e6, 0.0), (1e-9, 0.0), (0.3, 5.0)):
        expected, unseen = learner.fit(features, Labels(values), folds, classes=False, seed=0)
        other, other_unseen = learner.fit(
            features, Labels(values * factor + offset), folds, classes=False, seed=0
        )
        np.testing.assert_allclose((other_unseen - offset) / factor, unseen, rtol=1e-9)
        np.testing.assert_allclose(
            (other.predict(features) - offset) / factor, expected.predict(features), rtol=1e-9
        )
