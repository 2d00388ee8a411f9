"""One row out for each row in, the counts by reason, and `strict`."""

import csv
import gzip
import io
import json
import os

import numpy as np
import pyarrow
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from molslice.cli import main
from molslice.inference.embedding import Embedder
from molslice.inference.tables.sinks import ENDINGS
from molslice.inference.tables.table import predict_table
from molslice.types import MolsliceError
from tests.inference.models import checkpoint_folder, untrained

GOOD = ["CCO", "c1ccccc1", " CC\t", "[Na+].[Cl-]", "C[C@H](N)O"]
BAD = "smiles,id\nCCO,1\nC(,2\nCC,3\n,4\nCCCC(,5\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("model"))


def write_input(folder, kind, cells):
    path = folder / f"in{kind}"
    if kind == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["id", "smiles"], *enumerate(cells)])
    elif kind == ".jsonl":
        path.write_text("".join(json.dumps({"id": i, "smiles": cell}) + "\n" for i, cell in enumerate(cells)))
    else:
        texts = pyarrow.array(cells, pyarrow.string())
        parquet.write_table(pyarrow.table({"id": range(len(cells)), "smiles": texts}), path)
    return path


def read_output(path):
    """Return id, value and reason of each row; a `.npy` file has values only."""
    if path.suffix == ".npy":
        return [(i, value, None) for i, (value, *_) in enumerate(np.load(path))]
    if path.suffix == ".parquet":
        rows = parquet.read_table(path).to_pylist()
    else:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        if ".jsonl" in path.name:
            rows = [json.loads(line) for line in text.split("\n")[:-1]]
        else:
            rows = list(csv.DictReader(io.StringIO(text, newline="")))
    name = next(name for name in rows[0] if name in ("gap_eV", "embedding_0"))
    return [
        (int(row["id"]), float("nan" if row[name] is None else row[name]), row["error"] or None)
        for row in rows
    ]


CELLS = st.one_of(
    st.sampled_from(GOOD),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.text("CNO()[]=#123.@+-%|: \t\r\n\"',;\\/\0", max_size=12),
    st.integers(1, 400).map("C".__mul__),
    st.integers(1, 60).map(lambda depth: "(" * depth),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(CELLS, min_size=1, max_size=8),
    st.sampled_from([".csv", ".jsonl", ".parquet"]),
    st.sampled_from(ENDINGS),
    st.sampled_from([1, 3, 4096]),
)
@example(cells=["C\n\0", "\0\r\n"], given_kind=".csv", written_kind=".csv", chunk_rows=1)
def test_one_row_out_for_each_row_in(model, tmp_path, cells, given_kind, written_kind, chunk_rows):
    embedder = Embedder(model) if written_kind == ".npy" else model
    embedder.chunk_rows = chunk_rows
    out = tmp_path / f"out{written_kind}"
    source = write_input(tmp_path, given_kind, cells)
    report = predict_table(embedder, source, out, smiles_column="smiles", endings=ENDINGS, progress=False)
    rows = read_output(out)
    assert [row[0] for row in rows] == list(range(len(cells)))
    for cell, (_, value, reason) in zip(cells, rows, strict=True):
        assert np.isnan(value) if reason else written_kind == ".npy" or np.isfinite(value)
        assert np.isfinite(value) or cell not in GOOD
    failed = sum(bool(np.isnan(value)) for _, value, _ in rows)
    assert (report.rows, report.failed) == (len(cells), failed)
    assert sum(kind["count"] for kind in report.refusals) == failed
    assert os.listdir(tmp_path).count(out.name) == 1


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(BAD)
    return path


def test_failed_rows_are_counted_by_reason(model, source, tmp_path):
    report = predict_table(model, source, tmp_path / "out.csv", progress=False)
    assert [(kind["reason"], kind["count"]) for kind in report.refusals] == [
        ("not valid SMILES: parenthesis at position … is not closed", 2),
        ("empty SMILES", 1),
    ]
    assert report.refusals[0]["examples"][1] == {
        "where": f"{source}, row 5 (line 6)",
        "smiles": "CCCC(",
        "reason": "not valid SMILES: parenthesis at position 5 is not closed",
    }


