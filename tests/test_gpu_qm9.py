"""The program that trains on all of QM9, on the CPU with few molecules and a small model."""

import json

import pytest

from molslice.data.molecules.prepare import Featurizing
from molslice.data.molecules.prepare_files import prepare_files
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
def stores(tmp_path):
    smiles = embedded_smiles()[7::100][:80]
    for name, part in (("train", smiles[:60]), ("valid", smiles[60:])):
        rows = "".join(f"{text},{len(text) / 10}\n" for text in part)
        (tmp_path / f"{name}.csv").write_text(f"smiles,gap_ev\n{rows}")
        prepare_files([tmp_path / f"{name}.csv"], tmp_path / name, targets=["gap_ev"], how=Featurizing())
    return tmp_path


def test_each_attention_is_trained_once_and_recorded(program, stores, tmp_path, monkeypatch):
    runs, out = tmp_path / "runs", tmp_path / "results"
    words = ["--stores", stores, "--attentions", "softmax,slice_sort", "--epochs", 4, "--rates", "1e-3,2e-3"]
    words += ["--search-epochs", 2, "--device", "cpu", "--precision", "32", "--runs", runs, "--out", out]
    words = [str(word) for word in words]
    program.main(words)
    trained = {path.stem for path in runs.glob("*.json")}
    assert {name for name in trained if name.endswith("_2")} == {
        f"{attention}_{rate}_2" for attention in ("softmax", "slice_sort") for rate in ("1e-3", "2e-3")
    }
    assert len(trained) == 6
    monkeypatch.setattr(program, "train", None)  # nothing is trained again
    program.main(words)
    program.main([*words, "--collect"])
    rows = json.loads((out / "gpu_qm9.json").read_text())["rows"]
    assert [row["attention"] for row in rows] == ["slice_sort", "softmax"]
    for row in rows:
        assert row["test_mae"] > 0
        assert row["epochs"] == 4
        assert str(row["rate"]) == str(float(min(row["searched"], key=row["searched"].get)))
    assert rows[0]["parameters"] < rows[1]["parameters"]


def test_nothing_to_collect_is_an_error(program, tmp_path):
    with pytest.raises(SystemExit, match="no attention is finished"):
        program.main(["--collect", "--runs", str(tmp_path)])
