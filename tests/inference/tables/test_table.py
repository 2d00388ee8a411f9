import csv
import datetime
import errno
import gzip
import io
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from molslice.cli import main
from molslice.files.tables import open_table
from molslice.fitting.fit import fit
from molslice.inference.domain import TrainingDomain
from molslice.inference.load import load_model
from molslice.inference.predictions import NOT_FINITE, Predictions
from molslice.inference.tables.sinks import format_value
from molslice.inference.tables.table import predict_table
from molslice.types import MolsliceError
from tests.inference.models import CLASSES, TWO, checkpoint_folder, embedded_smiles, untrained


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("model"))


def rows_of(path):
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return list(csv.reader(io.StringIO(text, newline="")))


def written(path, text):
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_bytes(text.encode())
    return path


def left(folder, *known):
    """Return the files in a folder except those with known names."""
    return sorted(set(os.listdir(folder)) - set(known))


def test_every_column_stays_as_it_is(model, tmp_path):
    cells = [
        ["001", "CCO", 'said "no"', "NA", "1e5", "a,b", "x"],
        ["", "c1ccccc1", "two\nlines", "nan", "-0.0", " blank ", "ü"],
        ["007", "oops", "None", "", "inf", "TRUE", "y"],
    ]
    header = ["id", "smiles", "note", "note", "n um", "", "Ω"]  # a name twice and one that is empty
    source = tmp_path / "in.csv"
    with source.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *cells])
    report = predict_table(model, source, tmp_path / "out.csv")
    found = rows_of(tmp_path / "out.csv")
    assert found[0] == [*header, "gap_eV", "error"]
    assert [row[:7] for row in found[1:]] == cells
    expected = model.predict(["CCO", "c1ccccc1"])
    np.testing.assert_allclose([float(row[7]) for row in found[1:3]], expected, atol=1e-5)
    assert found[3][7] == "nan"
    assert found[1][8] == found[2][8] == ""
    assert found[3][8]
    assert (report.rows, report.failed) == (3, 1)
    assert "row 3" in report.first_failure
    assert "'oops'" in report.first_failure


@pytest.mark.parametrize("ending_in", [".csv", ".csv.gz"])
@pytest.mark.parametrize("ending_out", [".csv", ".csv.gz"])
def test_packed_and_plain_both_ways(model, tmp_path, ending_in, ending_out):
    smiles = embedded_smiles(9)
    source = written(tmp_path / f"in{ending_in}", "smiles\n" + "".join(f"{text}\n" for text in smiles))
    target = tmp_path / f"out{ending_out}"
    predict_table(model, source, target)
    with target.open("rb") as file:
        assert (file.read(2) == b"\x1f\x8b") == ending_out.endswith(".gz")
    values = [float(row[1]) for row in rows_of(target)[1:]]
    np.testing.assert_allclose(values, model.predict(smiles), atol=1e-5)
    assert left(tmp_path) == sorted([source.name, target.name])


def test_the_same_input_gives_the_same_packed_bytes(model, tmp_path):
    source = written(tmp_path / "in.csv", "smiles\nCCO\n")
    for name in ("a.csv.gz", "b.csv.gz"):
        predict_table(model, source, tmp_path / name)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_stay_in_order_across_chunks(model, tmp_path, monkeypatch, workers):
    smiles = embedded_smiles(60)
    smiles[13] = "bad"
    expected = model.predict(smiles)
    monkeypatch.setattr(model, "chunk_rows", 8)
    source = tmp_path / "in.csv"
    source.write_text("n,smiles\n" + "".join(f"{i},{text}\n" for i, text in enumerate(smiles)))
    report = predict_table(model, source, tmp_path / "out.csv", workers=workers)
    found = rows_of(tmp_path / "out.csv")[1:]
    assert [row[0] for row in found] == [str(i) for i in range(60)]
    np.testing.assert_allclose([float(row[2]) for row in found], expected, atol=1e-5)
    assert (report.rows, report.failed) == (60, 1)
    assert "row 14" in report.first_failure


def test_several_targets_and_another_column(tmp_path):
    model = untrained(tmp_path / "model", targets=TWO)
    source = written(tmp_path / "in.csv", "SMILES,smiles\nCCO,bad\n")
    predict_table(model, source, tmp_path / "out.csv", smiles_column="SMILES")
    header, row = rows_of(tmp_path / "out.csv")
    assert header == ["SMILES", "smiles", "gap_eV", "logp", "error"]
    np.testing.assert_allclose([float(row[2]), float(row[3])], model.predict(["CCO"])[0], atol=1e-5)


