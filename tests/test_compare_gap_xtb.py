"""The program that compares attentions on the embedded data."""

import json

import pytest

from tests.programs import load_program


@pytest.fixture
def program(monkeypatch):
    program = load_program("compare_gap_xtb")
    trained = []

    def measure(label, config, run):
        trained.append((label, config.seed))
        summary = {
            "seed": config.seed,
            "units": {"gap": "eV"},
            "parameters": 10,
            "parameters_without_embeddings": 5,
            "steps": config.training.max_steps,
            "seconds": 1.0,
            "valid": {"mae": {"gap": 0.2}},
        }
        return {"label": label, "summary": summary, "canonical": 0.1 * (1 + config.seed), "shuffled": [0.5]}

    monkeypatch.setattr(program, "measure", measure)
    monkeypatch.setattr(program, "draw", lambda runs, options: None)
    monkeypatch.setattr(program, "run_all", lambda run, calls, jobs: [(call, run(*call)) for call in calls])
    program.trained = trained
    return program


def entries_of(path):
    return json.loads((path / "compare_gap_xtb.json").read_text())["entries"]


def test_add_measures_only_entries_that_are_not_recorded(program, tmp_path):
    words = ["--out", str(tmp_path), "--runs", str(tmp_path / "runs"), "--steps", "7", "--seeds", "2"]
    program.main([*words, "--entries", "softmax,flow"])
    first = entries_of(tmp_path)
    program.trained.clear()
    program.main([*words, "--add", "--entries", "softmax,linear"])
    assert program.trained == [("linear", 0), ("linear", 1)]
    entries = entries_of(tmp_path)
    assert entries[:2] == first
    assert [entry["label"] for entry in entries] == ["softmax", "flow", "linear"]
    assert entries[2]["test_mae"]["mean"] == pytest.approx(0.15)
    with pytest.raises(SystemExit, match="compare_gap_xtb.json was measured with other settings"):
        program.main([*words, "--add", "--entries", "mean", "--set", "optimizer.lr=1e-3"])
    assert entries_of(tmp_path) == entries
