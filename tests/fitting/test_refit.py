"""Fitting again to all rows after the error on held-out rows is measured."""

import csv

import numpy as np
import pytest

from molslice.cli import main
from molslice.fitting.card import result_rows
from molslice.fitting.fit import fit
from molslice.fitting.learner_fits import LearnerFits
from molslice.folders.fitted import CARD, HELD_OUT, LEARNER_FILE, NETWORKS, ROWS
from molslice.inference.load import load_model
from molslice.learners import LEARNERS
from tests.inference.models import embedded_smiles

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    file = tmp_path_factory.mktemp("table") / "measured.csv"
    smiles = embedded_smiles(90)
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["smiles", "size", "part"])
        for place, text in enumerate(smiles):
            writer.writerow([text, len(text) + 3.0 * text.count("N"), "test" if place < 9 else "train"])
    return file


def fit_table(table, folder, **options):
    return fit(table, "size", folder, members=3, encoder=None, quiet=True, **options)


@pytest.fixture(scope="module")
def refitted(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("refitted") / "model"
    return folder, fit_table(table, folder)


@pytest.fixture(scope="module")
def measured_only(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured") / "model"
    return folder, fit_table(table, folder, refit=False)


def read_rows(file):
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_model_is_the_one_that_is_fitted_to_all_rows(refitted, table, tmp_path):
    everything = fit_table(table, tmp_path / "model", split="all")
    folder, record = refitted
    assert (folder / LEARNER_FILE).read_bytes() == (tmp_path / "model" / LEARNER_FILE).read_bytes()
    assert record["stacks"] == everything["stacks"]
    assert record["results"][0]["cross_validated"] == everything["results"][0]["cross_validated"]
    assert (folder / ROWS).read_bytes() == (tmp_path / "model" / ROWS).read_bytes()
    assert load_model(folder).find_domain().smiles == load_model(tmp_path / "model").find_domain().smiles


def test_the_held_out_rows_and_their_baselines_are_the_same(refitted, measured_only):
    held_out, rows = read_rows(refitted[0] / HELD_OUT), read_rows(measured_only[0] / ROWS)
    assert [row["smiles"] for row in held_out] == [row["smiles"] for row in rows if row["split"] == "test"]
    again, once = (record["results"][0]["test"] for _, record in (refitted, measured_only))
    assert again["random forest"] == once["random forest"]
    assert again["boosting"] == once["boosting"]


def test_the_error_is_of_predictions_by_a_model_that_had_not_learned_the_rows(refitted):
    folder, record = refitted
    rows = read_rows(folder / HELD_OUT)
    errors = [abs(float(row["size"]) - float(row["size_predicted"])) for row in rows]
    assert record["results"][0]["test"]["molslice fit"] == pytest.approx(np.mean(errors))
    assert record["results"][0]["test_rows"] == record["rows"]["test"] == len(rows) == 9
    learned = load_model(folder).predict([row["smiles"] for row in rows])
    known = np.mean(np.abs(learned - [float(row["size"]) for row in rows]))
    assert known < record["results"][0]["test"]["molslice fit"]


def test_the_card_says_which_error_belongs_to_which_model(refitted, measured_only):
    card = (refitted[0] / CARD).read_text()
    assert "on 90 rows. A model of the other rows was measured on 9 held-out rows." in card
    assert "9 held-out rows were used only for these errors." in (measured_only[0] / CARD).read_text()
    assert not (measured_only[0] / HELD_OUT).exists()
    assert result_rows(refitted[1])[1][0][2] == "90"


def test_rows_that_a_column_holds_out_are_learned_only_if_asked(table, tmp_path):
    assert not fit_table(table, tmp_path / "plain", split="part")["refitted"]
    assert {row["split"] for row in read_rows(tmp_path / "plain" / ROWS)} == {"train", "test"}
    assert fit_table(table, tmp_path / "again", split="part", refit=True)["refitted"]
    assert {row["split"] for row in read_rows(tmp_path / "again" / ROWS)} == {"train"}


def test_nothing_is_evaluated_on_rows_that_were_learned(refitted, capsys):
    for words in ((), ("--uncertainty",)):
        assert main(["evaluate", str(refitted[0]), "--quiet", *words]) == 1
        assert "has learned all of its rows, so there is no split 'test'" in capsys.readouterr().err


def test_the_report_judges_the_out_of_fold_predictions(refitted, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["report", str(refitted[0]), "--out", str(page), "--quiet"]) == 0
    text = page.read_text()
    assert "--refit" in text
    assert ">cross-validated<" in text  # a cell of the table of errors


def test_half_of_the_time_is_for_the_measurement(table, tmp_path):
    record = fit_table(table, tmp_path / "model", minutes=1e-9)
    assert record["refitted"]
    assert list(record["results"][0]["weights"]) == ["extra_trees"]
    assert "random forest for comparison, size" in record["left_out"]
    assert len(set(record["left_out"])) == len(record["left_out"])


@pytest.mark.parametrize("late", ["gaussian_process", "boosting"])
def test_the_model_of_all_rows_has_the_learners_that_were_measured(table, tmp_path, monkeypatch, late):
    def has_time(self, what):  # only the fit to all rows has time for the learner
        if self.data.test.any() and what == f"{late} of size":
            self.left_out.append(what)
            return False
        return True

    monkeypatch.setattr(LearnerFits, "_has_time", has_time)
    record = fit_table(table, tmp_path / "model")
    assert record["left_out"] == [f"{late} of size"]
    assert {*record["results"][0]["weights"]} == {*LEARNERS.names()} - {late}


@pytest.mark.usefixtures("few_epochs")
def test_networks_of_the_measurement_are_not_kept(table, tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.fitting.fold_networks.MIN_WEIGHT", 0.0)
    record = fit(table, "size", tmp_path / "model", members=2, quality="best", quiet=True)
    assert record["refitted"]
    assert record["networks"] == 2
    assert sorted(path.name for path in (tmp_path / "model" / NETWORKS).iterdir()) == ["fold0", "fold1"]
    kept = {path.name for path in (tmp_path / "model").iterdir()}
    assert not [name for name in kept if name.startswith("tmp")]
