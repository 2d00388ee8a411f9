"""Numbers and categories beside the SMILES: what is learned, what is refused, and every way to predict."""

import csv
import json
import re
import shutil

import numpy as np
import pandas as pd
import polars as pl
import pytest
from fastapi.testclient import TestClient

from molslice.cli import main
from molslice.data.molecules.conditions import encode
from molslice.data.molecules.describe import describe_molecules
from molslice.estimators import MolsliceRegressor
from molslice.explanation.explain import Explainer
from molslice.export.exported_file import export_model
from molslice.fitting.conditions import cover_conditions
from molslice.fitting.data import FitOptions
from molslice.fitting.fit import fit
from molslice.fitting.folds import assign_folds
from molslice.fitting.table import read_fit_data
from molslice.folders.fitted import FIT, ROWS, read_fitted
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.inference.tables.table import predict_table
from molslice.learners import Features
from molslice.serve import app as app_module
from molslice.serve.app import Service, build_app
from molslice.serve.worker import answer, load_models
from molslice.types import MolsliceError
from tests.fitting.test_fit import write_table
from tests.inference.models import embedded_smiles
from tests.serve.inline import InlineWorker

pytestmark = pytest.mark.usefixtures("few_trees", "few_epochs")

COLUMNS = ["smiles", "logS", "temperature", "laboratory"]
OFFSETS = {"Basel": 0.0, "Kyoto": 0.6}
GIVEN = {"temperature": 300.0, "laboratory": "Kyoto"}
GAS_CONSTANT = 8.314462618e-3  # kJ / (mol K)


def solubility(smiles, temperature, laboratory):
    """A law after van 't Hoff: the enthalpy of solution, in kJ/mol, grows with the size of the molecule."""
    enthalpy = 20.0 + 2.0 * len(smiles)
    slope = -enthalpy / (GAS_CONSTANT * np.log(10.0))
    return -0.05 * len(smiles) + slope * (1.0 / temperature - 1.0 / 298.15) + OFFSETS[laboratory]


@pytest.fixture(scope="module")
def rows():
    """Three temperatures for each of 60 molecules, in one of two laboratories."""
    draw = np.random.default_rng(0)
    rows = []
    for smiles in embedded_smiles(60):
        for temperature in draw.uniform(278.0, 333.0, 3).round(2).tolist():
            laboratory = str(draw.choice(list(OFFSETS)))
            rows.append([smiles, solubility(smiles, temperature, laboratory), temperature, laboratory])
    return rows


@pytest.fixture(scope="module")
def table(rows, tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("table") / "measured.csv", COLUMNS, rows)


def fitted(table, folder, conditions=("temperature", "laboratory"), **options):
    options = {"members": 3, "encoder": None, "refit": False, "quiet": True, **options}
    return fit(table, "logS", folder, conditions=conditions, **options)


