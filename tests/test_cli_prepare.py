"""Tests of `molslice prepare FILE... --out STORE`."""

import io
import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from molslice.cli import main
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.store_writer import StoreWriter
from tests.inference.models import embedded_smiles

TEXT = "smiles,gap\nCCO,1.5\nc1ccccc1,\nXX,2\n[Na+].[Cl-],-1\n"


@pytest.fixture
def molslice(capsys):
    """Run a command and return exit code, standard output and standard error."""

    def run(*words):
        capsys.readouterr()
        return main([str(word) for word in words]), *capsys.readouterr()

    return run


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "molecules.csv"
    path.write_text(TEXT)
    return path


def test_report_as_text(molslice, table, tmp_path):
    words = ["prepare", table, "--out", tmp_path / "store", "--target", "gap"]
    code, out, err = molslice(*words)
    lines = out.splitlines()
    assert code == 0
    assert [line.split("  ")[0] for line in lines[:8]] == [
        "rows",
        "molecules",
        "failed",
        "atoms",
        "bonds",
        "target gap",
        "atoms per molecule",
        "elements",
    ]
    assert lines[5] == "target gap          2 values, mean 0.25, spread 1.25, -1 to 1.5"
    assert "C 8, O 1, Na 1, Cl 1" in lines[7]
    assert lines[9:] == [
        f"1 failed: {table}, row 3 (line 4): 'XX': not valid SMILES: unknown symbol 'X' at position 1",
    ]
    assert f"the store is {tmp_path / 'store'}" in err
    assert "SMILES: column 'smiles' (detected)" in err
    code, out, err = molslice(*words, "--quiet")
    assert (code, err) == (0, "")
    assert "finished before     4 rows" in out
    assert "rows/s" not in out


def test_doubts_about_the_targets_are_named_also_when_quiet(molslice, tmp_path):
    rows = [f"{'C' * (row + 1)};{'>' if row % 3 else '='};{row},5" for row in range(30)]
    (tmp_path / "a.csv").write_text("smiles;q;y\n" + "\n".join([*rows, "CN;=;-999", "CO;=;-999"]) + "\n")
    words = ["prepare", tmp_path / "a.csv", "--target", "y", "--quiet"]
    code, _, err = molslice(*words, "--out", tmp_path / "store")
    assert code == 1
    assert "'0,5' is not a number (write a decimal point" in err
    words += ["--decimal", ","]
    code, out, err = molslice(*words, "--out", tmp_path / "store", "--json")
    assert code == 0
    first, second = json.loads(out)["notices"]
    assert first.startswith("column 'q' has relations, which are not used (> in 20 rows, = in 12 rows)")
    assert second.startswith("y: -999 in 2 rows (row 31, row 32): far outside the other values, 0.5 to 29.5")
    assert err == f"molslice: {first}\nmolslice: {second}\n"
    words += ["--missing-value=-999", "--out", tmp_path / "clean"]
    code, out, err = molslice(*words)
    assert code == 0
    assert "target y            30 values, mean 15," in out
    assert "far outside" not in err
    code, _, err = molslice("prepare", "--dataset", "pcqm4m-v2", "--missing-value", "x")
    assert code == 2
    assert "--missing-value: needs FILE" in err


def test_rare_elements_are_counted(molslice, tmp_path):
    atoms = ["C", "N", "O", "P", "S", "F", "Cl", "Br", "[Na+]", "[K+]", "[Li+]", "[Ca+2]"]
    for extra, ending in ((), "Br 1"), (("I",), "and 1 other"), (("I", "B"), "and 2 others"):
        (tmp_path / "a.smi").write_text(".".join([*sorted(atoms), *extra]) + "\n")
        _, out, _ = molslice(
            "prepare", tmp_path / "a.smi", "--out", tmp_path / f"store{len(extra)}", "--quiet"
        )
        (line,) = [line for line in out.splitlines() if line.startswith("elements")]
        assert line.endswith(f", {ending}")
        assert line.count(",") == 11 + bool(extra)


def test_report_as_json(molslice, table, tmp_path):
    options = ["--smiles-column", "smiles", "--delimiter", ",", "--max-atoms", "4", "--atom-order", "input"]
    code, out, err = molslice(
        "prepare",
        table,
        "--out",
        tmp_path / "store",
        *options,
        "--descriptors",
        "--workers",
        0,
        "--json",
        "--quiet",
    )
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["rows"], found["molecules"], found["failed"], found["continued"]) == (4, 2, 2, 0)
    assert found["store"] == str(tmp_path / "store")
    assert found["rows_per_second"] == pytest.approx(4 / found["seconds"])
    store = MoleculeStore.open(tmp_path / "store")
    assert {key: found[key] for key in store.header["about"]["report"]} == store.header["about"]["report"]
    assert store.header["about"]["prepared"]["atom_order"] == "input"
    assert store.descriptors is not None


