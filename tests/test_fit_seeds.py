"""The program that measures what another seed changes in `molslice fit`."""

import json

import pytest

from molslice.fitting import folds as fit_folds
from tests.programs import load_program
from tests.real_data import embedded_smiles


@pytest.fixture
def table(tmp_path):
    rows = "".join(f"{smiles},{len(smiles) / 10}\n" for smiles in embedded_smiles()[3::50][:90])
    (tmp_path / "lengths.csv").write_text(f"smiles,length\n{rows}")
    return tmp_path / "lengths.csv"


def test_both_numbers_of_divisions_are_measured_on_the_same_new_rows(table, tmp_path, monkeypatch):
    monkeypatch.setattr(fit_folds, "ASSIGNMENTS", fit_folds.ASSIGNMENTS)  # the program changes it
    program = load_program("fit_seeds")
    words = [f"{table}:length", "--known", "60", "--new", "30", "--seeds", "2", "--out", str(tmp_path)]
    program.main(words)
    once, twice = json.loads((tmp_path / "fit_seeds.json").read_text())["rows"]
    assert (once["set"], once["divisions"], twice["divisions"]) == ("lengths", 1, 2)
    assert once["megabytes"] < twice["megabytes"]
    assert all(0 < row["difference_of_two_seeds"]["mean"] < 1 for row in (once, twice))
    assert 0 <= twice["coverage_of_90"] <= 1