@pytest.fixture(scope="module")
def model(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "model"
    return folder, fitted(table, folder)


def read(table, **options):
    given = {"conditions": ("temperature", "laboratory"), **options}
    return read_fit_data(table, ["logS"], FitOptions(**given), workers=0)


def changed(rows, file, column, change):
    """Write the table with another value of a column: `change` takes the number of the row and the value."""
    place = COLUMNS.index(column)
    lines = [[*row[:place], change(number, row[place]), *row[place + 1 :]] for number, row in enumerate(rows)]
    return write_table(file, COLUMNS, lines)


def test_conditions_explain_what_the_molecule_does_not(table, model, tmp_path):
    without = fitted(table, tmp_path / "without", (), duplicates="keep")
    kept = fitted(table, tmp_path / "temperature", "temperature", duplicates="keep")
    errors = [about["results"][0]["cross_validated"] for about in (without, kept, model[1])]
    assert errors[1] < 0.75 * errors[0]
    assert errors[2] < 0.4 * errors[1]
    for text in (
        "temperature: condition, a number (detected) from 278",
        "a category (detected) of Basel, Kyoto",
    ):
        assert any(text in finding for finding in model[1]["findings"])


def test_each_learner_takes_the_conditions(model):
    """The answers of every learner have the sign of the law."""
    fitted_model = read_fitted(model[0])
    learners = fitted_model.learners[0]
    assert set(learners) == {"boosting", "extra_trees", "gaussian_process"}
    molecules = describe_molecules(embedded_smiles(20))
    for learner in learners.values():
        predicted = []
        for temperature in (285.0, 325.0):
            given = encode(fitted_model.conditions, np.tile([temperature, 1.0], (20, 1)))
            predicted.append(learner.predict(Features(molecules.descriptors, molecules.counts, None, given)))
        assert (predicted[1] - predicted[0]).mean() > 0.2
        with pytest.raises(MolsliceError, match="features"):
            learner.predict(Features(molecules.descriptors, molecules.counts))


def test_the_effect_of_the_temperature_differs_between_molecules(model):
    predictor = load_model(model[0])
    smiles = sorted(embedded_smiles(60), key=len)
    cold, warm = (predictor.predict(smiles, conditions={**GIVEN, "temperature": t}) for t in (283.15, 328.15))
    truth = [solubility(text, 328.15, "Kyoto") - solubility(text, 283.15, "Kyoto") for text in smiles]
    assert np.corrcoef(warm - cold, truth)[0, 1] > 0.9
    small, large = np.split(warm - cold, 2)
    assert large.mean() > 1.1 * small.mean()


def test_all_rows_of_a_compound_are_on_one_side_and_in_one_fold(table):
    for split in ("random", "scaffold"):
        data = read(table, split=split)
        assert len(data.smiles) == 180
        parents = np.array(data.molecules.parents)
        assert data.test.any()
        assert not set(parents[data.test]) & set(parents[~data.test])
        folds = assign_folds(data, 3, 0)
        for assignment in folds:
            by_parent = {}
            for parent, fold in zip(parents, assignment, strict=True):
                by_parent.setdefault(parent, set()).add(int(fold))
            assert all(len(held) == 1 for held in by_parent.values())


def test_duplicates_have_the_same_molecule_and_the_same_conditions(rows, tmp_path):
    first = rows[0]
    twice = [first[0], first[1] + 1.0, first[2], first[3]]
    other = [first[0], first[1] + 1.0, first[2] + 1.0, first[3]]
    table = write_table(tmp_path / "rows.csv", COLUMNS, [*rows, twice, other])
    data = read(table, split="all")
    assert len(data.smiles) == len(rows) + 1
    assert data.targets[0, 0] == pytest.approx(first[1] + 0.5)
    finding = "1 molecule has several rows in the same conditions, with different values; they are averaged"
    assert finding in data.findings
    with pytest.raises(MolsliceError, match="several rows in the same conditions"):
        read(table, duplicates="refuse")


def test_the_order_of_the_rows_does_not_matter(rows, tmp_path, model):
    table = write_table(tmp_path / "rows.csv", COLUMNS, rows[::-1])
    fitted(table, tmp_path / "model")
    smiles = embedded_smiles(10)
    np.testing.assert_array_equal(
        load_model(tmp_path / "model").predict(smiles, conditions=GIVEN),
        load_model(model[0]).predict(smiles, conditions=GIVEN),
    )


def test_the_folder_says_what_it_takes_and_older_versions_refuse_it(model, tmp_path):
    folder, about = model
    assert about["options"]["conditions"] == ["temperature", "laboratory"]
    temperature, laboratory = read_fitted(folder).conditions
    assert (temperature.name, temperature.words, temperature.can_miss) == ("temperature", None, False)
    assert 278.0 <= temperature.low < temperature.high <= 333.0
    assert laboratory.words == ("Basel", "Kyoto")
    assert "temperature: condition" in (folder / "card.md").read_text()
    with (folder / ROWS).open(newline="") as file:
        written = list(csv.DictReader(file))
    predicted = load_model(folder).predict(
        [row["smiles"] for row in written if row["split"] == "test"],
        conditions={
            "temperature": [float(row["temperature"]) for row in written if row["split"] == "test"],
            "laboratory": [row["laboratory"] for row in written if row["split"] == "test"],
        },
    )
    kept = [float(row["logS_predicted"]) for row in written if row["split"] == "test"]
    np.testing.assert_allclose(predicted, kept, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda record: record.pop("conditions"), "invalid conditions"),
        (lambda record: record["options"].update(conditions=[]), "invalid conditions"),
        (lambda record: record["conditions"][0].update(std=0.0), "invalid condition"),
        (lambda record: record["conditions"][1].update(words=["a", "a"]), "invalid condition"),
        (lambda record: record["conditions"][1].update(name="temperature"), "have the same name"),
    ],
)
def test_a_damaged_folder_is_refused(model, tmp_path, change, reason):
    folder = tmp_path / "model"
    shutil.copytree(model[0], folder)
    record = json.loads((folder / FIT).read_text())
    change(record)
    (folder / FIT).write_text(json.dumps(record))
    with pytest.raises(MolsliceError, match=reason):
        load_model(folder)


