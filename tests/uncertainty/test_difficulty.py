"""The expected error of a row: what it is fitted to, and the coverage of intervals that follow it."""

import numpy as np
import pytest
from scipy.optimize import minimize

from molslice.types import MolsliceError
from molslice.uncertainty.calibration import Calibration, HeldOut
from molslice.uncertainty.difficulty import RIDGE, ErrorScale, _fit_line
from molslice.uncertainty.scores import rank_correlation

FOLDS = 4


def draw(count=400, seed=0):
    """Errors that grow with the square of one indicator, and not with the others."""
    generator = np.random.default_rng(seed)
    indicators = {name: generator.uniform(0.1, 3.0, count) for name in ("apart", "noise", "easier")}
    errors = np.abs(generator.laplace(0, 0.5 * indicators["apart"] ** 2 / indicators["easier"]))
    return indicators, errors, np.arange(count) % FOLDS


def by_fold(indicators):
    return {name: np.broadcast_to(values, (FOLDS, len(values))) for name, values in indicators.items()}


def test_the_line_minimizes_the_likelihood_and_the_ridge():
    generator = np.random.default_rng(0)
    columns = np.stack([np.ones(30), generator.standard_normal(30)], axis=1)
    errors = 7.0 * np.exp(columns[:, 1]) * generator.exponential(size=30)

    def loss(line):
        logs = columns @ line
        return (logs + errors * np.exp(-logs)).sum() + 0.5 * RIDGE * line[1] ** 2

    expected = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).x
    np.testing.assert_allclose(_fit_line(columns, errors), expected, atol=1e-3)
    assert 0.3 < expected[1] < 0.95  # drawn to zero


def test_the_expected_error_grows_with_the_signs_that_tell():
    indicators, errors, folds = draw(4_000)
    scale, expected = ErrorScale.fit(indicators, errors, folds)
    assert rank_correlation(errors, expected) > 0.5
    assert expected.mean() == pytest.approx(errors.mean(), rel=0.1)
    slopes = np.array(scale.lines)[:, 1:]
    assert (slopes[:, 0] > 10 * slopes[:, 1]).all()
    assert (slopes[:, 2] == 0).all()  # an indicator never makes an error smaller
    # exp(2 log(x + 0.1 mean)): a row with twice the indicator has about four times the error
    pair = {name: np.array([[1.0, 2.0]] * FOLDS) for name in indicators}
    np.testing.assert_allclose(scale.expect(pair)[:, 1] / scale.expect(pair)[:, 0], 4.0, rtol=0.2)


def test_a_scale_of_any_unit_is_read_back():
    indicators, errors, folds = draw()
    for unit in (1e-12, 1.0, 1e9, 1e30):
        scale, _ = ErrorScale.fit(
            {name: unit * each for name, each in indicators.items()}, unit * errors, folds
        )
        assert ErrorScale.from_mapping(scale.to_mapping()) == scale


def test_the_expected_error_of_a_row_does_not_depend_on_its_fold():
    indicators, errors, folds = draw()
    scale, expected = ErrorScale.fit(indicators, errors, folds)
    other = np.where(folds == 1, errors * 7 + 1, errors)
    _, changed = ErrorScale.fit(indicators, other, folds)
    np.testing.assert_array_equal(changed[folds == 1], expected[folds == 1])
    assert np.abs(changed - expected)[folds != 1].min() > 0
    np.testing.assert_allclose(scale.expect(by_fold(indicators))[folds, np.arange(len(folds))], expected)


def test_signs_that_do_not_vary_are_left_out():
    indicators, errors, folds = draw()
    flat = {**indicators, "zero": np.zeros(len(errors)), "one": np.ones(len(errors))}
    assert ErrorScale.fit(flat, errors, folds)[0] == ErrorScale.fit(indicators, errors, folds)[0]
    scale, expected = ErrorScale.fit({"zero": flat["zero"]}, errors, folds)
    assert scale.names == ()
    for fold in range(FOLDS):
        np.testing.assert_allclose(expected[folds == fold], errors[folds != fold].mean(), rtol=1e-4)
    assert scale.expect({"zero": np.zeros((FOLDS, 5))}).shape == (FOLDS, 5)


