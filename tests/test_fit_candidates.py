"""The program that compares candidates for `fit`, on a tiny table."""

import csv
import gzip
import json

import numpy as np
import pytest

from molslice.learners import Features
from tests.programs import load_program
from tests.real_data import SAVED_MODEL, embedded_smiles


@pytest.fixture(scope="module")
def program():
    return load_program("fit_candidates")


@pytest.fixture
def rows(program):
    """60 rows whose target is the first descriptor with noise; features without chemistry."""
    draw = np.random.default_rng(0)
    values = draw.normal(size=60)
    features = Features(
        np.stack([values + 0.1 * draw.normal(size=60), draw.normal(size=60)], 1),
        draw.integers(0, 3, (60, 8)).astype(np.uint8),
        draw.normal(size=(60, 4)).astype(np.float32),
    )
    folds = draw.permutation(60) % 5
    molecules = type("Table", (), {"values": values[:, None]})()
    return program.Rows("esol", molecules, features, folds, 0)


def test_the_weights_of_a_combination_do_not_see_the_rows_that_measure_it(program, rows):
    parts = {"good": rows.values + 0.1, "noise": np.random.default_rng(1).normal(size=60)}
    combined = program.stack(rows, parts)
    fifths = np.random.default_rng(100).permutation(60) % 5
    changed = rows.values.copy()
    changed[fifths == 2] += 5.0
    rows.molecules.values = changed[:, None]
    again = program.stack(rows, parts)
    np.testing.assert_array_equal(again[fifths == 2], combined[fifths == 2])
    assert not np.allclose(again[fifths != 2], combined[fifths != 2])


def test_trees_are_chosen_on_other_folds(program, rows, monkeypatch):
    """With one good number of trees on the other folds, this one is used."""
    monkeypatch.setattr(program, "STOPS", (1, 60))
    many = program.stop_by_folds(rows)
    monkeypatch.setattr(program, "STOPS", (60,))
    np.testing.assert_array_equal(program.stop_by_folds(rows), many)
    assert program.error(rows, many) < program.error(rows, np.zeros(60))


def test_ranks_are_mapped_back_to_values(program, rows, monkeypatch):
    def exact(rows, name, features, values):
        return values

    monkeypatch.setattr(program, "learn", exact)
    known = np.abs(rows.values) < np.quantile(np.abs(rows.values), 0.9)  # the scores of the ends are limited
    np.testing.assert_allclose(
        program.learn_ranks(rows, "boosting")[known], rows.values[known], rtol=1e-6, atol=1e-9
    )


def test_ratios_are_those_of_the_same_seed(program):
    errors = {
        name: [{"three learners": 1.0, "a": 0.5}, {"three learners": 2.0, "a": 1.0, "b": 4.0}]
        for name in ("esol", "bace")
    }
    found = {row["candidate"]: row for row in program.summarize(errors)}
    assert found["three learners"]["ratio"] == pytest.approx(1.0)
    assert found["a"]["ratio"] == pytest.approx(0.5)
    assert found["b"]["ratio"] == pytest.approx(2.0)
    assert found["b"]["sets"]["esol"] == {"mean": 4.0, "sd": None, "seeds": 1}
    del errors["bace"][1]["b"]
    assert {row["candidate"]: row for row in program.summarize(errors)}["b"]["ratio"] is None


@pytest.mark.parametrize(
    ("name", "file", "column"),
    [("esol", "esol", "measured log solubility in mols per litre"), ("bace", "bace", "Class")],
)
def test_all_candidates_are_measured_once(program, name, file, column, tmp_path, capsys, monkeypatch):
    for bound in ("MIN_EPOCHS", "MAX_EPOCHS"):
        monkeypatch.setattr(f"molslice.training.budget.{bound}", 1)
    smiles = embedded_smiles()[3::150][:60]
    (tmp_path / "moleculenet").mkdir()
    with gzip.open(tmp_path / "moleculenet" / f"{file}.csv.gz", "wt", newline="") as stream:
        sizes = [len(text) for text in smiles]
        values = sizes if name == "esol" else [int(size > np.median(sizes)) for size in sizes]
        csv.writer(stream).writerows([["smiles", column], *zip(smiles, values, strict=True)])
    command = ["--data", tmp_path, "--sets", name, "--seeds", 1, "--runs", tmp_path / "runs"]
    command += ["--out", tmp_path, "--networks", "--encoder", SAVED_MODEL]
    program.main([str(word) for word in command])
    assert len(capsys.readouterr().out.splitlines()) == (15 if name == "esol" else 12)
    content = json.loads((tmp_path / "fit_candidates.json").read_text())
    labels = {row["candidate"] for row in content["results"]}
    assert {
        *program.COMBINATIONS,
        "networks, dropout 0.1",
        "random forest",
        "boosting, stopped by folds",
    } <= labels
    assert ("boosting, ranks" in labels) == (name == "esol")
    for row in content["results"]:
        assert 0 <= row["sets"][name]["mean"] < (30 if name == "esol" else 0.9), row
    program.main([str(word) for word in command])
    assert len(capsys.readouterr().out.splitlines()) == 1  # nothing is computed again
    assert json.loads((tmp_path / "fit_candidates.json").read_text())["results"] == content["results"]
