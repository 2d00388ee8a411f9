"""Tests of single steps, validation records and signals."""

import csv
import os
import signal

import pytest
import torch

from molslice.data import build_dataset
from molslice.folders.run import METRICS
from molslice.model import build_model
from molslice.tasks import TASKS, TargetInfo
from molslice.training.batches import TrainingBatches
from molslice.training.fabric import build_fabric
from molslice.training.run import train
from molslice.training.stepper import Stepper
from molslice.training.trainer import interruptible
from molslice.training.validation import Evaluator


@pytest.fixture
def build_stepper(build_config):
    def build(**sections):
        config = build_config(**sections)
        dataset = build_dataset(config.data.name, dict(config.data.options))
        rows = dataset.splits["train"]
        targets = TargetInfo.of_training(
            dataset.target_names, dataset.target_units, dataset.kind, dataset.targets[rows], ()
        )
        torch.manual_seed(0)
        model = build_model(config.model, config.attention, dataset.spec)
        task = TASKS.build(config.task, model, targets, options={})
        batches = TrainingBatches(dataset, rows, config.training, config.seed)
        return Stepper(build_fabric(config.trainer), task, config, batches)

    return build


def updated_norm(stepper):
    """Return the norm of the gradients passed to the optimizer."""
    norms = []

    def record(optimizer, *_):
        gradients = [
            p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        norms.append(float(torch.nn.utils.get_total_norm(gradients)))

    stepper.optimizer.optimizer.register_step_pre_hook(record)
    stepper.step(next(stepper.batches.stream(0, 0)), 0, 1e-3)
    return norms[0]


def test_gradients_are_clipped_to_the_norm_of_the_configuration(build_stepper):
    free = updated_norm(build_stepper(optimizer={"gradient_clip": None}))
    assert free > 0.02
    assert updated_norm(build_stepper(optimizer={"gradient_clip": 0.01})) == pytest.approx(0.01, rel=1e-3)
    assert updated_norm(build_stepper(optimizer={"gradient_clip": 1e6})) == pytest.approx(free, rel=1e-3)


def test_the_training_loss_is_the_mean_since_the_last_validation(build_config, tmp_path, monkeypatch):
    step, losses = Stepper.step, []

    def recorded(self, batch, number, rate):
        loss = step(self, batch, number, rate)
        losses.append(float(loss))
        return loss

    monkeypatch.setattr(Stepper, "step", recorded)
    training = {"max_steps": 6, "valid_every_steps": 3, "checkpoint_every_steps": 2}
    train(build_config(training=training), tmp_path / "run", quiet=True)
    with (tmp_path / "run" / METRICS).open() as file:
        found = [float(row["train_loss"]) for row in csv.DictReader(file)]
    assert found == pytest.approx([sum(losses[:3]) / 3, sum(losses[3:]) / 3], rel=1e-5)


def test_of_equal_scores_the_first_is_the_best(build_config, tmp_path, monkeypatch):
    scores = iter([2.0, 1.0, 1.0, 1.0, 5.0, 5.0, 5.0, 5.0])
    monkeypatch.setattr(Evaluator, "metrics", lambda *_: {"gap": next(scores)})
    training = {"max_steps": 20, "valid_every_steps": 2, "early_stopping_patience": 2}
    summary = train(build_config(training=training), tmp_path / "run", quiet=True)
    assert (summary["best_step"], summary["steps"]) == (4, 8)


def test_a_validation_takes_no_more_at_once_than_a_part_of_a_step(build_stepper):
    stepper = build_stepper(training={"batch_size": 12, "token_budget": 240, "accumulate": 3})
    dataset, config = stepper.batches.dataset, stepper.config.training
    evaluator = Evaluator(stepper.fabric, stepper.task, dataset, dataset.splits["train"], config)
    assert sum(map(len, evaluator.batches)) == len(dataset.splits["train"])
    assert max(map(len, evaluator.batches)) == 12 // 3
    assert max(evaluator.padded_tokens) <= max(240 // 3, max(dataset.num_tokens))


def test_signals_within_a_second_are_one(monkeypatch):
    """A launcher passes on the signal that the terminal has sent to all processes."""
    with interruptible() as interrupted:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert interrupted.is_set()
        monkeypatch.setattr("molslice.training.trainer.SAME_SIGNAL_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt, match="--resume"):
            os.kill(os.getpid(), signal.SIGINT)
