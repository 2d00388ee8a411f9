import json

import numpy as np
import pytest
import torch

from molslice.tasks import TargetInfo
from molslice.tasks.metrics import mean_absolute_error, metric_per_target, roc_auc, selection_score
from molslice.types import MolsliceError

NAN = float("nan")


def test_mean_and_spread_leave_missing_targets_out():
    values = np.array([[1.0, 10.0], [3.0, NAN], [NAN, 30.0]], np.float32)
    info = TargetInfo.of_training(("a", "b"), ("eV", ""), "regression", values)
    assert info.mean == (2.0, 20.0)
    assert info.std == (1.0, 10.0)


def test_a_constant_target_has_spread_one():
    info = TargetInfo.of_training(("a",), ("",), "regression", np.full((4, 1), 3.7, np.float32))
    assert info.std == (1.0,)
    assert info.mean[0] == pytest.approx(3.7)


def test_unit_undoes_standardization_also_beside_a_large_mean():
    values = np.array([[-475.0098], [-475.0099], [-475.0101]], np.float32)
    info = TargetInfo.of_training(("u",), ("Ha",), "regression", values)
    standardized = (torch.tensor(values).double() - info.mean[0]) / info.std[0]
    assert torch.equal(info.to_unit(standardized), torch.tensor(values))


def test_classes_become_probabilities():
    info = TargetInfo.of_training(("c",), ("",), "classification", np.array([[0.0], [1.0], [NAN]]))
    assert (info.mean, info.std) == ((0.0,), (1.0,))
    assert torch.allclose(info.to_unit(torch.tensor([[0.0], [100.0]])), torch.tensor([[0.5], [1.0]]))


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        ("regression", [[NAN], [NAN]], "'t' is missing in every"),
        ("regression", [[1.0], [np.inf]], "'t' is infinite in 1"),
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
    with pytest.raises(MolsliceError, match="targets does not read"):
        TargetInfo.from_mapping(mapping)


def test_errors_leave_missing_rows_out():
    assert mean_absolute_error(np.array([1.0, 2.0, NAN]), np.array([2.0, NAN, 1.0])) == 1.0
    assert np.isnan(mean_absolute_error(np.array([1.0]), np.array([NAN])))


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
