"""A user's model can be trained from a configuration without changes to the package."""

import csv
import importlib
import sys

import pytest
import torch

import molslice.model
from molslice.config import config_from_mapping, config_to_mapping
from molslice.folders.run import METRICS, read_run
from molslice.model import MODELS, AttentionChoice, build_model
from molslice.training.run import train
from molslice.types import DataSpec, MolsliceError

SOURCE = '''
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from molslice.model.base import ModelSpec
from molslice.types import ModelOutput


@dataclass(frozen=True, slots=True)
class AtomBagSpec(ModelSpec):
    takes: ClassVar = ("molecules",)
    name: Literal["atom_bag"] = "atom_bag"
    width: int = 4

    @property
    def size_label(self):
        return str(self.width)

    def build(self, attention, data):
        return AtomBag(self.width, data.num_outputs)


class AtomBag(nn.Module):
    """A linear map of the mean of the atoms, looked up by their elements."""

    def __init__(self, width, outputs):
        super().__init__()
        self.table = nn.Embedding(119, width)
        self.readout = nn.Linear(width, outputs)

    def forward(self, batch):
        real = batch.atom_mask[..., None]
        elements = self.table(batch.atoms[..., 0].long())
        return ModelOutput(self.readout((elements * real).sum(1) / real.sum(1)))
'''


@pytest.fixture(params=["file", "add"])
def atom_bag(request, tmp_path, monkeypatch):
    """Provide the model as a file of the package, or registered by a program."""
    (tmp_path / "atom_bag.py").write_text(SOURCE)
    MODELS.names()  # the names are kept once read: put them back afterwards
    if request.param == "file":
        monkeypatch.delitem(vars(MODELS), "_modules")
        monkeypatch.setattr(molslice.model, "__path__", [*molslice.model.__path__, str(tmp_path)])
    else:
        monkeypatch.syspath_prepend(tmp_path)
        MODELS.add("atom_bag", importlib.import_module("atom_bag").AtomBagSpec)
    yield
    MODELS.remove("atom_bag")
    for module in ("atom_bag", "molslice.model.atom_bag"):
        sys.modules.pop(module, None)


@pytest.mark.usefixtures("atom_bag")
def test_a_model_of_ones_own_is_built_and_trained_from_a_configuration(build_config, tmp_path):
    mapping = config_to_mapping(build_config(optimizer={"lr": 5e-2}))
    with pytest.raises(MolsliceError, match=r"unknown key 'model.widht'; did you mean 'width'"):
        config_from_mapping({**mapping, "model": {"name": "atom_bag", "widht": 3}})
    config = config_from_mapping({**mapping, "model": {"name": "atom_bag", "width": 3}})
    summary = train(config, tmp_path / "run", quiet=True)
    assert summary["parameters"] == 119 * 3 + 3 + 1
    with (tmp_path / "run" / METRICS).open() as file:
        losses = [float(row["train_loss"]) for row in csv.DictReader(file)]
    assert losses[-1] < losses[0]
    run = read_run(tmp_path / "run")
    assert run.config.model.width == 3
    assert type(run.model).__name__ == "AtomBag"
    assert all(torch.isfinite(weight).all() for weight in run.model.parameters())


@pytest.mark.usefixtures("atom_bag")
@pytest.mark.parametrize("declared", [False, True])
def test_batch_norm_must_be_declared(monkeypatch, declared):
    spec = MODELS.find("atom_bag")
    build = spec.build
    monkeypatch.setattr(
        spec, "build", lambda *args: torch.nn.Sequential(build(*args), torch.nn.BatchNorm1d(1))
    )
    monkeypatch.setattr(spec, "has_batch_norm", declared)
    if declared:
        build_model(spec(), AttentionChoice(), DataSpec(1))
        return
    with pytest.raises(
        MolsliceError, match="'atom_bag' has batch norm.* has_batch_norm = True in AtomBagSpec"
    ):
        build_model(spec(), AttentionChoice(), DataSpec(1))
