"""Several classes as binary parts, and their metrics against scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics

from molslice.tasks.metrics import average_precision
from molslice.tasks.several_classes import SeveralClasses

NAMES = ("low", "medium", "high")
PLAIN, ORDERED = SeveralClasses(NAMES), SeveralClasses(NAMES, ordered=True)


def draw(rows=80):
    generator = np.random.default_rng(0)
    truth = generator.permutation(np.arange(rows) % 3)
    probabilities = generator.dirichlet(np.ones(3), rows) + np.eye(3)[truth] * 0.3
    return probabilities / probabilities.sum(1, keepdims=True), truth


def test_classes_are_split_into_one_against_the_others():
    parts = PLAIN.split(np.array([0.0, 2.0, np.nan]))
    np.testing.assert_array_equal(parts, [[1, 0, 0], [0, 0, 1], [np.nan] * 3])


def test_ordered_classes_are_split_into_above_a_class():
    assert ORDERED.part_names == ("above low", "above medium")
    parts = ORDERED.split(np.array([0.0, 1.0, 2.0, np.nan]))
    np.testing.assert_array_equal(parts, [[0, 0], [1, 0], [1, 1], [np.nan] * 2])


@pytest.mark.parametrize("classes", [PLAIN, ORDERED])
def test_parts_of_probabilities_are_combined_to_them(classes):
    probabilities, _ = draw()
    np.testing.assert_allclose(classes.combine(classes.parts_of(probabilities)), probabilities, atol=1e-12)


@pytest.mark.parametrize("classes", [PLAIN, ORDERED])
def test_probabilities_are_positive_and_add_up_to_one(classes):
    parts = np.random.default_rng(1).uniform(1e-9, 1.0, (2, 50, len(classes.part_names)))
    combined = classes.combine(parts)
    assert combined.shape == (2, 50, 3)
    assert combined.min() >= 0.0
    np.testing.assert_allclose(combined.sum(-1), 1.0)


def test_crossing_parts_of_ordered_classes_are_sorted():
    np.testing.assert_allclose(ORDERED.combine(np.array([0.3, 0.8])), [0.2, 0.5, 0.3])


def test_the_median_is_chosen_of_ordered_classes_and_the_mode_of_others():
    probabilities = np.array([[0.4, 0.25, 0.35], [0.5, 0.0, 0.5], [0.2, 0.2, 0.6]])
    assert PLAIN.choose(probabilities).tolist() == [0, 0, 2]
    assert ORDERED.choose(probabilities).tolist() == [1, 0, 2]
    assert ORDERED.choose(np.array([[0.2, 0.2, 0.1]])).tolist() == [2]  # rounding never leaves the classes


def test_metrics_are_those_of_scikit_learn():
    probabilities, truth = draw()
    chosen = probabilities.argmax(1)
    expected = {
        "macro_roc_auc": metrics.roc_auc_score(truth, probabilities, multi_class="ovr", average="macro"),
        "log_loss": metrics.log_loss(truth, probabilities),
        "accuracy": metrics.accuracy_score(truth, chosen),
        "balanced_accuracy": metrics.balanced_accuracy_score(truth, chosen),
        "class_error": metrics.mean_absolute_error(truth, chosen),
    }
    known = np.concatenate([truth, [np.nan]])
    rows = np.concatenate([probabilities, [[1, 0, 0]]])
    for metric, value in expected.items():
        assert PLAIN.measure(metric, rows, known) == pytest.approx(value)
    median = np.abs((probabilities.cumsum(1) < 0.5).sum(1) - truth).mean()
    assert ORDERED.measure("class_error", probabilities, truth) == pytest.approx(median)


@pytest.mark.parametrize("metric", ["macro_roc_auc", "balanced_accuracy"])
def test_means_over_the_classes_need_all_classes(metric):
    probabilities, truth = draw()
    rows = truth < 2
    assert np.isnan(PLAIN.measure(metric, probabilities[rows], truth[rows]))
    assert np.isnan(PLAIN.measure("accuracy", probabilities[:0], truth[:0]))


def test_a_prediction_that_is_not_finite_is_wrong():
    probabilities, truth = np.array([[np.nan] * 3, [0.1, 0.8, 0.1]]), np.array([0.0, 1.0])
    assert PLAIN.measure("accuracy", probabilities, truth) == 0.5
    assert PLAIN.measure("class_error", probabilities, truth) == np.inf
    assert PLAIN.measure("log_loss", probabilities, truth) == np.inf


def test_the_average_precision_is_that_of_scikit_learn():
    generator = np.random.default_rng(0)
    for _ in range(30):
        truth = np.concatenate([[0.0, 1.0], (generator.random(40) < 0.2).astype(float)])
        scores = np.round(truth + generator.normal(size=42), 1)  # with ties
        expected = metrics.average_precision_score(truth, scores)
        assert average_precision(scores, truth) == pytest.approx(expected, abs=1e-12)
    assert average_precision(np.array([0.9, 0.1, 5.0]), np.array([1, 0, np.nan])) == 1.0
    assert average_precision(np.array([np.nan, 0.1]), np.array([1.0, 0.0])) == 0.5
    assert np.isnan(average_precision(np.zeros(2), np.ones(2)))
