"""Conformal intervals and sets against definitions written out in plain Python, and their coverage."""

from fractions import Fraction

import numpy as np
import pytest

from molslice.types import MolsliceError
from molslice.uncertainty.conformal import (
    check_level,
    check_rows,
    class_sets,
    intervals,
    quantile_rank,
    required_rows,
)

LEVELS = (0.5, 0.8, 0.9, 0.95)


def slow_interval(predictions, scales, scores, folds, level):
    """The definition of CV+: order statistics of one value for each held-out row, sorted row by row."""
    miss = 1 - Fraction(str(level))
    count = len(scores)
    bounds = []
    for row in range(predictions.shape[1]):
        down, up = [], []
        for score, fold in zip(scores, folds, strict=True):
            reach = float(score) * float(scales[fold][row])
            down.append(float(predictions[fold][row]) - reach)
            up.append(float(predictions[fold][row]) + reach)
        low = int(miss * (count + 1))  # floor, counted from 1
        high = -int(-(1 - miss) * (count + 1) // 1)  # ceiling
        bounds.append((sorted(down)[low - 1], sorted(up)[high - 1]))
    return np.array(bounds).T


def slow_sets(probabilities, held_out, labels, folds, level):
    """p-values of both classes, from ranks counted one by one."""
    miss = 1 - Fraction(str(level))
    found = []
    for row in range(probabilities.shape[1]):
        members = []
        for label in (0, 1):
            stranger, count = 1, 0
            for chance, truth, fold in zip(held_out, labels, folds, strict=True):
                if truth != label:
                    continue
                count += 1
                new = probabilities[fold][row]
                old_score, new_score = (chance, new) if label == 0 else (1 - chance, 1 - new)
                stranger += old_score >= new_score
            members.append(Fraction(stranger, count + 1) > miss)
        found.append(members)
    return np.array(found)


@pytest.mark.parametrize("num_folds", [1, 2, 5])
@pytest.mark.parametrize("level", LEVELS)
def test_intervals_are_the_order_statistics_of_the_definition(num_folds, level):
    generator = np.random.default_rng(num_folds)
    for count in (19, 20, 40, 61):
        folds = generator.permutation(np.arange(count) % num_folds)
        scores = np.abs(generator.standard_normal(count)).round(1)  # with ties
        predictions = generator.standard_normal((num_folds, 7))
        scales = generator.uniform(0.5, 2.0, (num_folds, 7))
        found = intervals(predictions, scales, scores, folds, level)
        np.testing.assert_allclose(
            found, slow_interval(predictions, scales, scores, folds, level), rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("num_folds", [1, 4])
@pytest.mark.parametrize("level", LEVELS)
def test_sets_hold_the_classes_with_a_large_enough_p_value(num_folds, level):
    generator = np.random.default_rng(num_folds)
    for count in (50, 83):
        folds = generator.permutation(np.arange(count) % num_folds)
        labels = np.arange(count) % 2
        held_out = (generator.random(count) * 64).round() / 64  # exact in binary, with ties
        probabilities = (generator.random((num_folds, 30)) * 64).round() / 64
        found = class_sets(probabilities, held_out, labels, folds, level)
        np.testing.assert_array_equal(found, slow_sets(probabilities, held_out, labels, folds, level))


def test_the_rows_of_a_large_input_do_not_affect_each_other(monkeypatch):
    monkeypatch.setattr("molslice.uncertainty.conformal.CELLS", 100)
    generator = np.random.default_rng(0)
    folds, scores = np.arange(40) % 4, generator.random(40)
    predictions, scales = generator.random((4, 23)), generator.random((4, 23))
    found = intervals(predictions, scales, scores, folds, 0.8)
    np.testing.assert_allclose(found, slow_interval(predictions, scales, scores, folds, 0.8), atol=1e-12)


def test_the_rank_is_that_of_the_decimal_level():
    for level in ("0.5", "0.7", "0.8", "0.9", "0.95", "0.99"):
        for rows in range(1, 300):
            exact = (rows + 1) * Fraction(level)
            assert quantile_rank(rows, float(level)) == -(-exact.numerator // exact.denominator)
            assert (quantile_rank(rows, float(level)) <= rows) == (rows >= required_rows(float(level)))


def test_too_few_rows_are_refused_with_the_number_that_is_needed():
    ones = np.ones((1, 1))
    with pytest.raises(
        MolsliceError, match=r"interval 0\.95 needs 19 calibration rows of logS, there are 18; .* 0\.9473$"
    ):
        check_rows(18, 0.95, "logS")
    check_rows(18, 0.9473, "logS")
    assert intervals(ones, ones, np.ones(18), np.zeros(18, int), 0.9473)[1] == 2.0
    assert intervals(ones, ones, np.ones(19), np.zeros(19, int), 0.95)[1] == 2.0


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.1, "0.9", None, float("nan"), True])
def test_a_level_that_is_no_probability_is_refused(level):
    with pytest.raises(MolsliceError, match="between 0 and 1"):
        check_level(level)


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_split_conformal_intervals_cover_exactly_as_often_as_stated(level):
    """The mean coverage over calibration sets is rank / (n + 1), also for a bad model and skewed errors."""
    generator = np.random.default_rng(1)
    count, covered = 25, []
    for _ in range(2000):
        truth = generator.exponential(1.0, count + 10)
        scales = generator.uniform(0.3, 3.0, count + 10)
        scores = np.abs(truth[:count] - 0.4) / scales[:count]
        low, high = intervals(
            np.full((1, 10), 0.4), scales[None, count:], scores, np.zeros(count, int), level
        )
        covered.append(((low <= truth[count:]) & (truth[count:] <= high)).mean())
    expected = quantile_rank(count, level) / (count + 1)
    assert abs(np.mean(covered) - expected) < 4 * np.std(covered) / np.sqrt(2000)


def test_cross_conformal_intervals_of_a_fitted_model_cover_as_often_as_stated():
    """A linear model with as many as half the rows in parameters, fitted in each fold, on other rows."""
    generator = np.random.default_rng(2)
    count, width, num_folds, covered = 40, 12, 5, []
    for _ in range(300):
        rows = generator.standard_normal((count + 20, width))
        truth = rows @ generator.standard_normal(width) + generator.standard_normal(count + 20)
        folds, scores, new = np.arange(count) % num_folds, np.empty(count), []
        for fold in range(num_folds):
            own = np.flatnonzero(folds == fold)
            other = np.flatnonzero(folds != fold)
            line = np.linalg.lstsq(rows[other], truth[other], rcond=None)[0]
            scores[own] = np.abs(truth[own] - rows[own] @ line)
            new.append(rows[count:] @ line)
        low, high = intervals(np.stack(new), np.ones((num_folds, 20)), scores, folds, 0.9)
        covered.append(((low <= truth[count:]) & (truth[count:] <= high)).mean())
    assert 0.89 < np.mean(covered) < 0.95


def test_sets_cover_the_rare_class_as_often_as_the_frequent_one():
    generator = np.random.default_rng(3)
    covered = {0: [], 1: []}
    for _ in range(400):
        labels = np.concatenate([np.zeros(180), np.ones(20), np.zeros(50), np.ones(50)])
        chances = 1 / (1 + np.exp(-(labels + generator.standard_normal(300) - 2)))
        found = class_sets(chances[None, 200:], chances[:200], labels[:200], np.zeros(200, int), 0.8)
        for label in (0, 1):
            covered[label].append(found[labels[200:] == label, label].mean())
    for label, count in ((0, 180), (1, 20)):
        expected = quantile_rank(count, 0.8) / (count + 1)
        assert abs(np.mean(covered[label]) - expected) < 4 * np.std(covered[label]) / 20


def test_sets_of_two_classes_with_a_probability_each_are_sets_of_class_1():
    generator = np.random.default_rng(0)
    labels, folds = generator.integers(0, 2, 80), np.arange(80) % 4
    held_out, new = generator.random(80), generator.random((4, 30))
    both = np.stack([1.0 - held_out, held_out], axis=1), np.stack([1.0 - new, new], axis=2)
    expected = class_sets(new, held_out, labels, folds, 0.8)
    np.testing.assert_array_equal(class_sets(both[1], both[0], labels, folds, 0.8), expected)


def test_sets_cover_each_of_several_classes():
    generator = np.random.default_rng(0)

    def draw(count):
        labels = generator.choice(3, count, p=[0.7, 0.2, 0.1])
        odds = 1.5 * np.eye(3)[labels] + generator.normal(size=(count, 3))
        return np.exp(odds) / np.exp(odds).sum(1, keepdims=True), labels

    held_out, labels = draw(8_000)
    new, truth = draw(8_000)
    sets = class_sets(new[None], held_out, labels, np.zeros(8_000, int), 0.9)
    for label in range(3):
        of_class = truth == label
        assert sets[of_class, label].mean() == pytest.approx(0.9, abs=0.035)
