"""The distribution of a new value against its definition, the intervals, and a known normal distribution."""

import math
from fractions import Fraction

import numpy as np
import pytest

from molslice.uncertainty.calibration import Calibration, HeldOut
from molslice.uncertainty.conformal import intervals
from molslice.uncertainty.distribution import expected_excess, probability_below


def a_model(num_folds, rows=79, new=5):
    """Return predictions and scales of new rows, and scores and folds of held-out rows."""
    generator = np.random.default_rng(num_folds)
    centers = generator.normal(0, 0.05, (num_folds, new)) + generator.normal(0, 3, new)
    scales = generator.uniform(0.5, 2, (num_folds, new))
    return centers, scales, generator.exponential(1, rows), generator.integers(0, num_folds, rows)


def possible_values(centers, scales, scores, folds, row):
    pairs = [
        (centers[fold][row], score * scales[fold][row]) for score, fold in zip(scores, folds, strict=True)
    ]
    return [center + sign * reach for center, reach in pairs for sign in (-1, 1)]


@pytest.mark.parametrize("num_folds", [1, 3])
@pytest.mark.parametrize("limit", [-2.0, 0.1, 3.0])
def test_it_is_the_distribution_of_the_values_that_the_held_out_rows_stand_for(num_folds, limit):
    model = a_model(num_folds)
    below, excess = probability_below(limit, *model), expected_excess(limit, *model)
    for row in range(5):
        values = possible_values(*model, row)
        count = sum(value < limit for value in values)
        assert below[row] == pytest.approx((count + 1) / (len(values) + 2))
        assert excess[row] == pytest.approx(np.mean([max(value - limit, 0) for value in values]))


@pytest.mark.parametrize("num_folds", [1, 3])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
def test_the_ends_of_an_interval_have_its_tails(num_folds, level):
    centers, scales, scores, folds = a_model(num_folds)  # 80 level is a whole number
    lower, upper = intervals(centers, scales, scores, folds, level)
    tail = float((1 - Fraction(str(level))) / 2)
    hair, step = 1e-9, 1 / 160
    for row in range(5):
        of_row = centers[:, [row]], scales[:, [row]], scores, folds
        outside, inside = (probability_below(lower[row] + by, *of_row)[0] for by in (-hair, hair))
        assert (outside, inside) == pytest.approx((tail, tail + step))
        outside, inside = (1 - probability_below(upper[row] + by, *of_row)[0] for by in (hair, -hair))
        assert (outside, inside) == pytest.approx((tail, tail + step))


def test_of_normal_errors_it_is_the_normal_distribution():
    generator = np.random.default_rng(0)
    predicted = generator.normal(0, 5, 20_000)
    truth = predicted + 2.0 * generator.normal(0, 1, 20_000)
    held_out = HeldOut.of_rows("y", "regression", truth, predicted, np.zeros(20_000, int))
    calibration = Calibration("regression", 1, "rows", (held_out,))
    new = np.array([-1.0, 0.5, 4.0])

    def below(limit):
        return np.array([0.5 * math.erfc(-(limit - center) / 2.0 / math.sqrt(2)) for center in new])

    def computed(lower, upper):
        return calibration.probabilities_between("y", new[None, :, None], None, lower, upper)

    np.testing.assert_allclose(computed(-np.inf, 1.0), below(1.0), atol=0.01)
    np.testing.assert_allclose(computed(1.0, np.inf), 1 - below(1.0), atol=0.01)
    np.testing.assert_allclose(computed(-1.0, 3.0), below(3.0) - below(-1.0), atol=0.01)
    best = truth.max()
    distance = (new - best) / 2.0
    density = np.exp(-(distance**2) / 2) / math.sqrt(2 * math.pi)
    expected = 2.0 * (distance * (1 - below(best)) + density)
    improvements = calibration.expected_improvements("y", new[None, :, None], None, 1)
    np.testing.assert_allclose(improvements, expected, atol=1e-3)
    near = np.array([best + 1.0])[None, :, None]
    distance = 0.5
    expected = 2.0 * (
        distance * 0.5 * math.erfc(-distance / math.sqrt(2)) + math.exp(-0.125) / math.sqrt(2 * math.pi)
    )
    assert calibration.expected_improvements("y", near, None, 1)[0] == pytest.approx(expected, rel=0.01)
    others = np.array([np.nan, best + 1.0, -3.0])
    of_both = calibration.expected_improvements("y", near + 1.0, None, 1, others)
    np.testing.assert_allclose(of_both, calibration.expected_improvements("y", near, None, 1))


def test_limits_of_a_logarithm():
    truth, predicted = np.array([1.0, 20.0, 300.0, 5000.0]), np.array([2.0, 10.0, 330.0, 4000.0])
    held_out = HeldOut.of_rows("y", "regression", truth, predicted, np.zeros(4, int), logarithmic=True)
    plain = HeldOut.of_rows("y", "regression", np.log10(truth), np.log10(predicted), np.zeros(4, int))
    models = np.array([[[7.0], [0.5]]])
    logarithmic, linear = (Calibration("regression", 1, "rows", (one,)) for one in (held_out, plain))
    for lower, upper in ((6.0, np.inf), (-3.0, 6.0), (0.0, np.inf), (0.4, 9.0)):
        ends = [-np.inf if end <= 0 else math.log10(end) for end in (lower, upper)]
        np.testing.assert_allclose(
            logarithmic.probabilities_between("y", models, None, lower, upper),
            linear.probabilities_between("y", np.log10(models), None, *ends),
        )
    np.testing.assert_array_equal(logarithmic.probabilities_between("y", models, None, 0.0, np.inf), 1.0)
    smaller = logarithmic.expected_improvements("y", models, None, -1)
    np.testing.assert_allclose(smaller, linear.expected_improvements("y", np.log10(models), None, -1))
    assert smaller[1] > smaller[0]
