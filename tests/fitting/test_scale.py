"""Targets whose logarithms are learned: when, and what follows for predictions, intervals and errors."""

import csv
import json
import shutil

import numpy as np
import pytest

from molslice.cli import main
from molslice.data.molecules.describe import describe_molecules
from molslice.fitting.card import further_rows
from molslice.fitting.data import FitOptions
from molslice.fitting.fit import fit
from molslice.fitting.learner_fits import BASELINES
from molslice.fitting.table import read_fit_data
from molslice.folders.fitted import FIT, ROWS, read_fitted
from molslice.inference.load import load_model
from molslice.inference.options import PredictionOptions
from molslice.learners import Features
from molslice.report.suspects import examine
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import ARRAYS, CALIBRATION
from molslice.uncertainty.rounding import rounded_error
from tests.fitting.test_fit import write_table
from tests.inference.models import embedded_smiles
from tests.real_data import SAVED_MODEL

NEW = ["CCO", "c1ccccc1O", "CC(=O)Nc1ccc(O)cc1", "C1CCCCC1"]
FOUND = "learned as its logarithm"

pytestmark = pytest.mark.usefixtures("few_trees", "few_epochs")


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(110)


@pytest.fixture(scope="module")
def table(smiles, tmp_path_factory):
    """A concentration over several orders of magnitude, its logarithm, and a number that is not skewed."""
    draw = np.random.default_rng(0).normal(0.0, 0.3, len(smiles))
    logs = [len(text) / 12.0 + noise for text, noise in zip(smiles, draw, strict=True)]
    # the logarithm of what is written: networks enlarge differences of rounding
    rows = [
        [text, 10.0**log, float(np.log10(10.0**log)), log + 5.0]
        for text, log in zip(smiles, logs, strict=True)
    ]
    file = tmp_path_factory.mktemp("table") / "measured.csv"
    return write_table(file, ["smiles", "ic50", "pic50", "narrow"], rows)


def fitted(table, target, folder, **options):
    options = {"members": 3, "encoder": None, "refit": False, "quiet": True, **options}
    return fit(table, target, folder, **options)


@pytest.fixture(scope="module")
def folders(table, tmp_path_factory):
    """A model of the concentration, and a model of its logarithm."""
    root = tmp_path_factory.mktemp("fit")
    about = fitted(table, "ic50", root / "found", units="nM")
    fitted(table, "pic50", root / "logs")
    return root / "found", root / "logs", about


def read(table, column, **options):
    return read_fit_data(table, [column], FitOptions(**options), workers=0)


def test_a_skewed_target_is_found_and_others_are_not(table, folders):
    _, _, about = folders
    assert [text for text in about["findings"] if FOUND in text][0].startswith(
        f"ic50: {FOUND} (detected: positive and skewed, from "
    )
    for column in ("pic50", "narrow"):
        data = read(table, column)
        assert data.logarithmic == (False,)
        assert not [text for text in data.findings if FOUND in text]
        np.testing.assert_array_equal(data.learned, data.targets)


def test_rows_of_one_molecule_are_averaged_as_logarithms(smiles, table, tmp_path):
    logs = np.random.default_rng(1).normal(1.0, 1.0, (len(smiles), 3))
    logs[::5, 2] = np.nan
    rows = [
        [text, *("" if np.isnan(log) else repr(float(value)) for value in (10.0**log, log))]
        for text, measured in zip(smiles, logs, strict=True)
        for log in measured
    ]
    several = write_table(tmp_path / "several.csv", ["smiles", "ic50", "pic50"], rows)
    values, expected = read(several, "ic50"), read(several, "pic50")
    assert len(expected.targets) == len(smiles)
    np.testing.assert_allclose(expected.targets[:, 0], np.nanmean(logs, 1), rtol=1e-12)
    np.testing.assert_allclose(values.learned, expected.targets, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.log10(values.targets), values.learned, rtol=1e-12, atol=1e-12)
    linear = read(several, "ic50", scale="linear").targets[:, 0]
    np.testing.assert_allclose(linear, np.nanmean(10.0**logs, 1), rtol=1e-12)
    kept = read(several, "ic50", duplicates="keep")
    assert kept.logarithmic == (True,)
    assert len(kept.targets) == np.isfinite(logs).sum()