def test_python_gives_conditions_in_every_form(model):
    predictor, smiles = load_model(model[0]), embedded_smiles(4)
    expected = predictor.predict(smiles, conditions=GIVEN)
    lists = {"temperature": [300] * 4, "laboratory": np.array(["Kyoto"] * 4)}
    texts = {"temperature": pd.Series(["300.0"] * 4), "laboratory": pl.Series(["Kyoto"] * 4)}
    for given in (lists, texts, {**GIVEN, "temperature": np.float32(300.0)}):
        np.testing.assert_array_equal(predictor.predict(smiles, conditions=given), expected)
    for library in (pd, pl):
        frame = library.DataFrame({"smiles": smiles, **{name: [value] * 4 for name, value in GIVEN.items()}})
        np.testing.assert_array_equal(predictor.predict(frame), expected)
    several = predictor.predict(smiles * 2, conditions={**GIVEN, "temperature": [300.0] * 4 + [310.0] * 4})
    np.testing.assert_array_equal(several[:4], expected)
    assert (several[4:] != expected).all()
    assert predictor.predict([], conditions=GIVEN).shape == (0,)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "takes the conditions temperature, laboratory, got no values"),
        ({}, "takes the conditions temperature, laboratory, got no values"),
        ({"temperature": 300.0}, "takes the conditions temperature, laboratory, got temperature"),
        ({**GIVEN, "pH": 7.0}, "got temperature, laboratory, pH"),
        ({**GIVEN, "temperature": [300.0]}, "the condition 'temperature' has 1 values for 2 molecules"),
        ([300.0], "conditions must be a dict"),
    ],
)
def test_wrong_conditions_are_refused_before_any_work(model, given, reason, monkeypatch):
    predictor = load_model(model[0])
    monkeypatch.setattr(type(predictor), "reader", lambda self, workers=0: pytest.fail("work has begun"))
    with pytest.raises(MolsliceError, match=reason):
        predictor.predict(["CCO", "CCC"], conditions=given)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("temperature", None, "temperature is missing, but all training rows have it"),
        ("temperature", float("nan"), "temperature is missing, but all training rows have it"),
        ("temperature", pd.NA, "temperature is missing, but all training rows have it"),
        ("temperature", "warm", "temperature 'warm' is not a number"),
        ("temperature", "1_0", "temperature '1_0' is not a number"),
        ("temperature", float("inf"), "temperature 'inf' is not a number"),
        ("temperature", 25.0, "temperature 25 is far outside the training rows, 278"),
        (
            "laboratory",
            "kyoto",
            "laboratory 'kyoto' does not occur in the training rows; choices: Basel, Kyoto",
        ),
        ("laboratory", "", "laboratory is missing; choices"),
    ],
)
def test_a_value_that_the_training_rows_do_not_tell_about_has_a_reason(model, name, value, reason):
    predictor = load_model(model[0])
    values = {key: [one, one] for key, one in GIVEN.items()}
    values[name] = [GIVEN[name], value]
    predictions = predictor.predict_with_errors(["CCO", "CCC"], conditions=values)
    assert predictions.errors[0] is None
    assert predictions.errors[1].startswith(reason)
    assert np.isnan(predictions.values[1]).all()
    assert np.isfinite(predictions.values[0]).all()


