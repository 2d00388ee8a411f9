"""Tests of the loss and the metric of recorded actions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from molslice.tasks import TASKS, TargetInfo
from molslice.tasks.base import MicroBatch
from molslice.types import EpisodeBatch, ModelOutput, MolsliceError

NAN = float("nan")
MASK = torch.tensor([[True, True, True], [True, False, False]])


class Constant(nn.Module):
    """Model that predicts a constant."""

    def __init__(self):
        super().__init__()
        self.number = nn.Parameter(torch.tensor(0.5))

    def forward(self, batch):
        return ModelOutput(self.number.expand(batch.actions.shape))


def build(kind="actions"):
    targets = TargetInfo.of_training(("action",), ("",), kind, np.array([[3.0], [1.0]]))
    return TASKS.build("decision", Constant(), targets)


def batch(mask=MASK, padding=NAN):
    actions = torch.arange(12.0).reshape(2, 3, 2) / 10
    if mask is not None:
        actions[~mask] = padding
    return EpisodeBatch(torch.zeros(2, 3, 4), actions, torch.zeros(2, 3), torch.zeros(2, 3).long(), mask)


def test_the_loss_is_the_mean_over_the_numbers_of_real_steps():
    task, given = build(), batch()
    errors = [(0.5 - n / 10) ** 2 for n in (0, 1, 2, 3, 4, 5, 6, 7)]
    loss = task.training_step(MicroBatch(given, 2, 8))
    assert loss.item() == pytest.approx(np.mean(errors))
    loss.backward()
    assert task.model.number.grad.item() == pytest.approx(np.mean([2 * (0.5 - n / 10) for n in range(8)]))


def test_micro_batches_sum_to_the_batch():
    task, given = build(), batch(padding=100.0)
    whole = task.training_step(MicroBatch(given, 2, 8))
    fields = ("states", "actions", "returns_to_go", "timesteps", "step_mask")
    parts = [replace(given, **{f: getattr(given, f)[b : b + 1] for f in fields}) for b in range(2)]
    assert sum(task.training_step(MicroBatch(part, 2, 8)) for part in parts).item() == pytest.approx(
        whole.item()
    )


def test_the_metric_weighs_windows_by_their_steps():
    task, given = build(), batch()
    results = task.evaluate_batch(task.model, given).detach()
    assert results.shape == (2, task.num_results)
    first = np.mean([(0.5 - n / 10) ** 2 for n in range(6)])
    second = np.mean([(0.5 - n / 10) ** 2 for n in (6, 7)])
    np.testing.assert_allclose(results[:, 0], [first, second], rtol=1e-6)
    metrics = task.metrics(results.numpy(), np.array([[3.0], [1.0]]))
    assert metrics["action"] == pytest.approx((3 * first + second) / 4)
    assert task.score(metrics) == metrics["action"]


def test_without_a_mask_every_step_counts():
    task, given = build(), batch(None)
    expected = [np.mean([(0.5 - n / 10) ** 2 for n in range(b, b + 6)]) for b in (0, 6)]
    np.testing.assert_allclose(task.evaluate_batch(task.model, given).detach()[:, 0], expected, rtol=1e-6)
    loss = task.training_step(MicroBatch(given, 2, 12))
    assert loss.item() == pytest.approx(np.mean(expected))


def test_a_metric_without_values_is_nan():
    assert np.isnan(build().metrics(np.zeros((1, 1)), np.array([[NAN]]))["action"])


def test_targets_of_another_kind_are_refused():
    with pytest.raises(MolsliceError, match="of kind actions, got regression"):
        build("regression")
