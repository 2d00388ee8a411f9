"""Learned fingerprints: what they are, equal in every batch, and written to every format."""

import csv
import json
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet

from molslice.chem.featurize import molecule_arrays
from molslice.cli import main
from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.inference import load, network
from molslice.inference.embedding import Embedder
from molslice.inference.tables.sinks import ENDINGS
from molslice.inference.tables.table import predict_table
from molslice.types import MolsliceError
from tests.inference.models import TWO, checkpoint_folder, embedded_smiles, untrained

WIDTH = 32


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("model"))


def test_an_embedding_is_the_graph_token_and_the_mean_of_the_atoms(model):
    smiles = ["CCO", "C", "c1ccccc1C(=O)O"]
    found = model.embed(smiles)
    assert found.shape == (3, WIDTH)
    assert found.dtype == np.float32
    for row, text in enumerate(smiles):
        batch = collate(MoleculeStore.in_memory([molecule_arrays(text)]), [0])
        with torch.no_grad():
            tokens = model.model.encode(batch).tokens[0]
            expected = torch.cat([tokens[0], tokens[1:].mean(0)])
            prediction = model.targets.to_unit(model.model.readout(tokens[0]))
        np.testing.assert_allclose(found[row], expected, atol=1e-5)
        np.testing.assert_allclose(model.predict([text]), prediction, rtol=1e-5)


def test_it_does_not_depend_on_the_other_rows(model, monkeypatch):
    smiles = embedded_smiles(60)
    together = model.embed(smiles)
    alone = np.concatenate([model.embed([text]) for text in smiles])
    np.testing.assert_allclose(together, alone, atol=2e-5)
    np.testing.assert_array_equal(model.embed(smiles, workers=2), together)
    monkeypatch.setattr(network, "CPU_TOKENS", 64)
    monkeypatch.setattr(model, "chunk_rows", 7)
    np.testing.assert_allclose(model.embed(smiles), together, atol=2e-5)
    np.testing.assert_allclose(model.embed(["OCC"]), model.embed(["CCO"]), atol=0)


@pytest.mark.parametrize("queued", [2, 3, 100])
def test_results_may_be_fetched_after_several_batches(queued, model, monkeypatch):
    smiles = embedded_smiles(60)
    monkeypatch.setattr(network, "CPU_TOKENS", 64)
    expected = model.embed(smiles), model.predict(smiles)
    monkeypatch.setattr(network, "CPU_QUEUE", queued)
    np.testing.assert_array_equal(model.embed(smiles), expected[0])
    np.testing.assert_array_equal(model.predict(smiles), expected[1])


def test_a_row_that_cannot_be_read_is_nan(model):
    smiles: Any = ["CCO", "C(", None, "CCO"]
    found = Embedder(model).predict_with_errors(smiles)
    assert np.isnan(found.values[1:3]).all()
    np.testing.assert_array_equal(found.values[0], found.values[3])
    assert [error is None for error in found.errors] == [True, False, False, True]
    assert found.errors[2] == "no SMILES given"
    assert model.embed([]).shape == (0, WIDTH)
    assert model.embed("CCO").shape == (1, WIDTH)
    with pytest.raises(MolsliceError, match="molecules must be a SMILES"):
        model.embed(b"CCO")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval": 0.9}, "has no intervals"),
        ({"domain": True}, "has no training molecules to compare with"),
    ],
)
def test_an_embedding_has_no_uncertainty(model, options, message):
    with pytest.raises(MolsliceError, match=message):
        Embedder(model).predict_with_errors(["CCO"], **options)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text('id,smiles,note\n1,CCO,"a,b"\n2,XXX,\n3,c1ccccc1,x\n')
    return path


def embedded(model, table, target, **options):
    return predict_table(Embedder(model), table, target, endings=ENDINGS, progress=False, **options)


def test_every_format_has_the_same_numbers(model, table, tmp_path):
    expected = model.embed(["CCO", "XXX", "c1ccccc1"])
    columns = [f"embedding_{place}" for place in range(WIDTH)]
    report = embedded(model, table, tmp_path / "out.npy")
    assert (report.rows, report.failed) == (3, 1)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    embedded(model, table, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "smiles", "note", *columns, "error"]
    np.testing.assert_array_equal(np.array([[row[c] for c in columns] for row in rows], np.float32), expected)
    assert [row["error"] for row in rows] == ["", "not valid SMILES: unknown symbol 'X' at position 1", ""]
    embedded(model, table, tmp_path / "out.parquet")
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found.column_names == ["id", "smiles", "note", *columns, "error"]
    assert found["note"].to_pylist() == ["a,b", "", "x"]
    assert found["error"].to_pylist() == [None, "not valid SMILES: unknown symbol 'X' at position 1", None]
    numbers = np.stack([found[name].to_numpy() for name in columns], 1)
    np.testing.assert_array_equal(numbers, expected)
    assert numbers.dtype == np.float32


@pytest.mark.parametrize("ending", [".npy", ".parquet", ".csv.gz"])
def test_many_chunks_give_the_same_file_with_workers(model, tmp_path, monkeypatch, ending):
    monkeypatch.setattr(model, "chunk_rows", 8)
    source = tmp_path / "in.csv"
    source.write_text("smiles\n" + "\n".join(embedded_smiles(50)) + "\n")
    files = [tmp_path / f"{workers}{ending}" for workers in (0, 2)]
    for workers, file in zip((0, 2), files, strict=True):
        embedded(model, source, file, workers=workers)
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("ending", [".npy", ".parquet", ".csv"])
def test_an_error_leaves_no_file(model, table, tmp_path, monkeypatch, ending):
    monkeypatch.setattr(type(model), "embed_store", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        embedded(model, table, tmp_path / f"out{ending}")
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_parquet_needs_distinct_columns(model, tmp_path):
    twice = tmp_path / "twice.csv"
    twice.write_text("smiles,a,a\nCCO,1,2\n")
    with pytest.raises(MolsliceError, match=r"several columns named 'a'.*out.parquet is not written"):
        embedded(model, twice, tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_a_model_without_embedding_is_refused(tmp_path):
    folder = checkpoint_folder(tmp_path / "gin", TWO, model={"name": "gin_virtual"})
    with pytest.raises(MolsliceError, match="is a gin_virtual, which has no embedding"):
        load.load_network(folder).embed(["CCO"])


def test_the_command_line(table, tmp_path, capsys):
    folder = str(checkpoint_folder(tmp_path / "model"))
    out = tmp_path / "out.npy"
    assert main(["embed", folder, "--input", str(table), "--output", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["size"], found["rows"], found["failed"]) == (WIDTH, 3, 1)
    assert "row 2 (line 3): 'XXX': not valid SMILES" in found["first_failure"]
    assert np.load(out).shape == (3, WIDTH)
    table.write_text("smiles\nXXX\n")
    assert main(["embed", folder, "--input", str(table), "--output", str(out)]) == 1
    error = capsys.readouterr().err
    assert "none of the 1 SMILES in column" in error
    assert f"; {out} has no embeddings" in error
    wrong = str(tmp_path / "out.txt")
    assert main(["embed", folder, "--input", str(table), "--output", wrong]) == 1
    assert "must end in .csv or .csv.gz or .parquet or .jsonl or .jsonl.gz or .npy" in capsys.readouterr().err
