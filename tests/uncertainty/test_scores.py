"""Scores of uncertainties against scipy and against numeric integration."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import brier_score_loss

from molslice.uncertainty.scores import (
    brier_score,
    calibration_error,
    class_calibration_errors,
    miscalibration_area,
    rank_correlation,
)


@pytest.mark.parametrize("seed", range(5))
def test_rank_correlation_is_spearmans(seed):
    generator = np.random.default_rng(seed)
    first, second = generator.integers(0, 8, 50).astype(float), generator.standard_normal(50)
    second += 0.2 * first
    assert rank_correlation(first, second) == pytest.approx(spearmanr(first, second).statistic, abs=1e-12)
    first[3], second[7] = np.nan, np.inf
    known = np.isfinite(first) & np.isfinite(second)
    expected = spearmanr(first[known], second[known]).statistic
    assert rank_correlation(first, second) == pytest.approx(expected, abs=1e-12)


def test_rank_correlation_with_a_constant_is_undefined():
    assert np.isnan(rank_correlation(np.ones(4), np.arange(4.0)))
    assert np.isnan(rank_correlation(np.ones(0), np.ones(0)))


@pytest.mark.parametrize("seed", range(5))
def test_miscalibration_area_is_the_integral_of_the_gap(seed):
    generator = np.random.default_rng(seed)
    levels, observed = np.linspace(0.1, 0.9, 9), np.sort(generator.random(9))
    grid = np.linspace(0, 1, 2_000_001)
    slow = np.abs(np.interp(grid, [0, *levels, 1], [0, *observed, 1]) - grid).mean()
    assert miscalibration_area(levels, observed) == pytest.approx(slow, abs=1e-6)


def test_miscalibration_area_of_extremes():
    levels = np.linspace(0.05, 0.95, 19)
    assert miscalibration_area(levels, levels) == 0.0
    assert miscalibration_area([1e-9, 1 - 1e-9], [1.0, 1.0]) == pytest.approx(0.5)
    assert np.isnan(miscalibration_area([0.5], [np.nan]))


def test_calibration_error_is_the_mean_gap_of_the_bins():
    chances = np.array([0.1, 0.2, 0.6, 0.9, 0.3])
    labels = np.array([0.0, 1.0, 1.0, 1.0, np.nan])
    # two bins of two rows: |0.15 - 0.5| and |0.75 - 1|
    assert calibration_error(chances, labels, bins=2) == pytest.approx((0.35 + 0.25) / 2)
    assert np.isnan(calibration_error(chances, np.full(5, np.nan)))


def test_calibration_error_does_not_depend_on_the_order_of_rows():
    generator = np.random.default_rng(0)
    chances = generator.random(200)
    labels = (generator.random(200) < chances**2).astype(float)
    expected = calibration_error(np.sort(chances), labels[np.argsort(chances)])
    assert expected == pytest.approx(
        np.mean(
            [abs(chances[rows].mean() - labels[rows].mean()) for rows in np.argsort(chances).reshape(10, 20)]
        )
    )
    assert calibration_error(chances, labels) == pytest.approx(expected)
    # all rows of a bin have the probability of the other half: unsorted bins would hide it
    opposed = np.tile([0.1, 0.9], 10)
    assert calibration_error(opposed, 1 - np.round(opposed), bins=2) == pytest.approx(0.9)
    assert calibration_error(np.array([0.2, 0.4, 0.9]), np.array([0.0, 1.0, 1.0]), bins=2) == pytest.approx(
        (2 * 0.2 + 0.1) / 3  # bins of two rows and of one
    )


@pytest.mark.parametrize("count", [2, 3])
def test_errors_of_the_probabilities_of_classes(count):
    generator = np.random.default_rng(0)
    probabilities, labels = generator.dirichlet(np.ones(count), 97), generator.integers(0, count, 97)
    errors = [calibration_error(probabilities[:, label], labels == label) for label in range(count)]
    assert errors[0] != errors[1]  # 97 rows have larger bins at one end
    assert class_calibration_errors(probabilities, labels) == ([errors[1]] * 2 if count == 2 else errors)
    scores = [brier_score_loss(labels == label, probabilities[:, label]) for label in range(count)]
    expected = scores[1] if count == 2 else sum(scores)
    assert brier_score(probabilities, labels) == pytest.approx(expected, rel=1e-12)
    nothing = (
        brier_score(probabilities[:0], labels[:0]),
        *class_calibration_errors(probabilities[:0], labels[:0]),
    )
    assert np.isnan(nothing).all()
