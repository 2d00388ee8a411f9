"""Training with `data.geometry`: distances are learned beside the targets, and predictions need none."""

import csv

import pytest
import torch

from molslice.folders.run import LAST_CHECKPOINT, METRICS, read_run
from molslice.inference.load import load_model
from molslice.training.run import train
from molslice.training.stepper import Stepper
from molslice.types import MolsliceError


def losses(folder):
    with (folder / METRICS).open() as file:
        return [float(row["train_loss"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("attention", ["softmax", "slice_sort"])
def test_the_distances_are_learned(build_config, tmp_path, attention):
    sections = {"data": {"geometry": True}, "attention": {"name": attention}}
    heavy = {"training": {"distance_weight": 100.0, "max_epochs": 6}}
    train(build_config(**sections, **heavy), tmp_path / "run", quiet=True)
    first, *_, last = losses(tmp_path / "run")
    assert last < 0.85 * first
    assert read_run(tmp_path / "run").data.has_geometry


def test_a_prediction_reads_smiles_alone(build_config, tmp_path, monkeypatch):
    train(build_config(data={"geometry": True}), tmp_path / "run", quiet=True)

    def fail(*_):
        raise AssertionError("embedded")

    monkeypatch.setattr("molslice.chem.conformers.coordinates", fail)
    one, other = load_model(tmp_path / "run").predict(["CCO", "OCC"])
    assert float(one) == float(other)


def test_without_a_geometry_the_weight_changes_nothing(build_config, tmp_path):
    weights = []
    for weight in (0.1, 7.0):
        run = tmp_path / str(weight)
        train(build_config(training={"distance_weight": weight}), run, quiet=True)
        weights.append(read_run(run).model.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("fixed", [False, True])
def test_a_resumed_run_equals_an_uninterrupted_one(build_config, tmp_path, monkeypatch, fixed):
    settings = {"max_steps": 18, "fixed_shapes": fixed, "valid_every_steps": 6}
    config = build_config(data={"geometry": True}, training=settings)
    train(config, tmp_path / "whole", quiet=True)
    step = Stepper.step

    def interrupted(self, batch, number, rate):
        if number == 13:
            raise RuntimeError("stopped")
        return step(self, batch, number, rate)

    monkeypatch.setattr(Stepper, "step", interrupted)
    with pytest.raises(RuntimeError, match="stopped"):
        train(config, tmp_path / "resumed", quiet=True)
    monkeypatch.setattr(Stepper, "step", step)
    train(config, tmp_path / "resumed", resume=True, quiet=True)
    one, other = (
        torch.load(tmp_path / name / LAST_CHECKPOINT, weights_only=True)["model"]
        for name in ("whole", "resumed")
    )
    assert any("distance_head" in name for name in one)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_task_that_learns_no_distances_is_refused(build_config, tmp_path):
    config = build_config(
        data={"geometry": True}, task="pretraining", training={"label_weights": {"descriptors": 1.0}}
    )
    with pytest.raises(MolsliceError, match=r"data\.geometry has no effect on task pretraining; only mol"):
        train(config, tmp_path / "run", quiet=True)


def test_an_invalid_weight_is_refused(build_config, tmp_path):
    with pytest.raises(MolsliceError, match=r"training\.distance_weight must be above 0, got 0"):
        train(build_config(training={"distance_weight": 0.0}), tmp_path / "run", quiet=True)