def test_standard_input(molslice, table, tmp_path, monkeypatch):
    def given(text):
        monkeypatch.setattr(
            sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(text.encode())))
        )

    given(TEXT)
    words = ["prepare", "-", "--out", tmp_path / "store", "--target", "gap", "--workers", 0]
    code, out, _ = molslice(*words)
    assert code == 0
    assert "1 failed: standard input, row 3 (line 4): 'XX': not valid SMILES" in out
    given(TEXT)
    assert molslice(*words)[0] == 0
    given(TEXT + "C,1\n")
    code, _, err = molslice(*words)
    assert code == 1
    assert "store exists and has different content (the rows of standard input have changed)" in err


def test_errors_are_one_line(molslice, table, tmp_path):
    for words, message in (
        ([tmp_path / "none.csv"], "no such file"),
        ([table, "--target", "smile"], "has no column 'smile'"),
        ([table, "--max-atoms", "999"], "max_atoms must be between 1 and 256"),
        ([table, table], "is given twice"),
    ):
        code, out, err = molslice("prepare", *words, "--out", tmp_path / "store")
        assert (code, out) == (1, "")
        assert err.count("\n") == 1
        assert message in err
    assert os.listdir(tmp_path) == ["molecules.csv"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give one of: FILE..., --config, --dataset"),
        (["a.csv", "--config", "b.yaml"], "give one of: FILE..., --config, --dataset"),
        (["--config", "b.yaml", "--dataset", "pcqm4m"], "give one of: FILE..., --config, --dataset"),
        (["a.csv"], "FILE needs --out"),
        (["a.csv", "--out", "b", "--root", "c"], "--root: not with FILE"),
        (["a.csv", "--out", "b", "--download"], "--download: not with FILE"),
        (["--config", "b.yaml", "--out", "c"], "--out: needs FILE"),
        (["--config", "b.yaml", "--target", "c"], "--target: needs FILE"),
        (["--config", "b.yaml", "--max-atoms", "5"], "--max-atoms: needs FILE"),
        (["--config", "b.yaml", "--quiet"], "--quiet: needs FILE"),
        (["a.csv", "--out", "b", "--data.name", "csv"], "settings need --config"),
    ],
)
def test_wrong_usage(molslice, words, message):
    code, out, err = molslice("prepare", *words)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signals_keep_the_finished_rows(molslice, tmp_path, monkeypatch, request, name):
    path = tmp_path / "molecules.smi"
    path.write_text("\n".join(embedded_smiles(60)) + "\n")
    number, genuine, calls = getattr(signal, name), StoreWriter.append, []
    if name == "SIGINT":  # ignored in programs that a script starts in the background
        former = signal.signal(signal.SIGINT, signal.default_int_handler)
        request.addfinalizer(lambda: signal.signal(signal.SIGINT, former))
    monkeypatch.setattr("molslice.data.molecules.prepare.CHUNK_ROWS", 10)

    def signaled(self, part):
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(number)
        genuine(self, part)

    words = ["prepare", path, "--out", tmp_path / "store", "--workers", 0]
    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "append", signaled)
        patch.setattr("molslice.data.molecules.prepare_files.SAVE_SECONDS", 0.0)
        code, out, err = molslice(*words)
    assert (code, out) == (130 if name == "SIGINT" else 143, "")
    assert err.startswith("molslice: interrupted; ")
    assert "finished rows are kept, and the same command continues after them" in err
    assert err.count("\n") == 1
    code, out, _ = molslice(*words)
    assert code == 0
    assert "finished before     30 rows" in out


def test_the_bar_shows_rows_and_their_rate(table):
    program = (
        "import pathlib, sys; from molslice.data.molecules.prepare_files import *;"
        "from molslice.data.molecules.prepare import Featurizing; sys.stderr.isatty = lambda: True;"
        "import molslice.files.progress; molslice.files.progress.BAR_SECONDS = 0.0;"
        "prepare_files([sys.argv[1]], sys.argv[2], how=Featurizing())"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, table, table.parent / "store"],
        check=True,
        capture_output=True,
        text=True,
    )
    last = result.stderr.replace("\r", "\n").strip().splitlines()[-1]
    assert last.startswith("preparing: 100%")
    assert "4 rows, " in last
    assert "/s]" in last
