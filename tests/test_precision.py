"""The program that compares precisions, with few molecules and a small model."""

import json

import pytest

from tests.programs import load_program


@pytest.fixture
def program(monkeypatch, tmp_path):
    program = load_program("precision")
    small = {"model.num_layers": "1", "model.dim": "16", "model.ffn_dim": "16", "model.num_heads": "2"}
    (tmp_path / "rows.csv").write_text(
        "smiles,homolumogap\n" + "".join(f"{'C' * n}O,{n % 7 / 2}\n" for n in range(1, 61))
    )
    data = {"data.name": "csv", "data.path": str(tmp_path / "rows.csv"), "data.units": "eV"}
    kept = {key: value for key, value in program.SETTINGS.items() if not key.startswith("data.")}
    settings = {**kept, **small, **data, "data.target_columns": "homolumogap"}
    monkeypatch.setattr(program, "SETTINGS", {**settings, "data.cache_dir": str(tmp_path / "cache")})
    monkeypatch.setattr(
        program, "run_all", lambda function, calls, _: [(call, function(*call)) for call in calls]
    )
    return program


def test_precisions_of_a_seed_are_compared_and_nothing_is_trained_twice(program, tmp_path, monkeypatch):
    words = ["--attentions", "softmax", "--precisions", "32,bf16-weights", "--seeds", "2", "--epochs", "1"]
    words += ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "results")]
    program.main(words)
    monkeypatch.setattr(program, "train", None)
    program.main(words)
    result = json.loads((tmp_path / "results" / "precision.json").read_text())
    assert len(result["rows"]) == 4
    plain, weights = sorted(result["summary"], key=lambda row: row["precision"])
    assert plain["test_mae"]["mean"] > 0
    assert "test_change_percent" not in plain
    by_seed = {(row["precision"], row["seed"]): row["test_mae"] for row in result["rows"]}
    changes = [100 * (by_seed["bf16-weights", seed] / by_seed["32", seed] - 1) for seed in range(2)]
    assert weights["test_change_percent"]["mean"] == pytest.approx(sum(changes) / 2)
    assert abs(weights["test_change_percent"]["mean"]) < 20
