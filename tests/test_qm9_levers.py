"""The program that compares options on QM9, with few molecules and small models."""

import csv
import gzip
import json

import pytest

from tests.programs import load_program
from tests.real_data import embedded_smiles


@pytest.fixture
def program(monkeypatch):
    program = load_program("qm9_levers")
    sizes = {"model.num_layers": "1", "model.dim": "16", "model.ffn_dim": "16", "model.num_heads": "2"}
    monkeypatch.setattr(program, "PLAIN", {**program.PLAIN, **sizes})
    entries = {"Muon": (4, program.MUON), "Muon, distances": (4, {**program.MUON, **program.GEOMETRY})}
    monkeypatch.setattr(program, "ENTRIES", entries)
    monkeypatch.setattr(program, "ROWS", 40)
    monkeypatch.setattr(program, "FITTED_ROWS", 32)
    return program


@pytest.fixture
def data(tmp_path):
    smiles = embedded_smiles()[7::100][:80]
    for name, part in (("train", smiles[:60]), ("valid", smiles[60:])):
        with gzip.open(tmp_path / f"{name}.csv.gz", "wt", newline="") as file:
            csv.writer(file).writerows([["smiles", "gap_ev"], *((text, len(text) / 10) for text in part)])
    return tmp_path


def test_each_entry_is_trained_once_and_recorded(program, data, tmp_path, monkeypatch):
    runs, out = tmp_path / "runs", tmp_path / "results"
    words = ["--data", str(data), "--runs", str(runs), "--out", str(out), "--seeds", "2"]
    program.main(words)
    monkeypatch.setattr(program, "train", None)  # nothing is trained again
    program.main(words)
    next(runs.glob("*.json")).unlink()  # the recorded run remains
    program.main(["--collect", "--runs", str(runs), "--out", str(out)])
    result = json.loads((out / "qm9_levers.json").read_text())
    assert [entry["label"] for entry in result["entries"]] == ["Muon", "Muon, distances"]
    for entry in result["entries"]:
        assert entry["seeds"] == 2
        assert entry["test_mae"]["mean"] > 0
        assert entry["test_mae"]["sd"] > 0
    assert result["entries"][1]["parameters"] > result["entries"][0]["parameters"]
    assert {run["geometry_seconds"] is None for run in result["runs"] if run["label"] == "Muon"} == {True}
    with (runs / "rows" / "train.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 32


def test_nothing_to_collect_is_an_error(program, tmp_path):
    with pytest.raises(SystemExit, match="no finished run"):
        program.main(["--collect", "--runs", str(tmp_path)])