def test_conflicts_are_judged_on_the_learned_scale(smiles, tmp_path):
    values = 10.0 ** np.random.default_rng(0).normal(2.0, 1.0, len(smiles))
    values[5], values[10] = 0.003, 400_000.0
    rows = [*zip(smiles, values, strict=True), [smiles[5], 3.0], [smiles[10], 500_000.0]]
    file = write_table(tmp_path / "several.csv", ["smiles", "ic50"], rows)
    for scale, conflict in ((None, "0.003, 3"), ("log", "0.003, 3"), ("linear", "400000, 500000")):
        data = read(file, "ic50", scale=scale)
        assert data.logarithmic == (scale != "linear",)
        conflicts = [text for text in data.findings if "(rows " in text]
        assert len(conflicts) == 1
        assert conflict in conflicts[0]
        assert "differences like these, but smaller: 1 molecule" in data.findings
    about = fitted(file, "ic50", tmp_path / "model", split="all", quality="fast")
    assert any("0.003, 3 " in text for text in about["findings"])
    suspects = {one.place.row: one.reasons for one in examine(load_model(tmp_path / "model")).suspects}
    assert any("contradicts" in reason for reason in suspects[6])
    assert not any("contradicts" in reason for row in (11, 112) for reason in suspects.get(row, ()))


def test_a_row_of_several_without_a_logarithm_counts(smiles, tmp_path):
    rows = [[text, 10.0 ** (index % 7)] for index, text in enumerate(smiles)]
    file = write_table(
        tmp_path / "zero.csv", ["smiles", "ic50"], [*rows, *([text, 0.0] for text in smiles[:40])]
    )
    assert read(file, "ic50").logarithmic == (False,)
    with pytest.raises(MolsliceError, match="the value 0 of .* has no logarithm"):
        read(file, "ic50", scale="log")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (lambda draw: 10.0 ** draw.normal(1.0, 1.0, 500), True),
        (lambda draw: 10.0 ** draw.normal(1.0, 1.0, 500) * 1e-9, True),
        (lambda draw: 10.0 ** draw.normal(1.0, 0.1, 500), False),  # less than a factor of ten
        (lambda draw: draw.uniform(0.5, 100.0, 500), False),  # wide, but not skewed
        (
            lambda draw: 100.0 - np.minimum(99.0, 10.0 ** draw.normal(0.5, 0.7, 500)),
            False,
        ),  # skewed to the left
        (lambda draw: np.append(10.0 ** draw.normal(1.0, 1.0, 499), 0.0), False),
        (lambda draw: -(10.0 ** draw.normal(1.0, 1.0, 500)), False),
    ],
    ids=["log-normal", "small unit", "narrow", "uniform", "left", "zero", "negative"],
)
def test_the_logarithm_is_learned_of_positive_skewed_wide_values(values, expected, tmp_path):
    draw = np.random.default_rng(1)
    smiles = embedded_smiles(500)
    rows = [[text, repr(float(value))] for text, value in zip(smiles, values(draw), strict=True)]
    data = read(write_table(tmp_path / "t.csv", ["smiles", "y"], rows), "y")
    assert data.logarithmic == (expected,)


def test_predictions_are_those_of_the_logarithms(folders):
    found, logs, _ = folders
    (one, two) = (load_model(folder).predict_with_errors(NEW, interval=0.8) for folder in (found, logs))
    np.testing.assert_allclose(one.members.models, 10.0**two.members.models, rtol=1e-9)
    np.testing.assert_allclose(one.values, (10.0**two.members.models).mean(1), rtol=1e-5)
    np.testing.assert_allclose(one.lower, 10.0**two.lower, rtol=1e-4)
    np.testing.assert_allclose(one.upper, 10.0**two.upper, rtol=1e-4)
    assert (one.lower > 0).all()


