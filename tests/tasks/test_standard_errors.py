"""The standard errors of metrics."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from molslice.tasks.several_classes import SeveralClasses
from molslice.tasks.standard_errors import MeasuredMetric


def draw_numbers(draw, count):
    truth = draw.normal(size=count)
    return truth + draw.normal(size=count), truth


def draw_classes(draw, count):
    truth = (draw.random(count) < 0.4).astype(float)
    return truth + 1.2 * draw.normal(size=count), truth


@pytest.mark.parametrize(
    ("kind", "draw_sample"), [("regression", draw_numbers), ("classification", draw_classes)]
)
def test_the_standard_error_is_the_deviation_over_samples(kind, draw_sample):
    draw = np.random.default_rng(0)
    samples = [MeasuredMetric.of(kind, *draw_sample(draw, 200), np.arange(200)) for _ in range(600)]
    deviation = np.std([each.value for each in samples])
    assert np.mean([each.standard_error for each in samples]) == pytest.approx(deviation, rel=0.08)


@pytest.mark.parametrize(
    ("kind", "draw_sample"), [("regression", draw_numbers), ("classification", draw_classes)]
)
def test_equal_rows_of_one_group_count_once(kind, draw_sample):
    predicted, truth = draw_sample(np.random.default_rng(0), 60)
    once = MeasuredMetric.of(kind, predicted, truth, np.arange(60))
    thrice = MeasuredMetric.of(kind, *(np.repeat(each, 3) for each in (predicted, truth, np.arange(60))))
    assert thrice.value == pytest.approx(once.value)
    assert thrice.standard_error == pytest.approx(once.standard_error)
    alone = MeasuredMetric.of(kind, *(np.repeat(each, 3) for each in (predicted, truth)), np.arange(180))
    assert alone.standard_error < 0.6 * once.standard_error


def test_the_standard_error_of_a_mean_absolute_error():
    measured = MeasuredMetric.of(
        "regression", np.array([1.0, 3.0, 9.0, 0.0]), np.array([0, 0, np.nan, 0]), np.arange(4)
    )
    assert measured.value == pytest.approx(4 / 3)
    assert measured.standard_error == pytest.approx(np.std([1.0, 3.0, 0.0], ddof=1) / np.sqrt(3))
    assert measured.rows == 3


def test_ties_count_as_half_in_the_standard_error_of_an_area():
    truth = np.array([1.0, 1.0, 0.0, 0.0, 0.0])
    measured = MeasuredMetric.of("classification", np.array([2.0, 1.0, 1.0, 0.0, 0.0]), truth, np.arange(5))
    positive, negative = np.array([1.0, 2.5 / 3]), np.array([1.0, 1.0, 0.75])
    assert measured.value == pytest.approx(positive.mean())
    deviations = np.concatenate([(positive - positive.mean()) / 2, (negative - negative.mean()) / 3])
    assert measured.standard_error == pytest.approx(np.sqrt(5 / 4 * (deviations**2).sum()))
    assert measured.rows == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("kind", "draw_sample"), [("regression", draw_numbers), ("classification", draw_classes)]
)
def test_the_difference_of_two_models_is_known_better_than_their_errors(kind, draw_sample):
    """Its standard error is its deviation over samples, and smaller than if the models had other rows."""
    draw = np.random.default_rng(0)
    differences, errors, apart = [], [], []
    for _ in range(600):
        predicted, truth = draw_sample(draw, 200)
        others = predicted + 0.3 * draw.normal(size=200)
        one, other = (
            MeasuredMetric.of(kind, values, truth, np.arange(200)) for values in (predicted, others)
        )
        differences.append(one.value - other.value)
        errors.append(one.difference_error(other))
        apart.append(np.hypot(one.standard_error, other.standard_error))
    assert np.mean(errors) == pytest.approx(np.std(differences), rel=0.1)
    assert np.mean(errors) < 0.5 * np.mean(apart)


def test_the_influences_of_a_mean_precision_are_its_derivatives():
    draw = np.random.default_rng(0)
    truth = (draw.random(50) < 0.3).astype(float)
    predicted = np.round(truth + draw.normal(size=50), 1)  # with ties
    value, step = average_precision_score(truth, predicted), 1e-6
    influences = []
    for row in range(50):
        weights = np.ones(50)
        weights[row] += step
        influences.append((average_precision_score(truth, predicted, sample_weight=weights) - value) / step)
    measured = MeasuredMetric.of("classification", predicted, truth, np.arange(50), "pr_auc")
    assert measured.value == pytest.approx(value)
    expected = np.sqrt(50 / 49 * (np.array(influences) ** 2).sum())
    assert measured.standard_error == pytest.approx(expected, rel=1e-4)


def draw_probabilities(draw, count):
    truth = draw.choice(3, count, p=[0.5, 0.3, 0.2])
    odds = 1.2 * np.eye(3)[truth] + draw.normal(size=(count, 3))
    return np.exp(odds) / np.exp(odds).sum(1, keepdims=True), truth.astype(float)


@pytest.mark.parametrize("ordered", [False, True])
def test_the_standard_errors_of_several_classes_are_the_deviations_over_samples(ordered):
    draw, classes = np.random.default_rng(0), SeveralClasses(("a", "b", "c"), ordered=ordered)
    samples = [draw_probabilities(draw, 200) for _ in range(300)]
    for metric in classes.metrics:
        measured = [
            MeasuredMetric.of("multiclass", *sample, np.arange(200), metric, classes) for sample in samples
        ]
        deviation = np.std([one.value for one in measured])
        assert np.mean([one.standard_error for one in measured]) == pytest.approx(deviation, rel=0.12), metric


def test_a_missing_class_leaves_a_mean_over_the_classes_undefined():
    probabilities, truth = np.full((4, 3), 1 / 3), np.array([0.0, 1.0, 0.0, np.nan])
    classes = SeveralClasses(("a", "b", "c"))
    missing = MeasuredMetric.of("multiclass", probabilities, truth, np.arange(4), "macro_roc_auc", classes)
    assert np.isnan([missing.value, missing.standard_error]).all()
    assert MeasuredMetric.of("multiclass", probabilities, truth, np.arange(4), "accuracy", classes).rows == 3


def draw_orders(draw, count):
    truth = 10.0 ** draw.normal(size=count)
    return truth * 10.0 ** draw.normal(0.0, 0.4, count), truth


def test_the_standard_error_of_a_mean_fold_error_is_the_deviation_over_samples():
    draw = np.random.default_rng(0)
    measured = [
        MeasuredMetric.of("regression", *draw_orders(draw, 200), np.arange(200), "fold_error")
        for _ in range(600)
    ]
    deviation = np.std([sample.value for sample in measured])
    assert np.mean([sample.standard_error for sample in measured]) == pytest.approx(deviation, rel=0.08)


def test_a_mean_fold_error_is_of_positive_targets():
    predicted, truth = np.array([1.0, 20.0, 5.0, 3.0]), np.array([2.0, 10.0, np.nan, -1.0])
    measured = MeasuredMetric.of("regression", predicted, truth, np.arange(4), "fold_error")
    assert measured.value == pytest.approx(2.0)
    assert np.isnan(measured.standard_error)  # both are off by the same factor
    none = MeasuredMetric.of("regression", predicted[3:], truth[3:], np.arange(1), "fold_error")
    assert np.isnan(none.value)


@pytest.mark.parametrize("metric", ["roc_auc", "pr_auc", "mae"])
def test_a_perfect_score_has_no_standard_error(metric):
    """A few right rows do not show that others are right too."""
    truth = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    predicted = truth if metric == "mae" else np.array([0.1, 0.7, 0.8, 0.2, 0.9])
    measured = MeasuredMetric.of("classification", predicted, truth, np.arange(5), metric)
    assert measured.value == (0.0 if metric == "mae" else 1.0)
    assert np.isnan(measured.standard_error)
    wrong = MeasuredMetric.of("classification", predicted[::-1] * 0.5, truth, np.arange(5), metric)
    assert wrong.standard_error > 0
