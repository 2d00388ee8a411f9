"""Weights of learners against a search over all weights, and calibrated probabilities."""

import numpy as np
import pytest

from molslice.learners.labels import Labels
from molslice.learners.stacking import Stack
from molslice.types import MolsliceError


def test_weights_are_those_of_a_search_over_the_simplex():
    draw = np.random.default_rng(0)
    values = draw.normal(size=400) * 5.0
    predictions = {"good": values + draw.normal(size=400), "bad": values + 4.0 * draw.normal(size=400)}
    stack = Stack.fit(predictions, Labels(values), classes=False)

    def loss(weight):
        error = weight * predictions["good"] + (1 - weight) * predictions["bad"] - values
        even = (weight - 0.5) ** 2 + (0.5 - weight) ** 2
        return np.mean(error**2) / np.var(values) + 0.05**2 * even

    best = min(np.linspace(0, 1, 1001), key=loss)
    assert stack.weights[0] == pytest.approx(best, abs=2e-3)
    assert sum(stack.weights) == pytest.approx(1.0)


def test_weights_do_not_depend_on_the_unit():
    draw = np.random.default_rng(0)
    values = draw.normal(size=100)
    predictions = {"good": values + 0.1 * draw.normal(size=100), "bad": draw.normal(size=100)}
    expected = Stack.fit(predictions, Labels(values), classes=False).weights
    for unit in (1e-30, 1e-12, 1e12, 1e30):
        scaled = {name: part * unit for name, part in predictions.items()}
        assert Stack.fit(scaled, Labels(values * unit), classes=False).weights == pytest.approx(expected)


def test_equal_learners_get_equal_weights():
    values = np.random.default_rng(0).normal(size=50)
    stack = Stack.fit({"a": values + 1.0, "b": values + 1.0}, Labels(values), classes=False)
    assert stack.weights == pytest.approx((0.5, 0.5), abs=1e-6)


def test_probabilities_are_calibrated():
    draw = np.random.default_rng(0)
    odds = draw.normal(size=20_000)
    values = (draw.random(20_000) < 1 / (1 + np.exp(-odds))).astype(float)
    stack = Stack.fit({"a": 7.0 * odds + 3.0, "b": 0.1 * odds}, Labels(values), classes=True)
    combined = stack.combine({"a": 7.0 * odds + 3.0, "b": 0.1 * odds})
    np.testing.assert_allclose(combined, 1 / (1 + np.exp(-odds)), atol=0.02)


def test_a_combination_is_the_mean_of_probabilities():
    """Not the probability of the mean log-odds."""
    stack = Stack(("a", "b"), (0.25, 0.75), ((1.0, 0.0), (2.0, 1.0)))
    combined = stack.combine({"a": np.array([-3.0, 2.0]), "b": np.array([4.0, -5.0])})
    probabilities = 1 / (1 + np.exp([[3.0, -2.0], [-9.0, 9.0]]))
    np.testing.assert_allclose(combined, [0.25, 0.75] @ probabilities)


def test_few_rows_leave_room_for_the_other_class():
    """Two groups, all of one class each: Platt's targets are (k + 1) / (k + 2) and 1 / (k + 2)."""
    values = np.array([0.0] * 5 + [1.0] * 3)
    stack = Stack.fit({"a": 2.0 * values - 7.0}, Labels(values), classes=True)
    np.testing.assert_allclose(stack.combine({"a": np.array([-7.0, -5.0])}), [1 / 7, 4 / 5], atol=1e-4)


def test_weights_of_classes_are_those_of_probabilities():
    """Both learners are calibrated first, so that the size of their scores has no influence."""
    draw = np.random.default_rng(0)
    values = (draw.random(400) < 0.4).astype(float)
    scores = {"good": values + 0.4 * draw.normal(size=400), "bad": values + 1.5 * draw.normal(size=400)}
    expected = Stack.fit(scores, Labels(values), classes=True).weights
    assert expected[0] > 0.7
    for factors in ((100.0, 0.01), (0.01, 100.0)):
        scaled = {name: part * factor for (name, part), factor in zip(scores.items(), factors, strict=True)}
        assert Stack.fit(scaled, Labels(values), classes=True).weights == pytest.approx(expected, abs=1e-3)


def test_a_perfect_separation_stays_finite():
    values = np.array([0.0] * 5 + [1.0] * 5)
    stack = Stack.fit({"a": values * 1e6}, Labels(values), classes=True)
    combined = stack.combine({"a": np.array([-1e9, 0.0, 1e9])})
    assert np.isfinite(combined).all()
    assert combined[0] <= combined[1] < 0.5 < combined[2] <= 1.0


def test_a_learner_that_ranks_the_wrong_way_is_not_turned_around():
    values = np.arange(20) % 2.0
    ((slope, _),) = Stack.fit({"a": -values}, Labels(values), classes=True).calibration
    assert slope > 0


def test_a_mapping_rebuilds_the_stack():
    values = np.arange(30) % 2.0
    stack = Stack.fit({"a": values + 0.1, "b": -values}, Labels(values), classes=True)
    assert Stack.from_mapping(stack.to_mapping()) == stack
    logs = Stack.fit({"a": values + 0.1, "b": -values}, Labels(values), classes=False, logarithmic=True)
    assert Stack.from_mapping(logs.to_mapping()) == logs
    older = {key: value for key, value in stack.to_mapping().items() if key != "logarithmic"}
    assert Stack.from_mapping(older) == stack


def test_logarithms_are_combined_before_the_power():
    logs = np.random.default_rng(0).normal(size=40)
    predictions = {"a": logs + 0.1, "b": logs - 0.3}
    stack = Stack.fit(predictions, Labels(logs), classes=False, logarithmic=True)
    assert stack.weights == Stack.fit(predictions, Labels(logs), classes=False).weights
    mean = stack.weights[0] * predictions["a"] + stack.weights[1] * predictions["b"]
    np.testing.assert_allclose(stack.combine(predictions), 10.0**mean, rtol=1e-12)
    np.testing.assert_allclose(stack.disagreement(predictions), 0.2, rtol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [0.5]},
        {"weights": [2.0, -1.0]},
        {"weights": [0.5, float("nan")]},
        {"calibration": [[1.0, 0.0]]},
        {"logarithmic": 1},
        {"calibration": [[1.0, 0.0], [1.0, 0.0]], "logarithmic": True},
    ],
)
def test_invalid_mappings_are_refused(change):
    mapping = {"names": ["a", "b"], "weights": [0.5, 0.5], "calibration": []}
    with pytest.raises(MolsliceError, match="invalid weights of learners"):
        Stack.from_mapping({**mapping, **change})