def test_rows_and_errors_are_in_the_unit_of_the_target(folders):
    found, logs, about = folders
    predicted = {}
    for folder, column in ((found, "ic50"), (logs, "pic50")):
        with (folder / ROWS).open(newline="") as stream:
            rows = [row for row in csv.DictReader(stream) if row["split"] == "train"]
        predicted[column] = np.array(
            [[float(row[column]), float(row[f"{column}_predicted"])] for row in rows]
        )
    np.testing.assert_allclose(predicted["ic50"], 10.0 ** predicted["pic50"], rtol=1e-9)
    error = np.abs(np.diff(predicted["ic50"], axis=1)).mean()
    assert about["results"][0]["cross_validated"] == pytest.approx(error)
    factor = np.median(np.exp(np.abs(np.diff(np.log(predicted["ic50"]), axis=1))))
    assert about["findings"][-2] == (
        f"ic50: half of the cross-validated predictions are within a factor of {factor:.3g}"
    )
    shown = about["findings"][-1]
    assert shown.startswith("ic50: the same factor of the held-out predictions: molslice fit ")
    assert ", random forest " in shown
    assert ", boosting " in shown
    assert about["results"][0]["unit"] == "nM"


def test_baselines_are_measured_in_the_unit_of_the_target(folders):
    found, _, about = folders
    with (found / ROWS).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    described = describe_molecules([row["smiles"] for row in rows])
    order = np.argsort(described.canonical)  # of the fit
    features = Features(described.descriptors[order], described.counts[order])
    values = np.array([float(rows[i]["ic50"]) for i in order])
    test = np.array([rows[i]["split"] == "test" for i in order])
    for name, train in BASELINES.items():
        learned = np.log10(values)
        logs = train(features, np.flatnonzero(~test), np.flatnonzero(test), learned, False, 0)
        error = np.abs(10.0**logs - values[test]).mean()
        assert about["results"][0]["test"][name] == pytest.approx(error, rel=1e-6), name


def test_held_out_predictions_are_those_of_the_saved_model(folders):
    found, _, _ = folders
    with (found / ROWS).open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["split"] == "test"]
    kept = np.array([float(row["ic50_predicted"]) for row in rows])
    np.testing.assert_allclose(load_model(found).predict([row["smiles"] for row in rows]), kept, rtol=1e-5)


def test_the_command_evaluates_such_a_model(folders, capsys):
    assert main(["evaluate", str(folders[0]), "--uncertainty", "--json", "--quiet"]) == 0
    shown = json.loads(capsys.readouterr().out)
    expected = folders[2]["results"][0]["test"]["molslice fit"]
    assert expected == pytest.approx(shown["targets"][0]["mae"], rel=1e-4)
    levels = shown["uncertainty"]["targets"][0]["levels"]
    assert [each["width"] for each in levels] == sorted(each["width"] for each in levels)


def test_the_scale_can_be_chosen(table, tmp_path):
    about = fitted(table, "ic50", tmp_path / "linear", scale="linear")
    assert not [text for text in about["findings"] if FOUND in text]
    words = ["fit", str(table), "--target", "narrow", "--scale", "log", "--no-encoder", "--members", "2"]
    assert main([*words, "--out", str(tmp_path / "log"), "--quiet"]) == 0
    model = read_fitted(tmp_path / "log")
    assert model.stacks[0].logarithmic
    assert f"narrow: {FOUND}" in model.about["findings"]
    assert model.about["options"]["scale"] == "log"