def test_a_byte_order_mark_and_windows_line_ends(model, tmp_path):
    source = tmp_path / "in.csv"
    source.write_bytes("﻿smiles,n\r\nCCO,1\r\nCCN,2\r\n".encode())
    predict_table(model, source, tmp_path / "out.csv")
    assert [row[:2] for row in rows_of(tmp_path / "out.csv")] == [["smiles", "n"], ["CCO", "1"], ["CCN", "2"]]


def test_blank_lines(model, tmp_path):
    one = written(tmp_path / "one.csv", "smiles\nCCO\n\nCCN\n\n\n")  # in one column a blank line is a row
    predict_table(model, one, tmp_path / "out.csv")
    assert [row[0] for row in rows_of(tmp_path / "out.csv")[1:]] == ["CCO", "", "CCN"]
    two = written(tmp_path / "two.csv", "smiles,n\nCCO,1\n\nCCN,2\n\n")
    predict_table(model, two, tmp_path / "out.csv")
    assert [row[0] for row in rows_of(tmp_path / "out.csv")[1:]] == ["CCO", "CCN"]


def test_rows_that_cannot_be_read_are_answered_beside_the_others(model, tmp_path):
    long = "x" * 140_000
    text = f'smiles,n\nCCO,{long}\nCCN\nCC,1,2\n"C"C,3\nCCC,\0\n{"C" * 140_000},4\nCCCC,5\n'
    source = written(tmp_path / "in.csv", text)
    report = predict_table(model, source, tmp_path / "out.csv")
    with open_table(tmp_path / "out.csv") as table:
        (chunk,) = table.chunks(10, [])
    rows = chunk.cells
    assert [row[:2] for row in rows[:5]] == [
        ["CCO", long],
        ["CCN", ""],
        ["CC", "1"],
        ["CC", "3"],
        ["CCC", "\0"],
    ]
    assert [row[3] for row in rows[:5]] == [
        "",
        "1 cell, the header has 2",
        "3 cells, the header has 2",
        "',' expected after '\"'",
        "contains a NUL character",
    ]
    assert [row[2] == "nan" for row in rows] == [False, True, True, True, True, True, False]
    assert rows[5][3]
    assert (report.rows, report.failed) == (7, 5)
    assert report.first_failure == f"{source}, row 2 (line 3): 1 cell, the header has 2"


def test_cells_keep_their_line_ends(model, tmp_path):
    cells = ["a\rb", "a\nb", "a\r\nb", " ", '"']
    with (tmp_path / "in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["smiles", "note"], *(["C", cell] for cell in cells)])
    predict_table(model, tmp_path / "in.csv", tmp_path / "out.csv")
    assert [row[1] for row in rows_of(tmp_path / "out.csv")[1:]] == cells


def test_predictions_are_beside_the_measured_values(tmp_path):
    model = untrained(tmp_path / "model", targets=TWO)
    source = written(tmp_path / "in.csv", "smiles,logp,gap_eV_predicted,error\nCCO,1.5,2.5,0.1\n")
    report = predict_table(model, source, tmp_path / "out.csv")
    again = predict_table(model, tmp_path / "out.csv", tmp_path / "twice.csv")
    header, row = rows_of(tmp_path / "out.csv")
    assert header[4:] == ["gap_eV", "logp_predicted", "error_predicted"]
    assert row[:4] == ["CCO", "1.5", "2.5", "0.1"]
    assert ((*report.columns, report.error_column)) == tuple(header[4:])
    assert again.columns == ("gap_eV_predicted_2", "logp_predicted_2")
    assert len(set(rows_of(tmp_path / "twice.csv")[0])) == 10


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    pieces=st.lists(st.sampled_from(["C", ",", "\n", "\r", '"', '""', " ", "\0", "é", "\n\n"]), max_size=60)
)
def test_as_many_rows_come_out_as_go_in(model, tmp_path, monkeypatch, pieces):
    """For any table, rows and cells are kept, or there is a one-line error."""

    def no_model(store, options):
        return Predictions(np.zeros((len(store), 1)), [store.errors.get(row) for row in range(len(store))])

    monkeypatch.setattr(model, "predict_molecules", no_model)
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    target.unlink(missing_ok=True)
    source.write_bytes(b"smiles,n\n" + "".join(pieces).encode())
    try:
        report = predict_table(model, source, target)
    except MolsliceError:
        assert not target.exists()
        return
    with open_table(source) as before, open_table(target) as after:
        cells = [row for chunk in before.chunks(9, []) for row in chunk.cells]
        found = [row for chunk in after.chunks(9, []) for row in chunk.cells]
    assert [row[:2] for row in found] == cells
    assert len(cells) == report.rows
    assert {len(row) for row in found} <= {4}


