"""The program that trains on all of QM9, on the CPU with few molecules and a small model."""

import gzip
import json

import pytest

from tests.programs import load_program
from tests.real_data import embedded_smiles


@pytest.fixture
def program(monkeypatch):
    program = load_program("gpu_qm9")
    sizes = {"num_layers": 1, "dim": 16, "ffn_dim": 16, "num_heads": 2}
    small = {key: value for key, value in program.SETTINGS.items() if key != "model.preset"}
    small |= {f"model.{key}": str(value) for key, value in sizes.items()}
    monkeypatch.setattr(program, "SETTINGS", small)
    return program


@pytest.fixture
def data(tmp_path):
    smiles = embedded_smiles()[7::100][:80]
    for name, part in (("train", smiles[:60]), ("valid", smiles[60:])):
        rows = "".join(f"{text},{len(text) / 10}\n" for text in part)
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(f"smiles,gap_ev\n{rows}".encode()))
    return tmp_path


def test_each_attention_is_trained_once_and_recorded(program, data, tmp_path, monkeypatch):
    runs, out = tmp_path / "runs", tmp_path / "results"
    words = ["--data", data, "--attentions", "softmax,slice_sort", "--minutes", 0.01]
    words += ["--device", "cpu", "--precision", "32", "--runs", runs, "--out", out]
    words = [str(word) for word in words]
    program.main(words)
    first = {path.name: path.read_text() for path in runs.glob("*.json")}
    assert set(first) == {"softmax.json", "slice_sort.json"}
    monkeypatch.setattr(program, "train", None)  # nothing is trained again
    program.main(words)
    program.main([*words, "--collect"])
    rows = json.loads((out / "gpu_qm9.json").read_text())["rows"]
    assert [row["attention"] for row in rows] == ["slice_sort", "softmax"]
    assert all(row["test_mae"] > 0 and row["valid_mae"] > 0 and row["epochs"] > 0 for row in rows)
    assert rows[0]["parameters"] < rows[1]["parameters"]


def test_nothing_to_collect_is_an_error(program, tmp_path):
    with pytest.raises(SystemExit, match="no attention is finished"):
        program.main(["--collect", "--runs", str(tmp_path)])