def test_each_target_has_its_own_scale(table, tmp_path):
    fitted(table, ["narrow", "ic50"], tmp_path / "both", members=2)
    assert [stack.logarithmic for stack in read_fitted(tmp_path / "both").stacks] == [False, True]
    alone = fitted(table, "ic50", tmp_path / "alone", members=2)
    both = json.loads((tmp_path / "both" / FIT).read_text())
    assert both["results"][1]["cross_validated"] == pytest.approx(alone["results"][0]["cross_validated"])


def test_held_out_values_need_no_logarithm(smiles, tmp_path):
    rows = [[text, len(text), "test" if i % 9 == 0 else "train"] for i, text in enumerate(smiles)]
    rows[0][1] = 0
    table = write_table(tmp_path / "t.csv", ["smiles", "y", "part"], rows)
    about = fitted(table, "y", tmp_path / "model", split="part", scale="log", members=2)
    assert np.isfinite(about["results"][0]["test"]["molslice fit"])


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({3: -1.5}, {"scale": "log"}, r"measured\.csv, column 'y': the value -1\.5 of \S+ has no logarithm"),
        ({3: 0}, {"scale": "log"}, r"the value 0 of \S+ has no logarithm; choose the scale linear"),
        (
            "classes",
            {"scale": "log"},
            r"column 'y': the scale log is for numbers, but the targets are classes",
        ),
        ({}, {"scale": "ln"}, r"unknown scale 'ln'; choices: linear, log"),
    ],
)
def test_scales_that_do_not_fit_are_refused(change, options, words, smiles, tmp_path):
    values = [i % 2 for i in range(len(smiles))] if change == "classes" else [len(text) for text in smiles]
    for row, value in () if change == "classes" else change.items():
        values[row] = value
    rows = [[text, value, "train"] for text, value in zip(smiles, values, strict=True)]
    table = write_table(tmp_path / "measured.csv", ["smiles", "y", "part"], rows)
    with pytest.raises(MolsliceError, match=words):
        fitted(table, "y", tmp_path / "model", split="part", **options)
    assert not (tmp_path / "model").exists()


def test_networks_learn_the_logarithm_too(table, tmp_path):
    options = {"members": 2, "encoder": str(SAVED_MODEL)}
    fitted(table, "ic50", tmp_path / "found", **options)
    fitted(table, "pic50", tmp_path / "logs", **options)
    options = PredictionOptions(with_members=True)
    one, two = (
        load_model(tmp_path / name).predict_with_errors(NEW, options=options) for name in ("found", "logs")
    )
    np.testing.assert_allclose(one.members.models, 10.0**two.members.models, rtol=1e-6)


