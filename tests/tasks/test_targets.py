import json

import numpy as np
import pytest
import torch

from molslice.tasks import TargetInfo
from molslice.tasks.metrics import (
    accuracy,
    mean_absolute_error,
    metric_per_target,
    roc_auc,
    selection_score,
    weighted_mean,
)
from molslice.types import MolsliceError

NAN = float("nan")


def test_mean_and_spread_leave_missing_targets_out():
    values = np.array([[1.0, 10.0], [3.0, NAN], [NAN, 30.0]], np.float32)
    info = TargetInfo.of_training(("a", "b"), ("eV", ""), "regression", values)
    assert info.mean == (2.0, 20.0)
    assert info.std == (1.0, 10.0)


@pytest.mark.parametrize("factor", [1.0, 1.602176634e-19, 3.33564e-30, 1e30])
def test_the_unit_scales_mean_and_spread_and_nothing_else(factor):
    values = np.array([[3.1, 2.0], [4.2, 2.0], [5.9, 2.0]])  # the second target is constant
    info = TargetInfo.of_training(("a", "b"), ("", ""), "regression", values * factor)
    # relative errors alone: approx passes all that is below 1e-12 otherwise
    assert np.array(info.mean) == pytest.approx(values.mean(0) * factor, rel=1e-6, abs=0)
    assert np.array(info.std) == pytest.approx(np.array([values[:, 0].std(), 2.0]) * factor, rel=1e-6, abs=0)


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        (np.full((4, 1), 3.7, np.float32), np.float32(3.7)),
        (np.full((7, 1), -0.1), 0.1),  # the mean of seven differs from the value by rounding
        (np.zeros((4, 1)), 1.0),
        (np.array([[1.0], [1.0 + 2e-16], [1.0]]), 1.0),
    ],
)
def test_a_constant_target_takes_its_magnitude_as_spread_and_is_reported(values, spread, caplog):
    info = TargetInfo.of_training(("a",), ("",), "regression", values)
    assert info.std == (pytest.approx(spread, rel=1e-12),)
    assert info.mean[0] == pytest.approx(values[0, 0])
    assert "'a' is" in caplog.text


def test_a_target_that_barely_varies_keeps_its_spread(caplog):
    values = np.full((1000, 1), 500.0, np.float32)
    values[0] = np.nextafter(np.float32(500.0), np.float32(501.0))
    info = TargetInfo.of_training(("a",), ("",), "regression", values)
    assert info.std[0] == pytest.approx(values.astype(np.float64).std(), rel=1e-12)
    assert not caplog.text


def test_unit_undoes_standardization_also_beside_a_large_mean():
    values = -475.01 + 1e-4 * torch.randn(200, 1, generator=torch.Generator().manual_seed(0))
    info = TargetInfo.of_training(("u",), ("Ha",), "regression", values.numpy())
    standardized = ((values.double() - info.mean[0]) / info.std[0]).float()
    assert torch.equal(info.to_unit(standardized), values)
    # a prediction that is no float32 in its unit is rounded once, to the nearest
    prediction = torch.randn(200, 1, generator=torch.Generator().manual_seed(1))
    exact = prediction.double().numpy() * info.std[0] + info.mean[0]
    assert np.array_equal(info.to_unit(prediction).numpy(), exact.astype(np.float32))


def test_classes_become_probabilities():
    info = TargetInfo.of_training(("c",), ("",), "classification", np.array([[0.0], [1.0], [NAN]]))
    assert (info.mean, info.std) == ((0.0,), (1.0,))
    assert torch.allclose(info.to_unit(torch.tensor([[0.0], [100.0]])), torch.tensor([[0.5], [1.0]]))


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        ("regression", [[NAN], [NAN]], "'t' is missing in every"),
        ("regression", [[1.0], [np.inf]], "'t' is infinite in 1"),
        ("regression", [[1e-40], [2e-40]], "'t' has a spread of 5e-41, too small"),
        ("classification", [[1.0], [2.0]], "'t' holds 2"),
    ],
)
def test_targets_that_cannot_be_learned_are_refused(kind, values, words):
    with pytest.raises(MolsliceError, match=words):
        TargetInfo.of_training(("t",), ("",), kind, np.array(values))


def test_json_gives_the_same_back():
    info = TargetInfo(("a", "b"), ("eV", ""), "regression", (0.1, 2.0), (1 / 3, 5.0))
    assert TargetInfo.from_mapping(json.loads(json.dumps(info.to_mapping()))) == info


