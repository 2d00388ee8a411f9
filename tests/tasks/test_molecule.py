import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from molslice.tasks import TASKS, TargetInfo
from molslice.tasks.base import MicroBatch
from molslice.types import ModelOutput, MolsliceError

NAN = float("nan")


class Given(nn.Module):
    """Model that returns its input, so that the loss can be computed by hand."""

    def __init__(self, prediction, penalty=None, log_variance=None):
        super().__init__()
        self.prediction = nn.Parameter(prediction)
        self.penalty = penalty
        self.log_variance = None if log_variance is None else nn.Parameter(log_variance)

    def forward(self, batch):
        log_variance = None if self.log_variance is None else self.log_variance[batch.rows]
        return ModelOutput(self.prediction[batch.rows], self.penalty, log_variance=log_variance)


class Batch(SimpleNamespace):
    other_targets = None

    def __len__(self):
        return len(self.rows)


def micro_batch(targets, rows=None, molecules=None, present=None):
    rows = torch.arange(len(targets)) if rows is None else torch.tensor(rows)
    present = int((~targets.isnan()).sum()) if present is None else present
    return MicroBatch(Batch(targets=targets[rows], rows=rows), molecules or len(targets), present)


def build(
    prediction,
    kind="regression",
    mean=(0.0, 0.0),
    std=(1.0, 1.0),
    loss="mae",
    penalty=None,
    log_variance=None,
):
    info = TargetInfo(("a", "b"), ("eV", ""), kind, mean, std)
    return TASKS.build("molecule", Given(prediction, penalty, log_variance), info, options={"loss": loss})


def test_the_loss_is_the_mean_over_targets_that_are_there():
    targets = torch.tensor([[1.0, NAN], [3.0, 8.0]])
    task = build(torch.zeros(2, 2), mean=(1.0, 2.0), std=(2.0, 3.0))
    loss = task.training_step(micro_batch(targets))
    assert loss.item() == pytest.approx((0.0 + 1.0 + 2.0) / 3)
    loss.backward()
    assert task.model.prediction.grad.isfinite().all()
    assert task.model.prediction.grad[0, 1] == 0.0


@pytest.mark.parametrize(("loss", "expected"), [("mse", 4.0), ("huber", 1.5), ("mae", 2.0)])
def test_losses(loss, expected):
    task = build(torch.zeros(1, 2), loss=loss)
    assert task.training_step(micro_batch(torch.tensor([[2.0, NAN]]))).item() == pytest.approx(expected)


def test_targets_are_standardized_in_float64_beside_a_large_mean():
    mean, std = -475.0099012345, 1e-4
    targets = torch.tensor([[mean + std, NAN]])
    task = build(torch.zeros(1, 2), mean=(mean, 0.0), std=(std, 1.0))
    expected = abs(targets[0, 0].double() - mean) / std
    assert task.training_step(micro_batch(targets)).item() == pytest.approx(expected.item(), rel=1e-6)


def test_classes_take_cross_entropy():
    task = build(torch.tensor([[0.0, 50.0]]), kind="classification")
    loss = task.training_step(micro_batch(torch.tensor([[1.0, 1.0]])))
    assert loss.item() == pytest.approx(0.6931472 / 2, abs=1e-6)
    missing = task.training_step(micro_batch(torch.tensor([[NAN, NAN]])))
    assert missing.item() == 0.0


def test_the_gaussian_loss_takes_standardized_targets_and_leaves_out_missing_ones():
    targets = torch.tensor([[1.0, NAN], [3.0, 8.0]])
    mean, std = (1.0, 2.0), (2.0, 3.0)
    log_variance = torch.tensor([[0.3, 50.0], [-1.0, 0.7]])
    prediction = torch.tensor([[0.5, 9.0], [-1.0, 0.0]])
    task = build(prediction, mean=mean, std=std, loss="gaussian", log_variance=log_variance)
    loss = task.training_step(micro_batch(targets))
    loss.backward()
    expected = 0.0
    for row, column in ((0, 0), (1, 0), (1, 1)):
        wanted = (float(targets[row, column]) - mean[column]) / std[column]
        variance = float(log_variance[row, column].double().exp())
        error = float(prediction[row, column]) - wanted
        expected += (math.log(variance) + error**2 / variance) / 2 / 3
        gradients = task.model.prediction.grad[row, column], task.model.log_variance.grad[row, column]
        assert gradients[0].item() == pytest.approx(error / variance / 3, rel=1e-5)
        assert gradients[1].item() == pytest.approx((1 - error**2 / variance) / 6, rel=1e-4)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert task.model.prediction.grad[0, 1] == 0.0
    assert task.model.log_variance.grad[0, 1] == 0.0


def test_micro_batches_of_the_gaussian_loss_add_up_to_the_batch():
    targets = torch.tensor([[1.0, NAN], [3.0, 8.0], [NAN, NAN], [0.5, -1.0], [2.0, 2.0]])
    task = build(torch.randn(5, 2), loss="gaussian", log_variance=torch.randn(5, 2))
    whole = task.training_step(micro_batch(targets))
    parts = [task.training_step(micro_batch(targets, rows, 5, 7)) for rows in ([0, 2, 4], [1, 3])]
    assert sum(parts).item() == pytest.approx(whole.item(), abs=1e-6)


def test_classes_have_no_gaussian_loss():
    with pytest.raises(MolsliceError, match="gaussian is for numbers; the targets are classes"):
        build(torch.zeros(1, 2), kind="classification", loss="gaussian")


def test_micro_batches_add_up_to_the_batch_with_penalty_and_missing_targets():
    targets = torch.tensor([[1.0, NAN], [3.0, 8.0], [NAN, NAN], [0.5, -1.0], [2.0, 2.0]])
    task = build(torch.randn(5, 2), penalty=torch.tensor(0.3))
    whole = task.training_step(micro_batch(targets))
    parts = [task.training_step(micro_batch(targets, rows, 5, 7)) for rows in ([0, 2, 4], [1, 3])]
    assert sum(parts).item() == pytest.approx(whole.item(), abs=1e-6)


def test_an_unknown_loss_is_refused():
    with pytest.raises(MolsliceError, match="mae, mse, huber, gaussian"):
        build(torch.zeros(1, 2), loss="l3")


def test_an_unknown_task_lists_the_names():
    with pytest.raises(MolsliceError, match="choices: .*molecule"):
        TASKS.find("molecules")


def test_predictions_come_in_the_unit():
    task = build(torch.tensor([[1.0, -1.0]]), mean=(5.0, 6.0), std=(2.0, 3.0))
    batch = Batch(rows=torch.tensor([0]))
    assert task.evaluate_batch(task.model, batch).tolist() == [[7.0, 3.0]]


def test_classes_are_for_another_task():
    info = TargetInfo(("color",), ("",), "multiclass", (0.0,), (1.0,), ("red", "green"))
    with pytest.raises(MolsliceError, match="got multiclass; choose another task: sequence"):
        TASKS.build("molecule", Given(torch.zeros(1, 2)), info)