def test_a_model_without_conditions_takes_none(table, tmp_path):
    about = fitted(table, tmp_path / "model", ())
    assert "conditions" not in about
    with pytest.raises(MolsliceError, match="takes no conditions, got temperature"):
        load_model(tmp_path / "model").predict("CCO", conditions={"temperature": 300.0})


def test_missing_numbers_and_words_are_learned_if_training_rows_lack_them(rows, tmp_path):
    some = changed(rows, tmp_path / "a.csv", "temperature", lambda row, value: "" if row % 7 == 0 else value)
    fitted(some, tmp_path / "a", "temperature", missing_values=-999)
    predictor = load_model(tmp_path / "a")
    values = predictor.predict(["CCO"] * 2, conditions={"temperature": [None, 300.0]})
    assert np.isfinite(values).all()
    some = changed(rows, tmp_path / "b.csv", "laboratory", lambda row, value: "NA" if row % 7 == 0 else value)
    about = fitted(some, tmp_path / "b")
    assert any("a category (detected) of (empty), Basel, Kyoto" in text for text in about["findings"])
    given = {"temperature": 300.0, "laboratory": [None, "Basel"]}
    assert np.isfinite(load_model(tmp_path / "b").predict(["CCO"] * 2, conditions=given)).all()


def test_a_skewed_condition_is_taken_as_its_logarithm(rows, tmp_path):
    draw = np.random.default_rng(1)
    some = changed(rows, tmp_path / "a.csv", "temperature", lambda row, value: 10.0 ** draw.normal(0, 1))
    about = fitted(some, tmp_path / "model", "temperature")
    assert any("taken as its logarithm" in text for text in about["findings"])
    predictions = load_model(tmp_path / "model").predict_with_errors(
        ["C"] * 2, conditions={"temperature": [0, 1]}
    )
    assert predictions.errors == ["temperature 0 is not positive, but the model takes its logarithm", None]


@pytest.fixture
def divided(rows, tmp_path):
    """Return a table whose first molecule is held out, in one row with a laboratory of its own."""
    first = rows[0][0]
    lines = [[*row, "test" if row[0] == first else "train"] for row in rows]
    lines[0][3] = "Oslo"
    return write_table(tmp_path / "rows.csv", [*COLUMNS, "part"], lines)


def test_held_out_rows_that_the_model_would_refuse_are_left_out(divided, tmp_path):
    data = read(divided, split="part", refit=False)
    reason = "the first: laboratory 'Oslo' does not occur"
    assert f"1 held-out row left out; {reason}" in " ".join(data.losses)
    covered = cover_conditions(data)
    assert covered.rows.test.sum() == 2
    assert covered.rows.conditions[1].words == ("Basel", "Kyoto")
    about = fitted(divided, tmp_path / "model", split="part")
    assert about["rows"] == {"train": 177, "test": 2}


def test_held_out_rows_with_a_new_condition_are_learned_after_the_others_are_measured(divided, tmp_path):
    announced = []
    about = fitted(
        divided, tmp_path / "model", split="part", refit=True, announce=lambda rows, _: announced.append(rows)
    )
    assert (len(announced[0].smiles), announced[0].test.sum()) == (180, 3)
    assert about["rows"] == {"train": 180, "test": 2}
    assert about["results"][0]["test_rows"] == 2
    finding = "1 held-out row learned, but not measured; the first: laboratory 'Oslo' does not occur"
    assert any(text.startswith(finding) for text in about["findings"])
    assert any("a category (detected) of Basel, Kyoto, Oslo" in text for text in about["findings"])
    predictor = load_model(tmp_path / "model")
    assert predictor.conditions[1].words == ("Basel", "Kyoto", "Oslo")
    assert np.isfinite(predictor.predict("CCO", conditions={**GIVEN, "laboratory": "Oslo"})).all()
    learned = list(csv.DictReader((tmp_path / "model" / "rows.csv").open()))
    assert [row["split"] for row in learned] == ["train"] * 180
    assert [row["laboratory"] for row in learned if row["laboratory"] == "Oslo"] == ["Oslo"]
    held_out = list(csv.DictReader((tmp_path / "model" / "held_out.csv").open()))
    assert len(held_out) == 2
    assert {row["laboratory"] for row in held_out} <= {"Basel", "Kyoto"}