@pytest.mark.parametrize("mapping", [None, [], {}, {"names": 3}])
def test_something_else_is_refused(mapping):
    with pytest.raises(MolsliceError, match="description of the targets"):
        TargetInfo.from_mapping(mapping)


@pytest.mark.parametrize("part", ["classes", "families"])
def test_names_that_are_no_text_are_refused(part):
    mapping = TargetInfo(("a",), ("",), "regression", (0.0,), (1.0,)).to_mapping()
    with pytest.raises(MolsliceError, match=rf"{part}\[1\] is 3, expected text"):
        TargetInfo.from_mapping({**mapping, part: ["x", 3]})


@pytest.mark.parametrize("std", [0.0, -1.0, NAN, np.inf])
def test_a_spread_that_cannot_be_divided_by_is_refused(std):
    with pytest.raises(MolsliceError, match="std positive"):
        TargetInfo(("a",), ("",), "regression", (0.0,), (std,))


def test_errors_leave_missing_rows_out():
    assert mean_absolute_error(np.array([1.0, 2.0, NAN]), np.array([2.0, NAN, NAN])) == 1.0
    assert np.isnan(mean_absolute_error(np.array([1.0]), np.array([NAN])))


@pytest.mark.parametrize("broken", [NAN, np.inf, -np.inf])
def test_a_prediction_that_is_not_finite_is_not_left_out(broken):
    truth = np.array([0.0, 1.0])
    assert mean_absolute_error(np.array([0.0, broken]), truth) == np.inf
    assert weighted_mean(np.array([0.0, abs(broken)]), np.array([1.0, 1.0])) == np.inf
    assert accuracy(np.array([[broken, 0.5], [0.5, 0.6]]), truth) == 0.5
    info = TargetInfo(("a", "b"), ("", ""), "regression", (0.0, 0.0), (1.0, 1.0))
    metrics = metric_per_target(info, np.array([[broken, 1.0]]), np.zeros((1, 2)))
    assert selection_score(info, metrics) == np.inf


def test_roc_auc_puts_nan_at_the_wrong_end_of_the_order():
    truth = np.array([1.0, 1.0, 0.0, 0.0])
    assert roc_auc(np.array([NAN, 0.9, 0.1, 0.2]), truth) == 0.5
    assert roc_auc(np.array([0.8, 0.9, NAN, 0.2]), truth) == 0.5
    assert roc_auc(np.array([0.8, np.inf, -np.inf, 0.2]), truth) == 1.0


def test_roc_auc_equals_the_count_of_ordered_pairs():
    generator = np.random.default_rng(0)
    score = generator.integers(0, 12, 200).astype(float)  # many ties
    truth = (generator.random(200) < 0.3).astype(float)
    truth[:5] = NAN
    positive, negative = score[truth == 1], score[truth == 0]
    pairs = (positive[:, None] > negative).sum() + 0.5 * (positive[:, None] == negative).sum()
    assert roc_auc(score, truth) == pytest.approx(pairs / (len(positive) * len(negative)), abs=1e-12)


def test_roc_auc_of_one_class_is_not_a_number():
    assert np.isnan(roc_auc(np.array([0.1, 0.2]), np.array([1.0, 1.0])))


def test_the_score_does_not_depend_on_units_and_prefers_less_error():
    ev = TargetInfo(("a", "b"), ("eV", ""), "regression", (0.0, 0.0), (1.0, 2.0))
    mev = TargetInfo(("a", "b"), ("meV", ""), "regression", (0.0, 0.0), (1000.0, 2.0))
    assert selection_score(ev, {"a": 0.1, "b": 0.4}) == pytest.approx(
        selection_score(mev, {"a": 100.0, "b": 0.4})
    )
    classes = TargetInfo(("a",), ("",), "classification", (0.0,), (1.0,))
    assert selection_score(classes, {"a": 0.9}) < selection_score(classes, {"a": 0.8})


def test_a_target_without_metric_does_not_spoil_the_score():
    classes = TargetInfo(("a", "b"), ("", ""), "classification", (0.0, 0.0), (1.0, 1.0))
    assert selection_score(classes, {"a": 0.75, "b": NAN}) == pytest.approx(0.25)
    assert np.isnan(selection_score(classes, {"a": NAN, "b": NAN}))


def test_metrics_go_by_name():
    info = TargetInfo(("a", "b"), ("", ""), "regression", (0.0, 0.0), (1.0, 1.0))
    metrics = metric_per_target(info, np.array([[1.0, 5.0]]), np.array([[2.0, 8.0]]))
    assert metrics == {"a": 1.0, "b": 3.0}
