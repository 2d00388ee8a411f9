"""Limits, weights and standard errors of labels, in every learner and in the stack."""

import numpy as np
import pytest

from molslice.learners import LEARNERS, Features, Labels
from molslice.learners.gaussian_process import GaussianProcess
from molslice.learners.similarities import fit_labels, measure, predictive_spread, solve
from molslice.learners.stacking import Stack
from tests.learners.test_learners import draw_features, draw_values

FOLDS = np.arange(90) % 3


def smooth(rows: int = 90, seed: int = 0) -> tuple[Features, np.ndarray]:
    draw = np.random.default_rng(seed)
    points = draw.normal(size=(rows, 3))
    features = Features(points, np.ones((rows, 4), np.uint8))
    return features, points[:, 0] + 0.5 * points[:, 1] ** 2 + 0.1 * draw.normal(size=rows)


def censored(values: np.ndarray, threshold: float) -> Labels:
    known = values <= threshold
    bounds = np.stack([np.minimum(values, threshold), np.where(known, values, np.inf)])
    return Labels(np.where(known, values, np.nan), bounds)


def fit_all(features, labels, folds, name):
    process, unseen, labels = GaussianProcess.fit_and_complete(features, labels, folds, classes=False, seed=0)
    if name == "gaussian_process":
        return process, unseen
    return LEARNERS.find(name).fit(features, labels, folds, classes=False, seed=0)


@pytest.mark.parametrize("name", LEARNERS.names())
def test_limits_are_better_than_no_values(name):
    features, values = smooth(150)
    folds = np.arange(150) % 3
    labels = censored(values, np.quantile(values, 0.7))
    _, unseen = fit_all(features, labels, folds, name)
    exact = ~labels.limited
    _, others = LEARNERS.find(name).fit(
        features[exact], Labels(values[exact]), folds[exact], classes=False, seed=0
    )
    learner, _ = LEARNERS.find(name).fit(
        features[exact], Labels(values[exact]), folds[exact], classes=False, seed=0
    )
    dropped = learner.predict(features).mean(0)
    dropped[exact] = others
    limited = labels.limited
    assert np.abs(unseen - values)[limited].mean() < 0.8 * np.abs(dropped - values)[limited].mean()
    assert (
        labels.nearest(unseen)[limited] - unseen[limited] <= np.abs(dropped - values)[limited] + 1.0
    ).all()


@pytest.mark.parametrize("name", LEARNERS.names())
def test_the_limits_of_a_fold_do_not_change_its_own_predictions(name):
    """What completes the limits of other rows has not seen the fold either."""
    features, values = smooth()
    labels = censored(values, 0.8)
    other = censored(np.where(FOLDS == 1, values + 3.0, values), 0.8)
    assert (other.limited != labels.limited)[FOLDS == 1].any()
    _, unseen = fit_all(features, labels, FOLDS, name)
    _, changed = fit_all(features, other, FOLDS, name)
    np.testing.assert_allclose(changed[FOLDS == 1], unseen[FOLDS == 1], rtol=1e-9, atol=1e-12)
    assert np.abs(changed - unseen)[FOLDS != 1].max() > 1e-3


def test_bounds_that_are_values_change_nothing():
    features, values = smooth()
    labels = Labels(values, np.stack([values, values]))
    _, unseen = GaussianProcess.fit(features, labels, FOLDS, classes=False, seed=0)
    _, plain = GaussianProcess.fit(features, Labels(values), FOLDS, classes=False, seed=0)
    assert np.abs(unseen - plain).max() < 0.05 * values.std()  # the evidence is maximized in more steps


def test_completed_values_are_possible_and_those_of_the_model():
    features, values = smooth()
    threshold = 0.8
    labels = censored(values, threshold)
    _, _, done = GaussianProcess.fit_and_complete(features, labels, FOLDS, classes=False, seed=0)
    assert done.completed is not None
    assert done.spreads is not None
    assert done.completed.shape == (3, 90)
    assert (done.completed[:, labels.limited] >= threshold).all()
    np.testing.assert_array_equal(done.completed[:, ~labels.limited], np.stack([values[~labels.limited]] * 3))
    seen = labels.limited & (FOLDS != 0)
    error = np.abs(done.completed[0] - values)[seen].mean()
    assert error < 0.7 * np.abs(threshold - values)[seen].mean()
    assert (done.spreads > 0.05).all()
    assert (done.spreads < values.std()).all()


