"""The program that trains on all of QM9, on the CPU with few molecules and a small model."""

import json

import numpy as np
import pytest

from molslice.data.molecules.prepare import Featurizing
from molslice.data.molecules.prepare_files import prepare_files
from molslice.inference.load import load_model
from tests.programs import load_program
from tests.real_data import embedded_smiles


@pytest.fixture
def program(monkeypatch):
    program = load_program("qm9_all_rows")
    sizes = {"num_layers": 1, "dim": 16, "ffn_dim": 16, "num_heads": 2}
    small = {f"model.{key}": str(value) for key, value in sizes.items()}
    for model, (store, settings) in program.MODELS.items():
        kept = {key: value for key, value in settings.items() if key != "model.preset"}
        monkeypatch.setitem(program.MODELS, model, (store, kept | small))
    return program


@pytest.fixture
def stores(tmp_path):
    smiles = embedded_smiles()[7::100][:80]
    for name, part in (("train", smiles[:60]), ("train_geometry", smiles[:60]), ("valid", smiles[60:])):
        rows = "".join(f"{text},{len(text) / 10}\n" for text in part)
        (tmp_path / f"{name}.csv").write_text(f"smiles,gap_ev\n{rows}")
        how = Featurizing(geometry=name.endswith("geometry"))
        prepare_files([tmp_path / f"{name}.csv"], tmp_path / name, targets=["gap_ev"], how=how)
    return tmp_path


@pytest.fixture
def words(stores, tmp_path):
    """Return the words of a command without the attentions and the epochs."""
    given = ["--stores", stores, "--device", "cpu", "--precision", "32"]
    given += ["--runs", tmp_path / "runs", "--out", tmp_path / "results", "--rates", "4e-4"]
    return [str(word) for word in given]


def test_each_attention_is_trained_once_and_recorded(program, words, tmp_path, monkeypatch):
    words = [*words, "--model", "small, AdamW", "--attentions", "softmax,slice_sort", "--epochs", "4"]
    words += ["--search-epochs", "2", "--rates", "1e-3,2e-3"]
    program.main(words)
    trained = {path.stem for path in (tmp_path / "runs").glob("*.json")}
    assert {name for name in trained if name.endswith("_2")} == {
        f"small-AdamW_{attention}_{rate}_2"
        for attention in ("softmax", "slice_sort")
        for rate in ("1e-3", "2e-3")
    }
    assert len(trained) == 6
    monkeypatch.setattr(program, "train", None)  # nothing is trained again
    program.main(words)
    program.main([*words, "--collect"])
    rows = json.loads((tmp_path / "results" / "qm9_all_rows.json").read_text())["rows"]
    assert [row["attention"] for row in rows] == ["slice_sort", "softmax"]
    for row in rows:
        assert row["test_mae"] > 0
        assert row["epochs"] == 4
        assert str(row["rate"]) == str(float(min(row["searched"], key=row["searched"].get)))
    assert rows[0]["parameters"] < rows[1]["parameters"]


def test_a_model_that_learns_distances_is_added_to_the_recorded_ones(program, words, tmp_path):
    recorded = {"model": "small, AdamW", "attention": "softmax", "test_mae": 0.5, "seed": 0}
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "qm9_all_rows.json").write_text(json.dumps({"rows": [recorded]}))
    words = [*words, "--model", "4 x 128", "--attentions", "softmax", "--epochs", "1"]
    program.main(words)
    program.main([*words, "--seed", "1"])
    program.main([*words, "--collect"])
    former, added, again = json.loads((tmp_path / "results" / "qm9_all_rows.json").read_text())["rows"]
    assert former == recorded
    assert added["model"] == again["model"] == "4 x 128"
    assert (added["seed"], again["seed"]) == (0, 1)
    assert added["test_mae"] != again["test_mae"]
    model = load_model(str(tmp_path / "runs" / "4-x-128_softmax_4e-4_1")).model
    assert any(name.startswith("distance_head") for name, _ in model.named_parameters())


def test_mean_of_two_models_has_the_error_of_their_mean_prediction(program, words, stores, tmp_path):
    words = [*words, "--attentions", "softmax", "--epochs", "1"]
    models = ["4 x 128", "8 x 128"]
    for model in models:
        program.main([*words, "--model", model])
    program.main([*words, "--mean", ";".join(models)])
    program.main([*words, "--collect"])
    rows = json.loads((tmp_path / "results" / "qm9_all_rows.json").read_text())["rows"]
    *members, mean = sorted(rows, key=lambda row: row["parameters"])
    assert mean["model"] == "mean of *4 x 128* and *8 x 128*"
    assert mean["parameters"] == sum(row["parameters"] for row in members)
    table = (stores / "valid.csv").read_text().split()[1:]
    smiles, gaps = zip(*(row.rsplit(",", 1) for row in table), strict=True)
    loaded = [load_model(tmp_path / "runs" / name) for name in mean["run"]]
    predicted = np.mean([model.predict(list(smiles)) for model in loaded], axis=0)
    assert mean["test_mae"] == pytest.approx(np.abs(predicted - np.array(gaps, float)).mean(), rel=1e-4)


def test_nothing_to_collect_is_an_error(program, tmp_path):
    with pytest.raises(SystemExit, match="no attention is finished"):
        program.main(["--collect", "--runs", str(tmp_path)])