def test_values_read_back_exactly(model, tmp_path):
    value = np.float32(model.predict(["CCO"])[0])
    assert np.float32(float(format_value(value))) == value
    assert format_value(np.float32("nan")) == "nan"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("formula,n\nC2H6O,1\n", "cannot find the column of SMILES: no column contains SMILES"),
        ("a,b\nCCO,CCC\n", "several could be it (a, b). Name it: --smiles-column"),
        (
            "CCO\nCCC\n",
            "the first line contains the SMILES 'CCO' instead of column names",
        ),
        ("smiles,smiles\nCCO,1\n", "2 columns"),
        ('smiles,n\nCCO,"a\n', "line 2: a quote is never closed"),
    ],
)
def test_what_cannot_be_read(model, tmp_path, content, message):
    source = written(tmp_path / "in.csv", content)
    with pytest.raises(MolsliceError) as caught:
        predict_table(model, source, tmp_path / "out.csv")
    assert message in str(caught.value)
    assert str(source) in str(caught.value)
    assert left(tmp_path, "in.csv") == []


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".jsonl", ".npy"])
@pytest.mark.parametrize("name", ["in.csv", "in.jsonl", "in.smi", "in.sdf", "in.parquet"])
def test_no_rows_give_a_table_without_rows(model, tmp_path, name, ending):
    source, target = tmp_path / name, tmp_path / f"out{ending}"
    if name == "in.parquet":
        parquet.write_table(pyarrow.table({"smiles": pyarrow.array([], "string")}), source)
    else:
        source.write_text("smiles\n" if name == "in.csv" else "")
    report = predict_table(model, source, target, workers=2, endings=[ending])
    assert (report.rows, report.failed, report.refusals) == (0, 0, [])
    if ending in (".csv", ".csv.gz"):
        assert rows_of(target) == [["smiles", "gap_eV", "error"]]
    elif ending == ".parquet":
        assert parquet.read_table(target).to_pydict() == {"smiles": [], "gap_eV": [], "error": []}
    elif ending == ".npy":
        assert np.load(target).shape == (0, 1)
    else:
        assert target.read_bytes() == b""


def test_files_without_rows_do_not_end_a_prediction(model, tmp_path, capsys):
    for name, smiles in (("a", "CCO\n"), ("b", ""), ("c", "CCC\n")):
        (tmp_path / f"{name}.csv").write_text(f"smiles\n{smiles}")
    command = ["predict", model.folder, "--output", tmp_path / "all", "--input"]
    assert main([*map(str, command), *(str(tmp_path / f"{name}.csv") for name in "bac")]) == 0
    assert "2 rows written to 3 files" in capsys.readouterr().err
    lengths = [len(rows_of(tmp_path / "all" / f"{name}.csv")) for name in "abc"]
    assert lengths == [2, 1, 2]
    predict_table(model, [tmp_path / f"{name}.csv" for name in "bac"], tmp_path / "one.csv", metrics=False)
    assert [row[0] for row in rows_of(tmp_path / "one.csv")] == ["smiles", "CCO", "CCC"]


@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_a_command_without_rows_is_done(model, tmp_path, capsys, verb):
    (tmp_path / "in.csv").write_text("smiles,gap\n")
    command = [verb, model.folder, "--input", tmp_path / "in.csv", "--output", tmp_path / "out.csv"]
    options = ["--metrics"] if verb == "predict" else []
    assert main([*map(str, command), *options]) == 0
    said = capsys.readouterr()
    assert "0 rows" in said.err
    assert "error:" not in said.err
    assert len(rows_of(tmp_path / "out.csv")) == 1
    if verb == "predict":
        assert said.out.splitlines()[-1].split() == ["gap", "eV", "0", "-"]


def test_damaged_files(model, tmp_path):
    whole = gzip.compress(("smiles\n" + "CCO\n" * 500).encode())
    (tmp_path / "cut.csv.gz").write_bytes(whole[:-12])
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 4
    (tmp_path / "flipped.csv.gz").write_bytes(flipped)
    (tmp_path / "latin.csv").write_bytes("smiles,n\nCCO,é\n".encode("latin-1"))
    sources = left(tmp_path)
    for name in sources:
        with pytest.raises(MolsliceError, match=rf"{name}.*line [0-9]+:"):
            predict_table(model, tmp_path / name, tmp_path / "out.csv")
    assert left(tmp_path) == sources


def test_rows_before_the_damage_are_counted_but_not_kept(model, tmp_path, monkeypatch):
    monkeypatch.setattr(model, "chunk_rows", 8)
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(b"smiles\n" + b"CCO\n" * 20) + b"rubbish")
    with pytest.raises(
        MolsliceError, match=r"in.csv.gz, after line 21: damaged gzip: .*out.csv is not written"
    ) as caught:
        predict_table(model, tmp_path / "in.csv.gz", tmp_path / "out.csv")
    assert str(caught.value).endswith(
        "out.csv is not written although 16 rows were predicted; out.csv.partial keeps them for --resume"
    )
    assert left(tmp_path) == ["in.csv.gz", "out.csv.partial"]