def test_a_held_out_number_outside_the_others_is_inside_once_it_is_learned(rows, tmp_path):
    first = rows[0][0]
    lines = [[*row, "test" if row[0] == first else "train"] for row in rows]
    temperatures = [float(row[2]) for row in rows]
    for line in lines[:3]:
        line[2] = str(max(temperatures) + 10.0)
    table = write_table(tmp_path / "rows.csv", [*COLUMNS, "part"], lines)
    about = fitted(table, tmp_path / "model", split="part", refit=True)
    assert about["conditions"][0]["high"] == max(temperatures) + 10.0
    given = {**GIVEN, "temperature": max(temperatures) + 10.0}
    predictions = load_model(tmp_path / "model").predict_with_errors([first], conditions=given, domain=True)
    (domain,) = predictions.domain
    assert "outside the training rows" not in (domain.reason or "")


def test_without_a_held_out_row_that_can_be_measured_there_is_no_error_on_them(rows, tmp_path):
    first = rows[0][0]
    lines = [[*row, "test" if row[0] == first else "train"] for row in rows]
    for line in lines:
        line[3] = "Oslo" if line[0] == first else line[3]
    table = write_table(tmp_path / "rows.csv", [*COLUMNS, "part"], lines)
    about = fitted(table, tmp_path / "model", split="part", refit=True)
    assert about["rows"] == {"train": 180, "test": 0}
    assert any(
        text.startswith("no error on held-out rows; the first: laboratory 'Oslo'")
        for text in about["findings"]
    )
    given = {**GIVEN, "laboratory": "Oslo"}
    assert np.isfinite(load_model(tmp_path / "model").predict("CCO", conditions=given)).all()


@pytest.mark.parametrize(
    ("values", "notice"),
    [
        (["25,5", "37,0"], r"temperature: learned as a category, because one cell is not a number: .*'25,5'"),
        (["7.4", "2", ">10"], r"temperature: learned as a category, .*column 'temperature': '>10'"),
        (["water", "Water"], "temperature: 'Water', 'water' are different categories, because"),
    ],
)
def test_categories_that_may_not_be_meant_are_named(rows, tmp_path, values, notice):
    table = changed(rows, tmp_path / "a.csv", "temperature", lambda row, value: values[row % len(values)])
    assert re.search(notice, " ".join(read(table).notices))


def test_other_categories_have_no_notice(table):
    assert read(table).notices == []


@pytest.mark.parametrize(
    ("column", "change", "reason"),
    [
        ("temperature", lambda row, value: 298, "the condition is 298 in every training row"),
        ("temperature", lambda row, value: "", "the condition is missing in every training row"),
        ("laboratory", lambda row, value: "Basel", "the condition is Basel in every training row"),
        ("laboratory", lambda row, value: f"sample {row}", "180 different words; .* row 1 .*'sample 0'"),
        (
            "temperature",
            lambda row, value: f"{value} K",
            "different words; .* is not a number .write the number",
        ),
        (
            "temperature",
            lambda row, value: -999 if row in (3, 9) else value,
            "-999 in 2 rows .*--missing-value",
        ),
        (
            "temperature",
            lambda row, value: -999 if row in (3, 9) else 288 + 10 * (row % 2),
            "-999 in 2 rows .*other values, 288 to 298.*--missing-value",
        ),
    ],
)
def test_columns_that_are_no_conditions_are_refused(rows, tmp_path, column, change, reason):
    with pytest.raises(MolsliceError, match=reason):
        read(changed(rows, tmp_path / "rows.csv", column, change))


