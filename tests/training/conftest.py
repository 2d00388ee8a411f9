import csv
import gzip
from pathlib import Path

import pytest
import torch

from molslice.config import config_from_mapping, config_to_yaml
from molslice.folders.run import LAST_CHECKPOINT
from molslice.training.run import train
from molslice.training.stepper import Stepper

EMBEDDED = Path(__file__).parents[2] / "data" / "gap_xtb" / "raw" / "data.csv.gz"


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def molecules(tmp_path_factory):
    """Write a CSV file of 150 real molecules: gap, a target with every third value missing, a class."""
    path = tmp_path_factory.mktemp("data") / "molecules.csv"
    with gzip.open(EMBEDDED, "rt") as source, path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "gap", "half", "wide"])
        for number, row in zip(range(150), csv.DictReader(source), strict=False):
            gap = float(row["homolumogap"])
            half = "" if number % 3 == 0 else gap / 2
            writer.writerow([row["smiles"], gap, half, int(gap > 3.0)])
    return path


@pytest.fixture(scope="session")
def build_config(molecules):
    """Return the configuration of a small run; `sections` override it."""

    def build(**sections):
        mapping = {
            "data": {
                "name": "csv",
                "path": str(molecules),
                "target_columns": "gap",
                "units": "eV",
                "cache_dir": str(molecules.parent / "cache"),
            },
            "model": {"num_layers": 2, "dim": 16, "ffn_dim": 16, "num_heads": 2},
            "attention": {"name": "softmax"},
            "optimizer": {"lr": 2e-3, "ema_decay": 0.9},
            "training": {"max_epochs": 3, "batch_size": 16, "token_budget": 1024},
            "trainer": {"accelerator": "cpu", "num_threads": 1},
            "seed": 5,
        }
        for name, section in sections.items():
            mapping[name] = {**mapping[name], **section} if isinstance(section, dict) else section
        if {"max_steps", "max_minutes"} & sections.get("training", {}).keys():
            del mapping["training"]["max_epochs"]
        return config_from_mapping(mapping)

    return build


@pytest.fixture(scope="session")
def write_config():
    def write(config, path):
        path.write_text(config_to_yaml(config))
        return path

    return write


@pytest.fixture
def train_and_resume(tmp_path, monkeypatch):
    """Train a run, and another that stops before a step and continues; return their last checkpoints."""

    def both(config, stop):
        train(config, tmp_path / "whole", quiet=True)
        step = Stepper.step

        def interrupted(self, batch, number, rate):
            if number == stop:
                raise RuntimeError("stopped")
            return step(self, batch, number, rate)

        with monkeypatch.context() as patch:
            patch.setattr(Stepper, "step", interrupted)
            with pytest.raises(RuntimeError, match="stopped"):
                train(config, tmp_path / "resumed", quiet=True)
        train(config, tmp_path / "resumed", resume=True, quiet=True)
        files = [tmp_path / name / LAST_CHECKPOINT for name in ("whole", "resumed")]
        return [torch.load(file, weights_only=True) for file in files]

    return both
