"""A run of pretraining: what it writes, and the same weights after an interruption."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from molslice.config import DataConfig
from molslice.data import build_dataset
from molslice.folders.run import METRICS, MODEL, SUMMARY
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.training.run import train
from molslice.training.trainer import Trainer
from tests.data.molecules.corpora import make_corpus


@pytest.fixture(scope="module")
def config(build_config, tmp_path_factory):
    folder = make_corpus(tmp_path_factory.mktemp("corpus"))
    built = build_config(
        model={"name": "graphormer_pretraining"},
        task="pretraining",
        training={"max_steps": 10, "valid_every_steps": 5, "checkpoint_every_steps": 1},
    )
    options = {"path": str(folder), "valid_fraction": 0.2, "test_fraction": 0.1}
    return replace(built, data=DataConfig("corpus", options))


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(config, folder, quiet=True)
    return folder


def test_metrics_are_reported_by_family(run):
    summary = json.loads((run / SUMMARY).read_text())
    names = ["descriptors_mae", "gap_mae", "dipole_mae", "charges_mae", "atoms_accuracy", "bonds_accuracy"]
    assert summary["metric"] == "measure"
    assert list(summary["units"]) == names
    assert summary["units"]["gap_mae"] == "eV"
    for split in ("train", "valid", "test"):
        assert list(summary[split]["measure"]) == names
        assert all(np.isfinite(value) for value in summary[split]["measure"].values())
    with (run / METRICS).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["5", "10"]
    assert float(rows[-1]["valid_accuracy_bonds"]) >= 0
    best = min(
        rows, key=lambda row: abs(float(row["valid_mae_gap_eV"]) - summary["valid"]["measure"]["gap_mae"])
    )
    assert float(best["valid_mae_gap_eV"]) == pytest.approx(summary["valid"]["measure"]["gap_mae"], rel=1e-5)


def test_an_interrupted_run_ends_with_the_same_weights(config, run, tmp_path, monkeypatch):
    original = Trainer._record_step

    def stop(self, batch, loss):
        if self.progress.step == 7:
            raise KeyboardInterrupt
        original(self, batch, loss)

    monkeypatch.setattr(Trainer, "_record_step", stop)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", quiet=True)
    monkeypatch.setattr(Trainer, "_record_step", original)
    train(config, tmp_path / "run", resume=True, quiet=True)
    assert (tmp_path / "run" / MODEL).read_bytes() == (run / MODEL).read_bytes()


def test_it_predicts_in_the_units_of_its_targets(config, run):
    model = load_model(run)
    assert model.target_names == ("atoms", "bonds", "rings", "gap", "dipole")
    assert model.target_units == ("", "", "", "eV", "D")
    values = model.predict(["CCO", "c1ccccc1C(=O)O"])
    assert values.shape == (2, 5)
    assert np.isfinite(values).all()
    assert abs(values[:, 0] - model.targets.mean[0]).max() < 5 * model.targets.std[0]
    dataset = build_dataset(config.data.name, dict(config.data.options))
    errors = evaluate(model, dataset, "valid", progress=False)
    gap = next(target for target in errors["targets"] if target["name"] == "gap")
    summary = json.loads((run / SUMMARY).read_text())
    assert gap["mae"] == pytest.approx(summary["valid"]["measure"]["gap_mae"], rel=1e-4)
