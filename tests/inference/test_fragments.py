"""The choice of fragments in predictions, stores, data sets and fits."""

import json

import numpy as np
import pytest

from molslice.chem.smiles import MAX_PARSED_ATOMS
from molslice.cli import main
from molslice.data.molecules.fragments import choose_fragments
from molslice.data.molecules.prepare import Featurizing
from molslice.data.molecules.prepare_files import prepare_files
from molslice.data.molecules.prepared import Prepared
from molslice.data.molecules.store import MoleculeStore
from molslice.files.tables import Unreadable
from molslice.inference.embedding import Embedder
from molslice.inference.load import load_model
from molslice.inference.tables.table import predict_table
from molslice.types import MolsliceError
from tests.inference.models import checkpoint_folder, embedded_smiles

MIXTURES = ["CC(=O)[O-].[Na+]", "CCO", "c1ccccc1.Cl", "bad.", "C1.C1"]
SPLIT = {"kind": "random", "fractions": [0.4, 0.3, 0.3]}
ALONE = ["CC(=O)[O-]", "CCO", "c1ccccc1", "bad.", "C1.C1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkpoint_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("smiles,gap\n" + "".join(f"{text},{len(text)}\n" for text in MIXTURES))
    return path


@pytest.mark.parametrize("workers", [0, 2])
def test_a_prediction_is_that_of_the_largest_molecule(folder, workers):
    model, plain = load_model(folder, fragment="largest"), load_model(folder)
    for chosen, other in ((model, plain), (Embedder(model), Embedder(plain))):
        found = chosen.predict_with_errors(MIXTURES, workers=workers)
        expected = other.predict_with_errors(ALONE)
        np.testing.assert_array_equal(found.values, expected.values)
        assert (found.errors, found.replaced) == (expected.errors, 2)
        assert other.predict_with_errors(MIXTURES, workers=workers).replaced == 0
    assert model.predict("CC(=O)[O-].[Na+]") != plain.predict("CC(=O)[O-].[Na+]")


def test_a_mixture_is_refused_in_its_row(folder):
    found = load_model(folder, fragment="refuse").predict_with_errors(MIXTURES)
    mixture, unreadable = "mixture of 2 molecules", "not valid SMILES: unknown symbol 'a' at position 2"
    assert found.errors == [mixture, None, mixture, unreadable, None]
    with pytest.raises(MolsliceError, match="unknown fragment 'smallest'"):
        load_model(folder, fragment="smallest")


def test_rows_and_reasons_stay():
    rows, replaced, *_ = choose_fragments(
        [Unreadable("2 cells"), "C.O", "", "C" * MAX_PARSED_ATOMS + ".C"], "refuse"
    )
    assert [getattr(row, "reason", row) for row in rows] == [
        "2 cells",
        "mixture of 2 molecules",
        "",
        "C" * MAX_PARSED_ATOMS + ".C",  # too large for any parser, refused later
    ]
    assert replaced == 0


def test_replaced_mixtures_are_counted_also_in_a_continued_prediction(folder, table, tmp_path, monkeypatch):
    model = load_model(folder, fragment="largest")
    monkeypatch.setattr(model, "chunk_rows", 1)
    whole = predict_table(model, table, tmp_path / "whole.csv", progress=False)
    assert (whole.fragment, whole.replaced, whole.failed) == ("largest", 2, 1)

    predict_molecules = type(model).predict_molecules
    calls = []

    def interrupted(self, molecules, options):
        calls.append(molecules)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return predict_molecules(self, molecules, options)

    monkeypatch.setattr(type(model), "predict_molecules", interrupted)
    with pytest.raises(KeyboardInterrupt):
        predict_table(model, table, tmp_path / "out.csv", progress=False)
    other = load_model(folder)
    other.chunk_rows = 1
    with pytest.raises(MolsliceError, match="unfinished prediction with another treatment of mixtures"):
        predict_table(other, table, tmp_path / "out.csv", resume=True, progress=False)
    continued = predict_table(model, table, tmp_path / "out.csv", resume=True, progress=False)
    assert (continued.replaced, continued.rows) == (2, 5)
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.parametrize("descriptors", [False, True])
def test_a_store_of_the_largest_molecules(table, tmp_path, descriptors):
    chosen = prepare_files(
        [table],
        tmp_path / "store",
        targets=["gap"],
        how=Featurizing(fragment="largest", descriptors=descriptors),
        progress=False,
    )
    alone = tmp_path / "alone.csv"
    rows = [f"{text},{len(mixture)}\n" for text, mixture in zip(ALONE, MIXTURES, strict=True)]
    alone.write_text("smiles,gap\n" + "".join(rows))
    expected = prepare_files(
        [alone], tmp_path / "other", targets=["gap"], how=Featurizing(descriptors=descriptors), progress=False
    )
    stores = [MoleculeStore.open(each.path) for each in (chosen, expected)]
    for name in ("atoms", "bonds", "targets", *(["descriptors"] if descriptors else [])):
        np.testing.assert_array_equal(*(getattr(store, name) for store in stores))
    assert (chosen.report["replaced"], expected.report["replaced"]) == (2, 0)
    assert Prepared(path=chosen.path, split=SPLIT).metadata["fragment"] == "largest"
    assert "fragment" not in Prepared(path=expected.path, split=SPLIT).metadata
    with pytest.raises(MolsliceError, match='fragment was "largest"'):
        prepare_files([table], tmp_path / "store", targets=["gap"], how=Featurizing(descriptors=descriptors))


def test_a_network_trained_on_the_largest_molecules_predicts_them(table, tmp_path, capsys):
    rows = [f"{text}.[Na+].[Cl-],{len(text) / 10}\n" for text in embedded_smiles(30)]
    table.write_text("smiles,gap\n" + "".join(rows))
    config = {
        "data": {"name": "csv", "path": str(table), "target_columns": ["gap"], "fragment": "largest"},
        "model": {"num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2},
        "training": {"max_steps": 2},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    run = tmp_path / "run"
    words = ["train", "--config", str(tmp_path / "config.yaml"), "--out", str(run), "--quiet"]
    assert main(words) == 0
    model = load_model(run)
    assert model.fragment == "largest"
    np.testing.assert_array_equal(model.predict("CCO.[Na+].[Cl-]"), model.predict("CCO"))
    assert load_model(run, fragment="keep").predict("CCO.O") != model.predict("CCO")

    table.with_name("new.csv").write_text("smiles,gap\n" + "".join(f"{s}.O,1\n" for s in embedded_smiles(2)))
    errors = {}
    for choice in ("keep", "largest", None):
        capsys.readouterr()
        words = ["evaluate", str(run), "--split", "all", "--data.name", "csv", "--json", "--quiet"]
        words += ["--data.path", str(table.with_name("new.csv")), "--data.target-columns", "gap"]
        assert main([*words, *(["--fragment", choice] if choice else [])]) == 0
        errors[choice] = json.loads(capsys.readouterr().out)["targets"][0]["mae"]
    expected = np.abs(model.predict(embedded_smiles(2)) - 1).mean()
    assert errors["largest"] == errors[None] == pytest.approx(expected, abs=1e-5)
    assert errors["keep"] != errors["largest"]


def test_the_command_line(folder, table, tmp_path, capsys):
    out = tmp_path / "out.csv"
    words = ["predict", str(folder), "--input", str(table), "--output", str(out), "--fragment", "largest"]
    assert main(words) == 0
    assert "molslice: mixtures: the largest molecule is used in 2 rows\n" in capsys.readouterr().err
    assert main([*words, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["fragment"], found["replaced"]) == ("largest", 2)
    assert main(["predict", str(folder), "--smiles", "C.O", "--fragment", "largest", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["replaced"] == 1
    words = ["embed", str(folder), "--input", str(table), "--output", str(tmp_path / "out.npy")]
    assert main([*words, "--fragment", "refuse", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["refusals"][0]["reason"] == "mixture of … molecules"
    assert main(["prepare", str(table), "--out", str(tmp_path / "store"), "--fragment", "largest"]) == 0
    assert "mixtures: the largest molecule is used in 2 rows\n" in capsys.readouterr().out
    assert main(["prepare", "--dataset", "pcqm4m-v2", "--fragment", "largest"]) == 2