@pytest.mark.parametrize("name", LEARNERS.names())
@pytest.mark.parametrize("classes", [False, True])
def test_equal_weights_change_nothing(name, classes):
    features = draw_features()
    values, folds = draw_values(features, classes), np.arange(60) % 3
    _, plain = LEARNERS.find(name).fit(features, Labels(values), folds, classes=classes, seed=0)
    _, weighted = LEARNERS.find(name).fit(
        features, Labels(values, weights=np.ones(60)), folds, classes=classes, seed=0
    )
    np.testing.assert_allclose(weighted, plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", LEARNERS.names())
def test_rows_without_weight_are_hardly_learned(name):
    """Half of the rows have wrong values."""
    features, values = smooth(150)
    folds, wrong = np.arange(150) % 3, np.arange(150) % 2 == 1
    given = np.where(wrong, -values, values)
    weights = np.where(wrong, 1e-3, 1.0)
    _, unseen = LEARNERS.find(name).fit(
        features, Labels(given, weights=weights), folds, classes=False, seed=0
    )
    _, plain = LEARNERS.find(name).fit(features, Labels(given), folds, classes=False, seed=0)
    assert np.abs(unseen - values).mean() < 0.7 * np.abs(plain - values).mean()


@pytest.mark.parametrize("name", LEARNERS.names())
def test_rows_with_a_large_standard_error_are_hardly_learned(name):
    features, values = smooth(150)
    folds, wrong = np.arange(150) % 3, np.arange(150) % 2 == 1
    given = np.where(wrong, -values, values)
    _, unseen = fit_all(features, Labels(given, noise=np.where(wrong, 10.0, 0.01)), folds, name)
    _, plain = LEARNERS.find(name).fit(features, Labels(given), folds, classes=False, seed=0)
    assert np.abs(unseen - values).mean() < 0.7 * np.abs(plain - values).mean()


def test_a_row_of_weight_two_is_two_rows():
    draw = np.random.default_rng(0)
    points = draw.normal(size=(30, 2))
    covariance, values = np.exp(-((points[:, None] - points) ** 2).sum(-1)), draw.normal(size=30)
    twice = np.concatenate([np.arange(30), np.arange(10)])
    measured, _ = measure(Labels(values, weights=np.where(np.arange(30) < 10, 2.0, 1.0)), 0.1)
    noise = measured.shares * 0.1 + measured.extra
    solved = solve(covariance.copy(), noise, measured.values)
    repeated = solve(covariance[np.ix_(twice, twice)], 0.1, values[twice])
    expected = covariance[:, twice] @ repeated
    np.testing.assert_allclose(covariance @ solved, expected, atol=1e-3)  # the jitter is not halved


def test_a_standard_error_is_noise_of_its_row():
    draw = np.random.default_rng(1)
    covariance, values = np.eye(20) + 0.5, draw.normal(size=20)
    errors = draw.random(20) + 0.1
    measured, expected = measure(Labels(values, noise=errors), 0.3)
    solved = solve(covariance.copy(), measured.shares * 0.3 + measured.extra, values)
    system = covariance + np.diag(0.3 + 1e-4 + errors**2)
    np.testing.assert_allclose(system @ solved, values, atol=1e-10)
    np.testing.assert_array_equal(expected, values)


def test_limits_are_conditioned_on_the_other_rows():
    """The order of rows does not matter, and an exact row next to a limit decides it."""
    draw = np.random.default_rng(2)
    points = np.array([0.0, 1.0, 2.0, 3.0, 0.01])
    covariance = np.exp(-0.5 * (points[:, None] - points) ** 2)
    values = np.array([2.0, 0.3, np.nan, 0.1, np.nan])
    bounds = np.stack(
        [np.where(np.isnan(values), [0, 0, 0.5, 0, -1.0], values), np.where(np.isnan(values), np.inf, values)]
    )
    _, expected = measure(Labels(values, bounds), 0.01, covariance.copy())
    assert expected[4] == pytest.approx(2.0, abs=0.1)  # far above its limit, as its neighbor
    assert expected[2] > 0.5
    order = draw.permutation(5)
    _, again = measure(Labels(values, bounds)[order], 0.01, covariance[np.ix_(order, order)].copy())
    np.testing.assert_allclose(again, expected[order], atol=1e-4)


def test_the_spread_is_the_error_for_rows_left_out():
    features, values = smooth(60)
    points = features.descriptors
    kernels = np.stack([np.exp(-0.5 * ((points[:, None] - points) ** 2).sum(-1)), points @ points.T])
    errors = np.where(np.arange(60) % 2, 0.5, 0.1)
    labels, _, _ = Labels(values, noise=errors).standardized()
    weights = fit_labels(kernels, labels, (40, 60))
    covariance = np.einsum("k,kij->ij", weights[:-1], kernels)
    variances = []
    for row in range(60):
        rest = np.delete(np.arange(60), row)
        noise = np.diag(weights[-1] + 1e-4 + labels.noise[rest] ** 2)
        across = covariance[row, rest]
        gain = across @ np.linalg.solve(covariance[np.ix_(rest, rest)] + noise, across)
        variances.append(covariance[row, row] - gain + weights[-1] + 1e-4)
    assert predictive_spread(kernels, weights, labels) == pytest.approx(np.sqrt(np.mean(variances)), rel=1e-8)


def test_trees_are_fitted_to_weights_of_mean_one():
    labels = Labels(
        np.arange(4.0), weights=np.array([1.0, 1.0, 2.0, 4.0]), noise=np.array([0.0, 1.0, 1.0, 3.0])
    )
    ready = Labels(labels.values, None, labels.weights, labels.noise, spreads=np.array([1.0]))
    values, weights = ready.of_model(0, np.array([1, 2, 3]))
    np.testing.assert_array_equal(values, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(weights, np.array([0.5, 1.0, 0.4]) / np.mean([0.5, 1.0, 0.4]))
    with pytest.raises(AssertionError, match="is fitted first"):
        labels.of_model(0, np.arange(4))


def test_the_stack_counts_a_limit_that_is_met_as_right():
    draw = np.random.default_rng(0)
    values = draw.normal(size=400)
    labels = censored(values, 0.0)
    limited = labels.limited
    # "far" is right for exact values, and meets all limits by far; "near" is 0.3 off everywhere
    far = np.where(limited, 9.0, values + 0.05 * draw.normal(size=400))
    stack = Stack.fit({"far": far, "near": values + 0.3}, labels, classes=False)
    assert stack.weights[0] > 0.9
    low = np.where(limited, -9.0, far)
    assert Stack.fit({"far": low, "near": values + 0.3}, labels, classes=False).weights[0] < 0.1


@pytest.mark.parametrize("classes", [False, True])
def test_the_stack_minimizes_the_weighted_error(classes):
    draw = np.random.default_rng(0)
    values = draw.normal(size=300)
    values = (values > 0).astype(float) if classes else values
    first = np.arange(300) < 150
    scores = {
        "a": np.where(first, values, draw.normal(size=300)),
        "b": np.where(first, draw.normal(size=300), values),
    }
    weights = np.where(first, 1.0, 1e-3)
    stack = Stack.fit(scores, Labels(values, weights=weights), classes=classes)
    assert stack.weights[0] > 0.9
    doubled = np.concatenate([np.arange(300), np.flatnonzero(first)])
    twice = {name: numbers[doubled] for name, numbers in scores.items()}
    expected = Stack.fit(twice, Labels(values[doubled]), classes=False).weights
    weighted = Stack.fit(scores, Labels(values, weights=1.0 + first), classes=False)
    assert weighted.weights == pytest.approx(expected, abs=0.01)