def test_a_perfect_model_and_a_strange_molecule_have_positive_finite_errors():
    indicators, errors, folds = draw()
    _, expected = ErrorScale.fit(indicators, np.zeros_like(errors), folds)
    np.testing.assert_array_equal(expected, 1.0)
    scale, expected = ErrorScale.fit(indicators, errors, folds)
    strange = scale.expect({name: np.array([[0.0, 1e12]] * FOLDS) for name in indicators})
    assert np.isfinite(strange).all()
    assert (strange > 0).all()
    assert strange.max() < 20 * expected.max()


@pytest.mark.parametrize(("count", "most", "width"), [(40, 0.95, 1.02), (300, 0.92, 0.95)])
def test_intervals_that_follow_the_expected_error_cover_as_often_as_stated(count, most, width):
    """Models of folds that have not seen a row, and new rows from the same distribution."""
    covered, widths, ranks = [], [], []
    for seed in range(40):
        generator = np.random.default_rng(seed)
        x = generator.standard_normal((count + 200, 3))
        noise = np.exp(x[:, 1])
        y = x @ [1.0, 0.5, -1.0] + noise * generator.standard_normal(len(x))
        folds = generator.permutation(np.arange(count) % 5)
        predicted = np.empty((5, len(x)))
        for fold in range(5):
            own = np.flatnonzero(folds != fold)
            predicted[fold] = x @ np.linalg.lstsq(x[own], y[own], rcond=None)[0]
        held, truth = predicted[folds, np.arange(count)], y[:count]
        indicators = {"noisy": noise * generator.uniform(0.5, 2, len(x)), "noise": generator.random(len(x))}
        scale, expected = ErrorScale.fit(
            {name: values[:count] for name, values in indicators.items()}, np.abs(truth - held), folds
        )
        new = {name: np.broadcast_to(values[count:], (5, 200)) for name, values in indicators.items()}
        rows = HeldOut.of_rows("y", "regression", truth, held, folds, scale=expected)
        calibration = Calibration("regression", 5, "made-up rows", (rows,))
        lower, upper = calibration.intervals(predicted[:, count:, None], scale.expect(new)[:, :, None], 0.9)
        inside = (lower[:, 0] <= y[count:]) & (y[count:] <= upper[:, 0])
        constant = Calibration("regression", 5, "", (HeldOut.of_rows("y", "regression", truth, held, folds),))
        low, high = constant.intervals(predicted[:, count:, None], None, 0.9)
        covered.append(inside.mean())
        widths.append((upper - lower).mean() / (high - low).mean())
        error = np.abs(y[count:] - predicted[:, count:].mean(0))
        ranks.append(rank_correlation(error, (upper - lower)[:, 0]))
    # a little above the level for few rows and several folds
    assert 0.89 < np.mean(covered) < most
    assert np.mean(widths) < width
    assert np.mean(ranks) > 0.35


def test_a_scale_reads_back_as_it_was_written():
    scale, _ = ErrorScale.fit(*draw())
    assert ErrorScale.from_mapping(scale.to_mapping()) == scale


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["apart", "apart", "noise"]},
        {"names": ["apart"]},
        {"names": None},
        {"offsets": [0.1, 0.1, 0.0]},
        {"spreads": [1.0, 1.0, float("nan")]},
        {"centers": [1.0, 1.0, "x"]},
        {"lines": []},
        {"lines": [[1.0]]},
        {"lines": [[1.0, 2.0, 3.0, float("inf")]]},
    ],
)
def test_a_damaged_scale_is_refused(change):
    scale, _ = ErrorScale.fit(*draw())
    with pytest.raises(MolsliceError, match="invalid scale of errors"):
        ErrorScale.from_mapping({**scale.to_mapping(), **change})