def test_the_output_that_is_the_input_under_another_name(model, tmp_path):
    source = written(tmp_path / "in.csv", "smiles\nCCO\n")
    (tmp_path / "soft.csv").symlink_to(source)
    (tmp_path / "hard.csv").hardlink_to(source)
    for name in ("soft.csv", "hard.csv"):
        for one, other in ((source, tmp_path / name), (tmp_path / name, source)):
            with pytest.raises(MolsliceError, match="replace the input"):
                predict_table(model, one, other)
    assert source.read_text() == "smiles\nCCO\n"


def test_invalid_file_names_are_refused(model, tmp_path):
    source = written(tmp_path / "in.csv", "smiles\nCCO\n")
    (tmp_path / "folder.csv").mkdir()
    for first, second, message in [
        (tmp_path / "none.csv", tmp_path / "out.csv", "no such file"),
        (tmp_path / "folder.csv", tmp_path / "out.csv", "Is a directory"),
        (source, tmp_path / "folder.csv", "not a regular file"),
        (source, tmp_path / "none" / "out.csv", "does not exist"),
        (source, tmp_path / "out.xlsx", r"\.csv or \.csv\.gz"),
        (source, source, "replace the input"),
    ]:
        with pytest.raises(MolsliceError, match=message):
            predict_table(model, first, second)
    assert source.read_text() == "smiles\nCCO\n"
    assert left(tmp_path) == ["folder.csv", "in.csv"]


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz"])
def test_a_full_disk_leaves_what_was_there(model, tmp_path, monkeypatch, name):
    source = written(tmp_path / "in.csv", "smiles\nCCO\n")
    (tmp_path / name).write_text("what was there")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        predict_table(model, source, tmp_path / name)
    assert caught.value.filename == str(tmp_path / name)
    assert (tmp_path / name).read_text() == "what was there"
    assert left(tmp_path) == ["in.csv", name]