@pytest.mark.parametrize("verb", ["predict", "embed", "prepare"])
def test_the_verbs_print_the_same_counts(verb, source, tmp_path, capsys):
    out = tmp_path / "out.csv"
    words = [verb, str(checkpoint_folder(tmp_path / "model")), "--input", str(source), "--output", str(out)]
    words = ["prepare", str(source), "--out", str(tmp_path / "store")] if verb == "prepare" else words
    assert main(words) == 0
    printed = "".join(capsys.readouterr()).replace("molslice: ", "")
    reason = "not valid SMILES: parenthesis at position {} is not closed"
    example = f"{source}, row 2 (line 3): 'C(': {reason.format(2)}"
    assert f"2 failed: {reason.format('…')}\n  {example}\n" in printed
    assert f"\n1 failed: {source}, row 4 (line 5): empty SMILES\n" in printed
    words[words.index(str(tmp_path / "store" if verb == "prepare" else out))] = str(tmp_path / "again.csv")
    assert main([*words, "--json", "--quiet"]) == 0
    refusals = json.loads(capsys.readouterr().out)["refusals"]
    assert [(kind["reason"], kind["count"]) for kind in refusals] == [
        ("not valid SMILES: parenthesis at position … is not closed", 2),
        ("empty SMILES", 1),
    ]


def test_listed_smiles_are_counted_too(tmp_path, capsys):
    words = ["predict", str(checkpoint_folder(tmp_path / "model")), "--smiles", "CCO", "C("]
    assert main(words) == 0
    reason = "not valid SMILES: parenthesis at position 2 is not closed"
    assert f"molslice: 1 failed: SMILES 2: 'C(': {reason}\n" in capsys.readouterr().err
    assert main([*words, "--json", "--quiet"]) == 0
    found = capsys.readouterr()
    assert found.err == ""
    assert (json.loads(found.out)["failed"], json.loads(found.out)["refusals"][0]["count"]) == (1, 1)
    assert main([*words, "--strict"]) == 1
    assert capsys.readouterr() == (
        "",
        "molslice: error: SMILES 2: 'C(': not valid SMILES: parenthesis at position 2 is not closed\n",
    )


@pytest.mark.parametrize("kind", [*ENDINGS, "-"])
@pytest.mark.parametrize("chunk_rows", [1, 4096])
def test_strict_stops_at_the_first_failed_row_and_writes_nothing(
    model, source, tmp_path, kind, chunk_rows, monkeypatch, capsys
):
    monkeypatch.setattr(model, "chunk_rows", chunk_rows)
    before = sorted(os.listdir(tmp_path))
    target = "-" if kind == "-" else tmp_path / f"out{kind}"
    with pytest.raises(MolsliceError, match=r"in.csv, row 2 \(line 3\): 'C\(': not valid SMILES: .* is not"):
        predict_table(model, source, target, endings=ENDINGS, strict=True, progress=False)
    assert sorted(os.listdir(tmp_path)) == before
    assert capsys.readouterr().out == ""


def test_strict_forgets_the_rows_before_so_that_the_corrected_file_can_be_predicted(
    model, source, tmp_path, monkeypatch
):
    monkeypatch.setattr(model, "chunk_rows", 1)
    source.write_text("smiles\nC\nCC\nCCC\nC(\n")
    with pytest.raises(MolsliceError, match="row 4"):
        predict_table(model, source, tmp_path / "out.csv", strict=True, workers=1, progress=False)
    source.write_text("smiles\nC\nCC\nCCC\nCCCC\n")
    assert predict_table(model, source, tmp_path / "out.csv", strict=True, progress=False).failed == 0


def test_strict_writes_good_rows_to_standard_output_at_the_end(model, source, capsys):
    source.write_text('smiles,note\nC,"a\r\nü"\n')
    predict_table(model, source, "-", progress=False)
    plain = capsys.readouterr().out
    predict_table(model, source, "-", strict=True, progress=False)
    assert capsys.readouterr().out == plain


def test_strict_names_the_first_row_on_the_command_line(source, tmp_path, capsys):
    folder = str(checkpoint_folder(tmp_path / "model"))
    for verb, kind in (("predict", ".csv"), ("embed", ".npy")):
        out = tmp_path / f"out{kind}"
        assert main([verb, folder, "--input", str(source), "--output", str(out), "--strict"]) == 1
        assert "row 2 (line 3): 'C(': not valid SMILES" in capsys.readouterr().err
        assert not out.exists()
    assert main(["predict", folder, "--submission", str(tmp_path / "s"), "--strict"]) == 2
