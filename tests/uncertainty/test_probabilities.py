"""Calibrated probabilities against a direct search."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from molslice.uncertainty.probabilities import calibrate, fit_platt, log_odds


def draw(generator, count, slope, intercept):
    """Return reported probabilities and classes whose true log-odds are slope * reported + intercept."""
    reported = 1 / (1 + np.exp(-generator.normal(0, 2, count)))
    true = calibrate(reported, slope, intercept)
    return reported, (generator.random(count) < true).astype(float)


@pytest.mark.parametrize("seed", range(5))
def test_platt_minimizes_the_cross_entropy_of_the_smoothed_labels(seed):
    chances, labels = draw(np.random.default_rng(seed), 60, 0.5, 0.7)
    positive = labels.sum()
    wanted = np.where(labels > 0, (positive + 1) / (positive + 2), 1 / (60 - positive + 2))

    def loss(line):
        odds = line[0] * np.log(chances / (1 - chances)) + line[1]
        return -np.mean(wanted * -np.log1p(np.exp(-odds)) + (1 - wanted) * -np.log1p(np.exp(odds)))

    slow = minimize(
        loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15, "maxiter": 5000}
    )
    np.testing.assert_allclose(fit_platt(chances, labels), slow.x, rtol=1e-5)


def test_platt_finds_the_line_that_the_classes_were_drawn_with():
    chances, labels = draw(np.random.default_rng(0), 40_000, 0.4, -1.0)
    assert fit_platt(chances, labels) == pytest.approx((0.4, -1.0), abs=0.05)
    model = LogisticRegression(C=1e9).fit(log_odds(chances)[:, None], labels)
    assert fit_platt(chances, labels) == pytest.approx((model.coef_[0, 0], model.intercept_[0]), abs=1e-3)


@pytest.mark.parametrize("chances", [[0.9, 0.8, 0.2, 0.1], [0.5] * 4, [1.0, 1.0, 0.0, 0.0]])
def test_separable_and_constant_probabilities_stay_finite_and_in_order(chances):
    found = calibrate(np.array(chances), *fit_platt(np.array(chances), np.array([1, 1, 0, 0])))
    assert ((found > 0) & (found < 1)).all()
    assert (np.diff(found) <= 0).all()


def test_probabilities_in_the_wrong_order_become_the_share_of_the_class():
    chances = np.linspace(0.9, 0.1, 40)
    labels = np.repeat([0.0, 1.0], [30, 10])
    found = calibrate(chances, *fit_platt(chances, labels))
    assert np.ptp(found) < 0.01
    assert found.mean() == pytest.approx(0.26, abs=0.02)