@pytest.mark.parametrize("name", ["out.csv", pytest.param("out.csv.gz", marks=pytest.mark.exhaustive)])
def test_a_limit_of_the_system_is_one_line(tmp_path, name):
    """Uses a limit of the operating system: the process cannot write files above 20,000 bytes."""
    folder = checkpoint_folder(tmp_path / "model")
    notes = np.random.default_rng(0).bytes(40_000).hex()
    rows = "".join(f"CCO,{notes[i * 200 : i * 200 + 200]}\n" for i in range(400))
    source = written(tmp_path / "in.csv", "smiles,note\n" + rows)
    words = ["predict", folder, "--input", source, "--output", tmp_path / name]
    result = subprocess.run(
        [sys.executable, "-m", "molslice", *map(str, words)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 1
    assert result.stderr == f"molslice: error: cannot write {tmp_path / name}: File too large\n"
    assert left(tmp_path) == ["in.csv", "model"]


def interrupt(model, monkeypatch, call):
    """Interrupt a call of the model, counted from 1; return the numbers of rows of all calls."""
    real, calls = type(model).predict_molecules, []

    def interrupted(store, options):
        calls.append(len(store))
        if len(calls) == call:
            raise KeyboardInterrupt
        return real(model, store, options)

    monkeypatch.setattr(model, "predict_molecules", interrupted)
    return calls


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet", "out.jsonl"])
def test_an_interrupted_prediction_continues(model, tmp_path, monkeypatch, name):
    smiles = embedded_smiles(40)
    smiles[7] = "bad"
    source = written(tmp_path / "in.csv", "smiles,gap\n" + "".join(f"{text},1\n" for text in smiles))
    monkeypatch.setattr(model, "chunk_rows", 8)
    whole, target = tmp_path / f"whole.{name}", tmp_path / name
    expected = predict_table(model, source, whole, metrics=True)
    with monkeypatch.context() as patch:
        interrupt(model, patch, 4)
        with pytest.raises(KeyboardInterrupt, match="stopped after 24 rows; the same command with --resume"):
            predict_table(model, source, target)
    assert left(tmp_path) == sorted(["in.csv", f"{name}.partial", whole.name])
    with pytest.raises(
        MolsliceError, match=r"is an unfinished prediction; continue it with --resume, or del"
    ):
        predict_table(model, source, target)
    calls = interrupt(model, monkeypatch, 99)
    report = predict_table(model, source, target, resume=True, metrics=True)
    assert calls == [8, 8]
    assert target.read_bytes() == whole.read_bytes()
    assert report == expected
    assert left(tmp_path) == sorted(["in.csv", name, whole.name])


def test_a_torn_record_is_predicted_again(model, tmp_path, monkeypatch):
    source = written(tmp_path / "in.csv", "smiles\n" + "".join(f"{text}\n" for text in embedded_smiles(40)))
    monkeypatch.setattr(model, "chunk_rows", 8)
    predict_table(model, source, tmp_path / "whole.csv")
    with monkeypatch.context() as patch:
        interrupt(model, patch, 4)
        with pytest.raises(KeyboardInterrupt):
            predict_table(model, source, tmp_path / "out.csv")
    saved = shutil.copytree(tmp_path / "out.csv.partial", tmp_path / "saved")
    size = (saved / "chunks").stat().st_size
    for cut in (size - 1, size // 2, size // 3, 1, 0):
        shutil.copytree(saved, tmp_path / "out.csv.partial", dirs_exist_ok=True)
        os.truncate(tmp_path / "out.csv.partial" / "chunks", cut)
        predict_table(model, source, tmp_path / "out.csv", resume=True)
        assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
        assert not (tmp_path / "out.csv.partial").exists()


@pytest.mark.usefixtures("few_trees")
def test_an_output_in_the_folder_of_a_fit_is_resumed(tmp_path, monkeypatch):
    rows = "".join(f"{text},{len(text)}\n" for text in embedded_smiles(40))
    source = written(tmp_path / "in.csv", "smiles,size\n" + rows)
    fit(source, "size", tmp_path / "model", members=2, encoder=None, refit=False, quiet=True)
    model, target = load_model(tmp_path / "model"), tmp_path / "model" / "out.csv"
    monkeypatch.setattr(model, "chunk_rows", 8)
    before, real, calls = model.checksum(), model.predict_molecules, []

    def interrupted(molecules, options):
        calls.append(len(molecules))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(molecules, options)

    monkeypatch.setattr(model, "predict_molecules", interrupted)
    with pytest.raises(KeyboardInterrupt, match="the same command with --resume continues"):
        predict_table(model, source, target)
    assert (tmp_path / "model" / "out.csv.partial").is_dir()
    assert model.checksum() == before
    assert predict_table(model, source, target, resume=True).rows == 40
    assert calls == [8] * 6
    with (tmp_path / "model" / "rows.csv").open("a") as stream:
        stream.write("\n")
    assert model.checksum() != before


def test_what_cannot_be_resumed_is_refused(model, tmp_path, monkeypatch):
    source = written(tmp_path / "in.csv", "smiles\n" + "".join(f"{text}\n" for text in embedded_smiles(40)))
    monkeypatch.setattr(model, "chunk_rows", 8)
    assert predict_table(model, source, tmp_path / "new.csv", resume=True).rows == 40  # from the beginning
    interrupt(model, monkeypatch, 4)
    with pytest.raises(KeyboardInterrupt):
        predict_table(model, source, tmp_path / "out.csv")
    other = written(tmp_path / "other.csv", source.read_text().replace("smiles\n", "smiles\nCCO\n"))
    with pytest.raises(MolsliceError, match=r"other.csv is not the .*out.csv.partial to start again$"):
        predict_table(model, other, tmp_path / "out.csv", resume=True)
    another = untrained(tmp_path / "another", attention={"name": "flow"})
    another.chunk_rows = 8
    with pytest.raises(MolsliceError, match=r"is an unfinished prediction with another model; delete it"):
        predict_table(another, source, tmp_path / "out.csv", resume=True)
    (tmp_path / "mine.csv.partial").mkdir()
    (tmp_path / "mine.csv.partial" / "notes.txt").write_text("mine")
    with pytest.raises(MolsliceError, match=r"mine.csv.partial is not the unfinished prediction"):
        predict_table(model, source, tmp_path / "mine.csv")
    assert (tmp_path / "mine.csv.partial" / "notes.txt").read_text() == "mine"


def test_an_interruption_of_the_first_chunk_leaves_nothing(model, tmp_path, monkeypatch):
    source = written(tmp_path / "in.csv", "smiles\n" + "CCO\n" * 20)
    interrupt(model, monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt, match=r"^stopped after 0 rows$"):
        predict_table(model, source, tmp_path / "out.csv", workers=2)
    assert left(tmp_path) == ["in.csv"]


MEASURED = "smiles,gap,logp\nCCO,1.5,0\nbad,2,1\nc1ccccc1,,1\nCCN,7,\n"


def test_the_error_of_measured_columns(tmp_path):
    model = untrained(tmp_path / "model", targets=TWO)
    source = written(tmp_path / "in.csv", MEASURED)
    report = predict_table(model, source, tmp_path / "out.csv", metrics=True)
    predicted = model.predict(["CCO", "c1ccccc1", "CCN"]).astype(float)
    expected = [
        np.mean([abs(predicted[0, 0] - 1.5), abs(predicted[2, 0] - 7)]),
        np.mean([abs(predicted[0, 1]), abs(predicted[1, 1] - 1)]),
    ]
    found = [(one["name"], one["unit"], one["count"], one["metric"]) for one in report.metrics]
    assert found == [("gap", "eV", 2, "mae"), ("logp", "", 2, "mae")]
    np.testing.assert_allclose([one["value"] for one in report.metrics], expected, rtol=1e-5)
    errors = abs(predicted[[0, 2], 0] - [1.5, 7])
    assert report.metrics[0]["standard_error"] == pytest.approx(np.ptp(errors) / 2, rel=1e-4)
    assert report.trained == 0  # the training molecules are not known
    TrainingDomain.of_smiles(["C(O)C", "bad", "c1ccccc1"]).write(model.folder)
    assert predict_table(model, source, tmp_path / "out.csv", metrics=True).trained == 2
    unmeasured = written(tmp_path / "in.csv", MEASURED.replace("c1ccccc1,,1", "c1ccccc1,,"))
    assert predict_table(model, unmeasured, tmp_path / "out.csv", metrics=True).trained == 1


def test_rows_of_one_molecule_count_as_one_however_they_are_written(tmp_path):
    model = untrained(tmp_path / "model", targets=TWO)
    spread = []
    for second in ("CCO", "OCC", "C(O)C", " [CH3][CH2][OH]"):
        source = written(tmp_path / "in.csv", f"smiles,gap\nCCO,1\n{second},3\nCCN,7\nc1ccccc1,2\n")
        report = predict_table(model, source, tmp_path / "out.csv", metrics=True)
        spread.append(report.metrics[0]["standard_error"])
    errors = abs(model.predict(["CCO", "CCO", "CCN", "c1ccccc1"])[:, 0].astype(float) - [1, 3, 7, 2])
    residuals = (errors - errors.mean()) / 4
    sums = np.array([residuals[:2].sum(), *residuals[2:]])
    assert spread == pytest.approx([np.sqrt(1.5 * (sums**2).sum())] * 4, rel=1e-4)
    assert predict_table(model, source, tmp_path / "out.csv").metrics is None
    other = written(tmp_path / "other.csv", "smiles,n\nCCO,1\n")
    with pytest.raises(MolsliceError, match="other.csv has no measured values: no column gap or logp"):
        predict_table(model, other, tmp_path / "none.csv", metrics=True)
    odd = written(tmp_path / "odd.csv", "smiles,gap\nCCO,high\n")
    with pytest.raises(MolsliceError, match=r"row 1 .*'high' is not a number .*; .*none.csv is not written"):
        predict_table(model, odd, tmp_path / "none.csv", metrics=True)
    assert "none.csv" not in left(tmp_path)


def test_a_prediction_that_is_not_finite_counts_in_the_error(tmp_path, monkeypatch):
    model = untrained(tmp_path / "model")
    source = written(tmp_path / "in.csv", "smiles,gap\nCCO,1.5\nbad,2\nCCN,7\n")
    compute = type(model).predict_molecules

    def partly(store, options):
        computed = compute(model, store, options)
        computed.values[2], computed.errors[2] = np.nan, NOT_FINITE
        return computed

    monkeypatch.setattr(model, "predict_molecules", partly)
    report = predict_table(model, source, tmp_path / "out.csv", metrics=True)
    assert (report.rows, report.failed) == (3, 2)
    assert (report.metrics[0]["count"], report.metrics[0]["value"]) == (2, np.inf)


def test_the_error_of_classes_is_the_area_under_the_curve(tmp_path):
    model = untrained(tmp_path / "model", targets=CLASSES)
    smiles = embedded_smiles(9)
    truth = (model.predict(smiles) > np.median(model.predict(smiles))).astype(int)
    rows = "".join(f"{text},{value}\n" for text, value in zip(smiles, truth, strict=True))
    source = written(tmp_path / "in.csv", f"smiles,toxic\n{rows}")
    (found,) = predict_table(model, source, tmp_path / "out.csv", metrics=True).metrics
    assert (found["metric"], found["count"], found["value"]) == ("roc_auc", 9, 1.0)


def test_json_lines_keep_their_values(model, tmp_path):
    lines = [
        {"smiles": "CCO", "n": 1, "x": 0.1, "list": [1, {"a": None}], "yes": True, "text": "1"},
        {"smiles": "bad", "n": None, "other": "ü"},
    ]
    source = written(tmp_path / "in.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    predict_table(model, source, tmp_path / "out.jsonl")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    (value,) = model.predict(["CCO"])
    assert found[0] == {**lines[0], "other": None, "gap_eV": pytest.approx(float(value)), "error": None}
    assert found[1] == {
        **dict.fromkeys(("x", "list", "yes", "text")),
        **lines[1],
        "gap_eV": None,
        "error": "not valid SMILES: unknown symbol 'a' at position 2",
    }
    predict_table(model, source, tmp_path / "out.jsonl.gz")
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()) == (tmp_path / "out.jsonl").read_bytes()
    twice = written(tmp_path / "twice.csv", "smiles,a,a\nC,1,2\n")
    with pytest.raises(MolsliceError, match=r"several columns named 'a', .*none.jsonl is not written"):
        predict_table(model, twice, tmp_path / "none.jsonl")


def test_json_lines_have_no_numbers_that_json_lacks(model, tmp_path):
    source = written(tmp_path / "in.jsonl", '{"smiles": "C", "x": NaN, "y": [NaN, -Infinity], "z": Infinity}')
    (record,) = valid_json_of(model, source, tmp_path / "out.jsonl")
    assert (record["x"], record["y"], record["z"]) == (None, [None, "-Infinity"], "Infinity")
    source = written(tmp_path / "large.jsonl", '{"smiles": "C", "x": 1e400, "y": {"a": [-1e400, 1e300]}}')
    (record,) = valid_json_of(model, source, tmp_path / "out.jsonl")
    assert (record["x"], record["y"]) == ("1e400", {"a": ["-1e400", 1e300]})
    columns = {"smiles": ["C"], "list": [[1.0, float("inf")]], "pair": [{"a": float("nan"), "b": 2}]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "in.parquet")
    (record,) = valid_json_of(model, tmp_path / "in.parquet", tmp_path / "out.jsonl")
    assert (record["list"], record["pair"]) == ([1.0, None], {"a": None, "b": 2})


def test_cells_of_unreadable_json_lines_are_null(model, tmp_path):
    source = written(tmp_path / "in.jsonl", '{"smiles": "C", "n": 1}\nrubbish\n{"smiles": "CC"}\n')
    records = valid_json_of(model, source, tmp_path / "out.jsonl")
    assert [record["n"] for record in records] == [1, None, None]
    assert records[1]["smiles"] is None
    assert records[1]["error"].startswith("not JSON: ")


def valid_json_of(model, source, target):
    """Return the predicted lines, which have no `Infinity` and no `NaN`."""
    predict_table(model, source, target)
    text = target.read_text()
    refuse = lambda name: pytest.fail(f"{name} in {text}")  # noqa: E731
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def test_parquet_keeps_its_types(model, tmp_path):
    columns = {
        "smiles": ["CCO", "bad", "C"],
        "count": pyarrow.array([1, None, 2**62], pyarrow.int64()),
        "x": pyarrow.array([0.1, None, 1 / 3], pyarrow.float64()),
        "small": pyarrow.array([0.1, 1e-30, None], pyarrow.float32()),
        "yes": [True, None, False],
        "half": pyarrow.array(np.array([0.5, 1.0, 2.0], np.float16), pyarrow.float16()),
        "day": pyarrow.array([0, None, 2], pyarrow.date32()),
        "moment": pyarrow.array([0, None, 10**15 + 1], pyarrow.timestamp("us")),
        "zoned": pyarrow.array([0, None, 10**15 + 1], pyarrow.timestamp("ns", "Europe/Paris")),
        "price": pyarrow.array(["1.230", None, "-0.001"]).cast(pyarrow.decimal128(12, 3)),
        "list": [[1], None, [2, None]],
        "none": pyarrow.array([[], None, [""]], pyarrow.list_(pyarrow.string())),
        "vector": pyarrow.array(
            [[0.1, float("inf")], None, [1 / 3, 0.0]], pyarrow.list_(pyarrow.float32(), 2)
        ),
        "pair": [{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}],
        "group": pyarrow.array(["x", None, ""]).dictionary_encode(),
        "large": pyarrow.array(["x", None, ""], pyarrow.large_string()),
        "note": ["", None, "b"],
    }
    table = pyarrow.table(columns)
    parquet.write_table(table, tmp_path / "in.parquet")
    predict_table(model, tmp_path / "in.parquet", tmp_path / "out.parquet")
    output = parquet.read_table(tmp_path / "out.parquet")
    for name in columns:
        assert output[name].type == table[name].type
        assert output[name].combine_chunks() == table[name].combine_chunks(), name


def test_types_of_parquet_without_a_text_that_reads_back_become_text(model, tmp_path):
    day = datetime.date(2000, 1, 2)
    columns = {
        "smiles": ["CCO", "C"],
        "days": pyarrow.array([[day], None], pyarrow.list_(pyarrow.date32())),
        "time": pyarrow.array([3661000, None], pyarrow.time32("ms")),
        "map": pyarrow.array([[("a", 1)], None], pyarrow.map_(pyarrow.string(), pyarrow.int64())),
        "empty": pyarrow.nulls(2),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "in.parquet")
    predict_table(model, tmp_path / "in.parquet", tmp_path / "out.parquet")
    output = parquet.read_table(tmp_path / "out.parquet")
    assert output["days"].to_pylist() == ['["2000-01-02"]', None]
    assert output["time"].to_pylist() == ["01:01:01.000", None]
    assert output["map"].to_pylist() == ['[["a", 1]]', None]
    assert output["empty"].to_pylist() == [None, None]


def test_values_that_json_does_not_have_are_text(model, tmp_path):
    day = datetime.date(2000, 1, 2)
    columns = {
        "smiles": ["CCO", "C"],
        "blob": pyarrow.array([b"\xab", b"ab"], pyarrow.binary()),
        "key": pyarrow.array([b"\xef\x01", b"ef"], pyarrow.binary(2)),
        "wait": pyarrow.array([5000, None], pyarrow.duration("ms")),
        "list": pyarrow.array([[b"\xab", b"ab"], None], pyarrow.list_(pyarrow.binary())),
        "nested": pyarrow.array([{"day": day}, None], pyarrow.struct({"day": pyarrow.date32()})),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "in.parquet")
    predict_table(model, tmp_path / "in.parquet", tmp_path / "out.csv")
    first, second = rows_of(tmp_path / "out.csv")[1:]
    assert first[:6] == ["CCO", "0xab", "0xef01", "5000 ms", '["0xab", "ab"]', '{"day": "2000-01-02"}']
    assert second[:6] == ["C", "ab", "ef", "", "", ""]
    predict_table(model, tmp_path / "in.parquet", tmp_path / "out.jsonl")


def test_numbers_of_parquet_stay_numbers_in_json_lines(model, tmp_path):
    columns = {
        "smiles": ["CCO", "C", "CC", "N"],
        "big": pyarrow.array([2**60, -1, None, 0], pyarrow.int64()),
        "yes": [True, None, False, True],
        "small": pyarrow.array([0.1, float("nan"), float("-inf"), None], pyarrow.float32()),
        "wide": [1e300, -2.5, 0.0, None],
        "code": ["007", "1", None, "true"],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "in.parquet")
    predict_table(model, tmp_path / "in.parquet", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["big"] for row in rows] == [2**60, -1, None, 0]
    assert [row["yes"] for row in rows] == [True, None, False, True]
    assert [row["small"] for row in rows] == [0.1, None, None, None]
    assert [row["wide"] for row in rows] == columns["wide"]
    assert [row["code"] for row in rows] == columns["code"]


def test_parquet_files_with_other_types_become_text(model, tmp_path):
    for name, ids in (("a", [1, 2]), ("b", ["x", "y"])):
        parquet.write_table(pyarrow.table({"smiles": ["CCO", "C"], "id": ids}), tmp_path / f"{name}.parquet")
    written(tmp_path / "c.csv", "smiles,id\nCC,z\n")
    sources = [tmp_path / name for name in ("a.parquet", "b.parquet", "c.csv")]
    predict_table(model, sources, tmp_path / "out.parquet")
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found["id"].to_pylist() == ["1", "2", "x", "y", "z"]


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".jsonl", ".parquet"])
def test_half_of_a_surrogate_pair_is_written_as_its_escape(model, tmp_path, ending):
    source = written(tmp_path / "in.jsonl", '{"smiles": "CCO", "note": "a\\ud83d"}\n')
    predict_table(model, source, tmp_path / f"out{ending}")
    if ending == ".parquet":
        assert parquet.read_table(tmp_path / "out.parquet")["note"].to_pylist() == ["a\\ud83d"]
    elif ending == ".jsonl":
        assert json.loads((tmp_path / "out.jsonl").read_text())["note"] == "a\ud83d"
    else:
        assert rows_of(tmp_path / f"out{ending}")[1][1] == "a\\ud83d"


def test_standard_input_and_output(model, tmp_path, monkeypatch, capsys):
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(b"smiles;n\nCCO;1\nbad;2\n"))

    monkeypatch.setattr("sys.stdin", Stdin)
    report = predict_table(model, Path("-"), Path("-"))
    assert report.first_failure.startswith("standard input, row 2 (line 3): 'bad': ")
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows[0] == ["smiles", "n", "gap_eV", "error"]
    assert float(rows[1][2]) == pytest.approx(float(model.predict(["CCO"])[0]))
    assert rows[2] == ["bad", "2", "nan", "not valid SMILES: unknown symbol 'a' at position 2"]


def test_the_output_is_none_of_the_inputs(model, tmp_path):
    one, two = (written(tmp_path / f"{name}.csv", "smiles\nCCO\n") for name in (1, 2))
    with pytest.raises(MolsliceError, match="the output would replace the input"):
        predict_table(model, [one, two], two)
    report = predict_table(model, [one, two], tmp_path / "out.csv")
    assert report.rows == 2
    assert len(rows_of(tmp_path / "out.csv")) == 3