@pytest.mark.parametrize(
    "form", [lambda value: value, lambda value: -(10.0**value), lambda value: f"{value:.9e}"]
)
def test_a_condition_that_is_the_target_in_another_form_is_refused(rows, tmp_path, form):
    lines = [[row[0], row[1], form(row[1]), row[3]] for row in rows]
    with pytest.raises(MolsliceError, match="column 'temperature': the condition determines the order"):
        read(write_table(tmp_path / "rows.csv", COLUMNS, lines))


def test_a_condition_that_is_the_class_in_other_words_is_refused(rows, tmp_path):
    lines = [[row[0], row[3] == "Kyoto", row[2], row[3]] for row in rows]
    with pytest.raises(MolsliceError, match="column 'laboratory': the condition determines the class"):
        read(write_table(tmp_path / "rows.csv", COLUMNS, lines))


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ("temperatur", "has no column 'temperatur'; did you mean 'temperature'"),
        ("logS", "the column 'logS' cannot be both a condition and a target"),
        ("smiles", "the column 'smiles' cannot be both a condition and the SMILES"),
        (["temperature", "temperature "], "the condition 'temperature' is given twice"),
        ([3], "conditions must be names of columns"),
    ],
)
def test_wrong_columns_are_refused(table, tmp_path, conditions, reason):
    with pytest.raises(MolsliceError, match=reason):
        fitted(table, tmp_path / "model", conditions)
    assert not (tmp_path / "model").exists()


def test_classes_take_conditions(rows, tmp_path):
    limit = float(np.median([row[1] for row in rows]))
    lines = [[row[0], int(row[1] > limit), *row[2:]] for row in rows]
    about = fitted(write_table(tmp_path / "rows.csv", COLUMNS, lines), tmp_path / "model")
    assert about["metric"] == "roc_auc"
    predictor, smiles = load_model(tmp_path / "model"), embedded_smiles(30)
    cold, warm = (predictor.predict(smiles, conditions={**GIVEN, "temperature": t}) for t in (285.0, 325.0))
    assert warm.mean() > cold.mean() + 0.1


def test_a_table_is_predicted_by_its_columns(model, rows, tmp_path, capsys):
    lines = [[row[0], row[2], row[3]] for row in rows[:6]]
    lines[2][1], lines[3][2], lines[4][0] = "x", "Oslo", "not a SMILES"
    source = write_table(tmp_path / "new.csv", ["molecule", "temperature", "laboratory"], lines)
    assert (
        main(["predict", str(model[0]), "--input", str(source), "--output", str(tmp_path / "out.csv")]) == 0
    )
    written = pd.read_csv(tmp_path / "out.csv")
    good = [0, 1, 5]
    given = {"temperature": written["temperature"][good], "laboratory": written["laboratory"][good]}
    expected = load_model(model[0]).predict(written["molecule"][good], conditions=given)
    np.testing.assert_allclose(written["logS"][good], expected, rtol=1e-6)
    assert written["logS"][[2, 3, 4]].isna().all()
    assert written["error"][2] == "temperature 'x' is not a number"
    assert written["error"][3].startswith("laboratory 'Oslo' does not occur")
    source = write_table(tmp_path / "bare.csv", ["smiles", "temperature"], [["CCO", 300]])
    assert main(["predict", str(model[0]), "--input", str(source), "--output", str(tmp_path / "b.csv")]) == 1
    assert "has no column 'laboratory'" in capsys.readouterr().err
    assert not (tmp_path / "b.csv").exists()


def test_an_interrupted_prediction_notices_other_conditions(model, rows, tmp_path, monkeypatch):
    """A finished chunk is not reused for the same molecules at another temperature."""
    lines = [[row[0], row[2], row[3]] for row in rows[:6]]
    header = ["smiles", "temperature", "laboratory"]
    source, target = write_table(tmp_path / "new.csv", header, lines), tmp_path / "out.csv"
    predictor = load_model(model[0])
    predictor.chunk_rows = 2
    predict, calls = predictor.predict_molecules, []

    def fails_later(molecules, options):
        calls.append(1)
        if len(calls) > 2:
            raise MolsliceError("stopped")
        return predict(molecules, options)

    monkeypatch.setattr(predictor, "predict_molecules", fails_later)
    with pytest.raises(MolsliceError, match="stopped"):
        predict_table(predictor, source, target, progress=False)
    monkeypatch.setattr(predictor, "predict_molecules", predict)
    lines[1][1] += 1.0
    write_table(source, header, lines)
    with pytest.raises(MolsliceError, match="is not the input of the unfinished prediction"):
        predict_table(predictor, source, target, resume=True, progress=False)


