"""The standard errors of the errors of a fit."""

import numpy as np
import pytest

from molslice.fitting.standard_errors import cross_validation_factor, measure_errors
from molslice.tasks.standard_errors import MeasuredMetric


@pytest.mark.parametrize("truth", [[1.0, 1.0], [np.nan, np.nan]])
def test_an_area_of_one_class_has_no_standard_error(truth):
    undefined = MeasuredMetric.of("classification", np.zeros(2), np.array(truth), np.arange(2))
    assert np.isnan([undefined.value, undefined.standard_error]).all()
    errors = measure_errors(undefined, 5, {"fit": undefined})["standard_errors"]
    assert errors == {"cross_validated": None, "test": {"fit": None}}


def test_the_spread_of_many_rows_is_the_least_for_a_few_held_out_rows():
    many = MeasuredMetric(1.0, 0.1, 400.0)
    calm, wild = MeasuredMetric(0.6, 0.2, 25.0), MeasuredMetric(1.9, 0.9, 25.0)
    described = measure_errors(many, 5, {"fit": calm, "forest": MeasuredMetric(0.7, 0.3, 25.0)})
    assert described["cross_validated"] == 1.0
    assert described["test"] == {"fit": 0.6, "forest": 0.7}
    errors = described["standard_errors"]
    assert errors["cross_validated"] == pytest.approx(0.15)  # times 1.5 for five folds
    assert errors["test"] == pytest.approx({"fit": 0.4, "forest": 0.4})  # 0.1 * sqrt(400 / 25)
    errors = measure_errors(many, 5, {"fit": wild, "forest": calm})["standard_errors"]
    assert errors["test"] == pytest.approx({"fit": 0.9, "forest": 0.4})


def test_nearly_equal_held_out_errors_do_not_change_the_standard_errors_of_other_models():
    draw, groups = np.random.default_rng(0), np.arange(12) // 3
    many = MeasuredMetric.of("regression", draw.normal(size=300), np.zeros(300), np.arange(300) // 3)
    alike = MeasuredMetric.of("regression", 0.5 + 1e-6 * draw.normal(size=12), np.zeros(12), groups)
    forest = MeasuredMetric.of("regression", np.repeat([0.1, 0.4, 0.9, 1.6], 3), np.zeros(12), groups)
    errors = measure_errors(many, 5, {"fit": alike, "forest": forest})["standard_errors"]["test"]
    assert errors["forest"] == pytest.approx(np.std([0.1, 0.4, 0.9, 1.6], ddof=1) / 2)
    assert errors["fit"] == pytest.approx(many.standard_error * 5)  # 25 times the rows


def test_one_held_out_compound_has_the_spread_of_the_others():
    one = MeasuredMetric.of("regression", np.array([1.0]), np.array([0.0]), np.zeros(1))
    errors = measure_errors(MeasuredMetric(1.0, 0.1, 400.0), 5, {"fit": one, "forest": one})[
        "standard_errors"
    ]
    assert errors["test"] == pytest.approx({"fit": 2.0, "forest": 2.0})


@pytest.mark.parametrize(("folds", "factor"), [(2, 3.0), (5, 2.25), (20, 1.0 + 20 / 19)])
def test_folds_share_training_rows(folds, factor):
    assert cross_validation_factor(folds) ** 2 == pytest.approx(factor)


def test_deviations_from_the_true_error_are_as_large_as_stated():
    """Errors with heavy tails and few rows: the plain standard error is too small, the stated one is not."""
    draw = np.random.default_rng(1)
    true_error = np.abs(draw.standard_t(3, 1_000_000)).mean()
    plain, stated = [], []
    for _ in range(2_000):
        noise = draw.standard_t(3, 200)
        parts = [
            MeasuredMetric.of("regression", noise[rows], np.zeros(len(noise[rows])), np.arange(200)[rows])
            for rows in (slice(20, None), slice(20))
        ]
        error = measure_errors(parts[0], 5, {"fit": parts[1]})["standard_errors"]["test"]["fit"]
        plain.append((parts[1].value - true_error) / parts[1].standard_error)
        stated.append((parts[1].value - true_error) / error)
    assert np.std(plain) > 1.2
    assert 0.75 < np.std(stated) < 1.1
