"""`--strict` and the counts by reason of the verbs that do not write a table."""

import json

import pytest

from molslice.cli import main
from molslice.data.molecules.store import MoleculeStore
from tests.inference.models import checkpoint_folder, embedded_smiles

REASON = "row 3 (line 4): 'C(': not valid SMILES"


@pytest.fixture
def table(tmp_path):
    """A table whose third row cannot be read."""
    smiles = embedded_smiles(40)
    smiles[2] = "C("
    path = tmp_path / "measured.csv"
    path.write_text("smiles,gap\n" + "".join(f"{text},{len(text)}\n" for text in smiles))
    return path


@pytest.fixture
def commands(table, tmp_path):
    """The commands by verb; each writes `out` if it writes something."""
    model, out = str(checkpoint_folder(tmp_path / "model")), str(tmp_path / "out")
    data = ["--data.name", "csv", "--data.path", str(table), "--data.target-columns", "gap"]
    return {
        "prepare": ["prepare", str(table), "--out", out, "--target", "gap"],
        "fit": ["fit", str(table), "--target", "gap", "--out", out, "--members", "2", "--no-encoder"],
        "evaluate": ["evaluate", model, "--split", "all", *data, "--data.units", "eV"],
        "explain": ["explain", model, "--input", str(table), "--out", out],
    }


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("verb", ["prepare", "fit", "evaluate", "explain"])
def test_strict_stops_at_the_first_failed_row(verb, commands, table, tmp_path, capsys):
    command = [*commands[verb], "--quiet"]
    assert main([*command, "--strict"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert str(table) in line
    assert "row 3 (line 4)" in line
    assert "not valid SMILES" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["measured.csv", "model"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == 1
    (kind,) = found["refusals"]
    assert kind["count"] == 1
    assert "row 3 (line 4)" in kind["examples"][0]["where"]
    table.write_text(table.read_text().replace("C(,", "C,"))
    if verb != "evaluate":
        command[command.index("--out") + 1] = str(tmp_path / "strict")
    assert main([*command, "--strict"]) == 0


def test_a_store_with_failed_rows_is_not_strict(commands, capsys):
    assert main([*commands["prepare"], "--quiet"]) == 0
    capsys.readouterr()
    assert main([*commands["prepare"], "--strict"]) == 1
    assert f"has rows that failed without --strict; {REASON}" in capsys.readouterr().err.replace(
        commands["prepare"][1] + ", ", ""
    )


def test_strict_preparation_continues_after_the_row_is_corrected(
    commands, table, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("molslice.data.molecules.prepare_files.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("molslice.data.molecules.prepare.CHUNK_ROWS", 2)
    command = [*commands["prepare"], "--strict"]
    assert main(command) == 1
    assert "2 finished rows are kept, and the same command continues after them" in capsys.readouterr().err
    table.write_text(table.read_text().replace("C(,", "C,"))
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["failed"], found["continued"]) == (40, 0, 2)
    assert not MoleculeStore.open(tmp_path / "out").errors


def test_strict_needs_files_in_prepare(capsys):
    assert main(["prepare", "--config", "x.yaml", "--strict"]) == 2
    assert "--strict: needs FILE" in capsys.readouterr().err


def test_explain_stops_at_the_first_listed_smiles(commands, capsys):
    command = ["explain", commands["explain"][1], "--smiles", "CCO", "C("]
    assert main([*command, "--strict"]) == 1
    reason = "cannot read the SMILES {}: not valid SMILES: parenthesis at position {} is not closed\n"
    assert capsys.readouterr() == ("", "molslice: error: " + reason.format("'C('", 2))
    assert main(command) == 0
    assert "molslice: 1 failed: SMILES 2: " + reason.format("'C('", 2) in capsys.readouterr().err