def test_the_command_line_takes_conditions_of_listed_smiles(model, capsys):
    words = ["predict", str(model[0]), "--smiles", "CCO", "--json"]
    given = ["--condition", "temperature=300", "--condition", "laboratory=Kyoto"]
    assert main([*words, *given]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["conditions"] == {"temperature": "300", "laboratory": "Kyoto"}
    expected = load_model(model[0]).predict("CCO", conditions=GIVEN)[0]
    assert result["predictions"][0]["logS"] == pytest.approx(expected)
    assert main(words) == 1
    assert "takes the conditions temperature, laboratory" in capsys.readouterr().err
    for wrong in (["--condition", "temperature"], [*given, "--condition", "temperature=310"]):
        assert main([*words, *wrong]) == 2
    assert main(["predict", str(model[0]), "--input", "a.csv", "--output", "b.csv", *given]) == 2


def test_evaluate_and_report_measure_the_rows_at_their_conditions(model, table, tmp_path, capsys):
    folder, about = model
    assert main(["evaluate", str(folder), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["targets"][0]["mae"]
    assert measured == pytest.approx(about["results"][0]["test"]["molslice fit"], rel=1e-5)
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html"), "--quiet"]) == 0
    page = (tmp_path / "page.html").read_text()
    assert f" on {about['results'][0]['train_rows']} cross-validated rows, " in page
    start = page.index("<h2")
    assert "molecules" not in page[start : page.index("<h2", start + 1)]  # in the table of errors
    assert "--condition temperature --condition laboratory" in page
    bare = write_table(tmp_path / "bare.csv", COLUMNS[:2], [["CCO", 1.0]])
    assert main(["evaluate", str(folder), "--split", "all", "--data.path", str(bare)]) == 1
    assert "no column 'temperature'" in capsys.readouterr().err


def test_intervals_and_the_domain_know_the_conditions(model):
    predictor = load_model(model[0])
    smiles = [predictor.find_domain().smiles[0]] * 2
    given = {**GIVEN, "temperature": [300.0, 340.0]}
    predictions = predictor.predict_with_errors(smiles, conditions=given, interval=0.9, domain=True)
    assert (predictions.lower < predictions.values).all()
    inside, outside = predictions.domain
    assert inside.place == "like the training molecules"
    assert outside.place == "outside"
    assert outside.reason.startswith("temperature 340 is outside the training rows, 278")
    assert inside.neighbors[0].measured is None  # a mean over temperatures would mislead


def test_the_service_takes_one_value_for_a_request(model, monkeypatch):
    monkeypatch.setattr(app_module, "WorkerProcess", InlineWorker)
    with TestClient(build_app(Service({"model": str(model[0])}))) as client:
        (card,) = client.get("/models").json()
        assert card["conditions"] == ["temperature", "laboratory"]
        smiles = ["CCO", "CCC"]
        answers = [
            client.post("/predict", json={"smiles": smiles, "conditions": {**GIVEN, "temperature": value}})
            for value in (300, "300")
        ]
        refused = client.post("/predict", json={"smiles": smiles})
    expected = load_model(model[0]).predict(smiles, conditions=GIVEN)
    for received in answers:
        values = [row["values"]["logS"] for row in received.json()["predictions"]]
        np.testing.assert_allclose(values, expected, rtol=1e-6)
    reason = "model takes the conditions temperature, laboratory, got no values of them"
    assert (refused.status_code, refused.json()["detail"]) == (422, reason)


def test_uploaded_files_have_a_column_for_each_condition(model, tmp_path):
    models = load_models({"model": str(model[0])}, "cpu")
    source = write_table(tmp_path / "in.csv", ["smiles", *GIVEN], [["CCO", *GIVEN.values()]])
    options = {"model": "model", "source": str(source), "target": str(tmp_path / "out.csv")}
    options |= {"shown": str(tmp_path / "shown.json"), "name": "in.csv", "max_rows": 10}
    state, outcome = answer(models, "predict_file", options, lambda value: None)
    assert (state, outcome["failed"]) == ("done", 0)
    expected = load_model(model[0]).predict("CCO", conditions=GIVEN)[0]
    assert pd.read_csv(tmp_path / "out.csv")["logS"][0] == pytest.approx(expected)


def test_estimators_take_the_columns_of_a_frame(rows):
    frame = pd.DataFrame(rows, columns=COLUMNS)
    values = frame.pop("logS")
    names = ["temperature", "laboratory"]
    model = MolsliceRegressor(encoder=None, members=2, random_state=0, conditions=names).fit(frame, values)
    cold, warm = (model.predict(frame.assign(temperature=t)) for t in (285.0, 325.0))
    assert (warm > cold).mean() > 0.95
    assert np.abs(model.predict(frame) - values).mean() < 0.2
    with pytest.raises(MolsliceError, match="no column 'laboratory'"):
        model.predict(frame[["smiles", "temperature"]])
    with pytest.raises(MolsliceError, match="takes the conditions"):
        model.predict(list(frame["smiles"]))
    with pytest.raises(MolsliceError, match="a DataFrame with the columns temperature, laboratory"):
        MolsliceRegressor(encoder=None, conditions=names).fit(list(frame["smiles"]), values)


def test_export_refuses_with_a_reason(model, tmp_path):
    with pytest.raises(MolsliceError, match="was written by molslice fit"):
        export_model(model[0], tmp_path / "model.onnx")


def test_an_explanation_has_the_conditions_of_the_prediction(model):
    predictor = load_model(model[0])
    for given in (GIVEN, {**GIVEN, "temperature": 320.0}):
        explanation = Explainer(predictor)("CCO", given)
        predicted = float(predictor.predict(["CCO"], conditions=given)[0])
        assert explanation.baseline + explanation.values.sum() == pytest.approx(predicted, abs=1e-5)
    with pytest.raises(MolsliceError, match="takes the conditions temperature, laboratory"):
        Explainer(predictor)("CCO")


def test_mixtures_keep_their_conditions(rows, tmp_path):
    some = changed(rows, tmp_path / "a.csv", "smiles", lambda row, value: f"{value}.Cl")
    fitted(some, tmp_path / "model", fragment="largest")
    predictor = load_model(tmp_path / "model")
    salts, plain = [predictor.predict([text], conditions=GIVEN) for text in ("CCCO.Cl", "CCCO")]
    np.testing.assert_array_equal(salts, plain)


def test_processes_get_the_conditions(model):
    predictor, smiles = load_model(model[0]), embedded_smiles(3)
    expected = predictor.predict(smiles, conditions=GIVEN)
    np.testing.assert_allclose(predictor.predict(smiles, conditions=GIVEN, workers=1), expected, rtol=1e-6)


def test_networks_take_the_molecule_alone_and_the_findings_say_so(table, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "molslice.fitting.fold_networks.MIN_WEIGHT", 0.0
    )  # of networks that are trained for one epoch
    monkeypatch.setattr("molslice.explanation.score.LEAST_WEIGHT", 0.0)
    about = fitted(table, tmp_path / "model", encoder="encoder-small", quality="best")
    finding = "the fine-tuned networks take the molecule alone, not temperature, laboratory"
    assert finding in about["findings"]
    predictor = load_model(tmp_path / "model")
    assert evaluate(predictor, _own_rows(predictor), progress=False)["rows"] == about["rows"]["test"]
    explanation = Explainer(predictor, method="gradients")("CCO", GIVEN)
    assert explanation.note.endswith("and do not take temperature, laboratory")


def _own_rows(predictor):
    from molslice.data import build_dataset

    data = predictor.data_config
    return build_dataset(data.name, dict(data.options))