def test_a_folder_without_its_calibration_has_intervals_from_its_rows(table, tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.fitting.folds.MAX_ROWS", 0)
    fitted(table, "ic50", tmp_path / "older")
    for name in (CALIBRATION, ARRAYS):
        (tmp_path / "older" / name).unlink()
    found = load_model(tmp_path / "older").predict_with_errors(NEW, interval=0.8)
    assert ((found.lower > 0) & (found.lower < found.values) & (found.values < found.upper)).all()
    ratio = found.upper / found.lower
    np.testing.assert_allclose(ratio, ratio.mean(), rtol=0.3)  # equal widths of logarithms, up to the folds


def test_damaged_scales_are_refused(folders, tmp_path):
    shutil.copytree(folders[0], tmp_path / "model")
    file = tmp_path / "model" / FIT
    about = json.loads(file.read_text())
    about["stacks"][0]["logarithmic"] = "yes"
    file.write_text(json.dumps(about))
    with pytest.raises(MolsliceError, match="logarithmic 'yes'"):
        load_model(tmp_path / "model")
    shutil.copyfile(folders[0] / FIT, file)
    held = tmp_path / "model" / CALIBRATION
    held.write_text(held.read_text().replace('"logarithmic": true', '"logarithmic": 1'))
    with pytest.raises(MolsliceError, match="logarithmic 1"):
        load_model(tmp_path / "model").predict_with_errors(NEW, interval=0.8)
    held.write_text(held.read_text().replace('"logarithmic": 1', '"logarithmic": false'))
    with pytest.raises(MolsliceError, match="held-out rows of 'ic50' on another scale than its model"):
        load_model(tmp_path / "model").predict_with_errors(NEW, interval=0.8)


def test_the_mean_fold_error_is_beside_the_announced_error(table, tmp_path):
    about = fitted(table, "ic50", tmp_path / "model", scale="log")
    errors = about["results"][0]["metrics"]["fold_error"]
    with (tmp_path / "model" / ROWS).open(newline="") as stream:
        train = [row for row in csv.DictReader(stream) if row["split"] == "train"]
    orders = [abs(np.log10(float(row["ic50"]) / float(row["ic50_predicted"]))) for row in train]
    assert errors["cross_validated"] == pytest.approx(10.0 ** np.mean(orders))
    assert errors["standard_errors"]["test"]["molslice fit"] > 0
    header, (line,) = further_rows(about)
    assert (header[1], line[1]) == ("metric", "mean fold error")
    assert "mean fold error" in (tmp_path / "model" / "card.md").read_text()
    assert "metrics" not in fitted(table, "ic50", tmp_path / "linear", scale="linear")["results"][0]


def test_predictions_of_a_table_have_a_mean_fold_error_too(table, tmp_path, capsys):
    fitted(table, "ic50", tmp_path / "model", scale="log", quality="fast", members=2)
    words = ["predict", str(tmp_path / "model"), "--input", str(table), "--output", str(tmp_path / "out.csv")]
    capsys.readouterr()
    assert main([*words, "--metrics", "--json", "--quiet"]) == 0
    absolute, fold = json.loads(capsys.readouterr().out)["metrics"]
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["ic50"]]
    orders = [abs(np.log10(float(row["ic50"]) / float(row["ic50_predicted"]))) for row in rows]
    assert (absolute["metric"], fold["metric"], fold["unit"]) == ("mae", "fold_error", "")
    assert fold["value"] == pytest.approx(10.0 ** np.mean(orders), rel=1e-4)
    spread = np.log(10.0) * np.std(orders, ddof=1) / np.sqrt(len(orders))
    assert fold["standard_error"] == pytest.approx(fold["value"] * spread, rel=1e-3)
    assert main([*words, "--metrics"]) == 0
    shown = capsys.readouterr()
    error = rounded_error(fold["value"], fold["standard_error"])
    assert f"ic50, mean fold error - {len(rows)} {error}" in " ".join(shown.out.split())
    assert "A number after ± is a standard error" in shown.err


def test_a_held_out_value_without_a_logarithm_is_left_out_of_the_fit_to_all_rows(smiles, tmp_path):
    rows = [[text, len(text), "train" if row % 10 else "test"] for row, text in enumerate(smiles)]
    rows[0][1] = 0
    table = write_table(tmp_path / "measured.csv", ["smiles", "y", "part"], rows)
    about = fitted(
        table, "y", tmp_path / "model", scale="log", split="part", refit=True, members=2, quality="fast"
    )
    left_out = (
        "y: 1 held-out value without a logarithm, left out of the mean fold error and of the fit to all rows"
    )
    assert left_out in about["findings"]
    (result,) = about["results"]
    assert (result["test_rows"], result["train_rows"]) == (11, 109)
    assert about["rows"] == {"train": 109, "test": 11}
    with (tmp_path / "model" / "rows.csv").open(newline="") as stream:
        learned = {row["smiles"]: row for row in csv.DictReader(stream)}
    assert [text for text, row in learned.items() if row["split"] == "test"] == [smiles[0]]
    assert float(learned[smiles[0]]["y_predicted"]) > 0
    assert len(load_model(tmp_path / "model").predict(smiles)) == len(smiles)
