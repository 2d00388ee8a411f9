"""Fitting a table of molecules: what is found, refused, held out, and written."""

import csv
import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from molslice.cli import main
from molslice.data.molecules.describe import MoleculeDescriber
from molslice.files.atomic import reserved
from molslice.fitting.card import STANDARD_ERROR, result_rows
from molslice.fitting.data import FitOptions
from molslice.fitting.fit import fit
from molslice.fitting.folds import divide_into_folds
from molslice.fitting.table import read_fit_data
from molslice.folders.fitted import CARD, FIT, LEARNER_FILE, ROWS, read_fitted, save_learners
from molslice.inference.evaluate import evaluate
from molslice.inference.fitted import FittedPredictor
from molslice.inference.load import load_model, load_network
from molslice.tasks.standard_errors import MeasuredMetric
from molslice.types import MolsliceError
from molslice.uncertainty.rounding import rounded_error
from tests.inference.models import embedded_smiles

ROWS_OF_TABLE = 90

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(ROWS_OF_TABLE)


@pytest.fixture(scope="module")
def table(smiles, tmp_path_factory):
    """SMILES, a target that is easy to learn, a class, and a column that is missing in half of the rows."""
    file = tmp_path_factory.mktemp("table") / "measured.csv"
    rows = [[text, *values] for text, values in zip(smiles, targets_of(smiles), strict=True)]
    write_table(file, ["id", "structure", "size", "big", "half"], [[i, *row] for i, row in enumerate(rows)])
    return file


def targets_of(smiles):
    size = [len(text) + 3.0 * text.count("N") for text in smiles]
    return [(value, int(value > 35), value if i % 2 else "") for i, value in enumerate(size)]


def write_table(file, header, rows):
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])
    return file


@pytest.fixture(scope="module")
def fitted(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "model"
    about = fit(table, "size", folder, units="bits", members=3, encoder=None, refit=False, quiet=True)
    return folder, about


@pytest.fixture(scope="module")
def classes(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "model"
    return folder, fit(
        table, "big", folder, members=3, split="scaffold", encoder=None, refit=False, quiet=True
    )


def read_rows(folder):
    with (folder / ROWS).open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_it_says_what_it_found(fitted):
    _, about = fitted
    assert about["findings"][0].endswith("measured.csv: UTF-8, delimiter comma")
    assert about["findings"][1:3] == [
        "SMILES: column 'structure' (detected)",
        "targets: size; regression (detected)",
    ]


def test_the_model_is_better_than_the_mean(fitted):
    _, about = fitted
    (result,) = about["results"]
    assert set(result["test"]) == {"molslice fit", "random forest", "boosting"}
    assert result["cross_validated"] < 6.0  # the mean absolute deviation of the target is 9
    assert result["unit"] == "bits"


def test_the_table_names_the_unit_or_a_dash(fitted, classes):
    for (_, about), unit in ((fitted, "bits"), (classes, "-")):
        header, rows = result_rows(about)
        assert rows[0][header.index("unit")] == unit
        assert rows[0][header.index("target")] == about["results"][0]["target"]


def test_errors_have_standard_errors(fitted):
    """No molecule has another form here, so that each row is a group."""
    folder, about = fitted
    errors = {"train": [], "test": []}
    for row in read_rows(folder):
        errors[row["split"]].append(abs(float(row["size"]) - float(row["size_predicted"])))
    train, test = (np.std(each, ddof=1) / np.sqrt(len(each)) for each in errors.values())
    (result,) = about["results"]
    found = result["standard_errors"]
    assert found["cross_validated"] == pytest.approx(train * np.sqrt(1 + 3 / 2))  # three folds
    least = train * np.sqrt(len(errors["train"]) / len(errors["test"]))
    assert found["test"]["molslice fit"] == pytest.approx(max(test, least))
    assert set(found["test"]) == set(result["test"])
    header, rows = result_rows(about)
    shown = rows[0][header.index("molslice fit MAE")]
    assert shown == rounded_error(result["test"]["molslice fit"], found["test"]["molslice fit"])
    assert " ± " in shown
    assert " ± " in rows[0][header.index("cross-validated MAE")]
    assert STANDARD_ERROR in (folder / CARD).read_text()
    older = {key: value for key, value in result.items() if key != "standard_errors"}
    assert "±" not in str(result_rows({**about, "results": [older]}))


def test_standard_errors_are_over_what_is_held_out_together(classes):
    """Over scaffolds, with the split scaffold."""
    folder, about = classes
    rows = [row for row in read_rows(folder) if row["split"] == "train"]
    truth, predicted = (np.array([float(row[name]) for row in rows]) for name in ("big", "big_predicted"))
    with MoleculeDescriber(with_groups=True) as describer:
        (described,) = describer.read([[row["smiles"] for row in rows]])
    pairs = zip(described.scaffolds, described.parents, strict=True)
    scaffolds = np.unique([scaffold or parent for scaffold, parent in pairs], return_inverse=True)[1]
    expected, other = (
        np.sqrt(1 + 3 / 2) * MeasuredMetric.of("classification", predicted, truth, groups).standard_error
        for groups in (scaffolds, np.arange(len(rows)))
    )
    assert about["results"][0]["standard_errors"]["cross_validated"] == pytest.approx(expected)
    assert abs(other - expected) > 0.01 * expected


def test_a_tenth_of_the_molecules_is_held_out(fitted):
    folder, about = fitted
    rows = read_rows(folder)
    test = [row for row in rows if row["split"] == "test"]
    assert len(test) == about["rows"]["test"] == round(len(rows) / 10)
    assert {row["fold"] for row in test} == {""}
    assert {row["fold"] for row in rows if row["split"] == "train"} == {"0", "1", "2"}


@pytest.mark.parametrize("which", ["fitted", "classes"])
def test_predictions_of_held_out_rows_are_those_of_the_saved_model(which, request):
    folder, about = request.getfixturevalue(which)
    name = about["results"][0]["target"]
    test = [row for row in read_rows(folder) if row["split"] == "test"]
    predictor = load_model(folder)
    values = predictor.predict([row["smiles"] for row in test])
    np.testing.assert_allclose(values, [float(row[f"{name}_predicted"]) for row in test], rtol=1e-6)


@pytest.mark.parametrize("which", ["fitted", "classes"])
def test_evaluate_repeats_the_error_of_the_fit(which, request, capsys):
    folder, about = request.getfixturevalue(which)
    assert main(["evaluate", str(folder), "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["targets"][0][about["metric"]] == pytest.approx(
        about["results"][0]["test"]["molslice fit"], rel=1e-5
    )
    assert main(["evaluate", str(folder), "--quiet"]) == 0
    assert "parameters" not in capsys.readouterr().out


def test_out_of_fold_predictions_are_of_models_without_the_row(fitted, table, tmp_path, smiles):
    """Other values in one fold leave the predictions of this fold as they are."""
    folder, _ = fitted
    rows = read_rows(folder)
    changed = {row["smiles"] for row in rows if row["fold"] == "1"}
    other = [
        [text, values[0] + 50.0 if text in changed else values[0]]
        for text, values in zip(smiles, targets_of(smiles), strict=True)
    ]
    file = write_table(tmp_path / "other.csv", ["smiles", "size"], other)
    fit(file, "size", tmp_path / "model", members=3, encoder=None, refit=False, quiet=True)
    again = {row["smiles"]: row for row in read_rows(tmp_path / "model")}
    learners, before = read_fitted(tmp_path / "model").stacks, read_fitted(folder).stacks
    assert learners != before  # the weights see all folds, each learner does not
    assert [again[text]["fold"] for text in changed] == ["1"] * len(changed)


def test_a_prediction_depends_on_the_molecule_only(fitted):
    predictor = load_model(fitted[0])
    new = ["CCO", "not a molecule", "OCC", "c1ccccc1N"]
    together = predictor.predict_with_errors(new)
    assert together.values[0] == together.values[2]  # two spellings
    assert [reason is None for reason in together.errors] == [True, False, True, True]
    alone = np.concatenate([predictor.predict([text]) for text in new])
    np.testing.assert_allclose(alone, together.values[:, 0], rtol=1e-6)
    workers = predictor.predict(new, workers=1)
    np.testing.assert_array_equal(workers, together.values[:, 0])
    assert predictor.columns == ("size_bits",)


def test_a_table_is_predicted(fitted, table, tmp_path):
    out = tmp_path / "predicted.csv"
    command = ["predict", str(fitted[0]), "--input", str(table), "--output", str(out)]
    assert main([*command, "--smiles-column", "structure", "--quiet"]) == 0
    with out.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == ROWS_OF_TABLE
    error = np.mean([abs(float(row["size"]) - float(row["size_bits"])) for row in rows])
    assert error < 4.0


def test_classes_are_probabilities(classes, smiles):
    folder, about = classes
    assert about["metric"] == "roc_auc"
    values = load_model(folder).predict(smiles)
    assert ((values >= 0) & (values <= 1)).all()
    big = np.array([target[1] for target in targets_of(smiles)])
    assert values[big == 1].mean() > values[big == 0].mean() + 0.3


def test_scaffolds_are_in_one_split_and_one_fold(classes):
    folder, _ = classes
    rows = read_rows(folder)
    with MoleculeDescriber(with_groups=True) as describer:
        (described,) = describer.read([[row["smiles"] for row in rows]])
    places = {}
    for row, scaffold in zip(rows, described.scaffolds, strict=True):
        if scaffold:
            places.setdefault(scaffold, set()).add((row["split"], row["fold"]))
    assert max(map(len, places.values())) == 1
    # a split may share the molecules without rings, but no fold of them is empty
    assert {row["fold"] for row in rows} == {"", "0", "1", "2"}


def test_the_same_table_gives_the_same_model(fitted, table, tmp_path):
    folder, _ = fitted
    fit(table, "size", tmp_path / "model", units="bits", members=3, encoder=None, refit=False, quiet=True)
    assert (tmp_path / "model" / LEARNER_FILE).read_bytes() == (folder / LEARNER_FILE).read_bytes()
    assert (tmp_path / "model" / ROWS).read_bytes() == (folder / ROWS).read_bytes()


def test_the_unit_of_a_target_has_no_influence(smiles, tmp_path):
    """Forests of scikit-learn have an absolute limit; a small unit or a large offset once went below it."""
    values = np.array([[value for value, _, _ in targets_of(smiles)]]).T @ np.array([[1.0, 1e-12, 1.0]])
    rows = [[text, *(each + [0.0, 0.0, 2.0**20])] for text, each in zip(smiles, values, strict=True)]
    file = write_table(tmp_path / "a.csv", ["smiles", "plain", "small", "far"], rows)
    names = ["plain", "small", "far"]
    plain, small, far = fit(file, names, tmp_path / "model", members=2, encoder=None, quiet=True)["results"]
    for label, error in plain["test"].items():
        assert small["test"][label] == pytest.approx(1e-12 * error, rel=0.2), label
        assert far["test"][label] == pytest.approx(error, rel=0.2), label
    assert small["weights"] == pytest.approx(plain["weights"], abs=0.2)


def test_values_that_predictions_cannot_tell_apart_are_refused(smiles, tmp_path):
    rows = [[text, 1e9 + value] for text, (value, _, _) in zip(smiles, targets_of(smiles), strict=True)]
    file = write_table(tmp_path / "a.csv", ["smiles", "energy"], rows)
    words = r"the column 'energy' .* 32-bit floating point rounds it by up to .*; subtract a constant"
    with pytest.raises(MolsliceError, match=words):
        fit(file, "energy", tmp_path / "model", encoder=None, quiet=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_of_the_file(fitted, tmp_path):
    (tmp_path / LEARNER_FILE).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        save_learners(tmp_path, read_fitted(fitted[0]).learners)


def test_columns_of_the_rows_are_distinct(smiles, tmp_path):
    names = ["split", "split_measured"]
    rows = [[text, i, 2 * i] for i, text in enumerate(smiles)]
    file = write_table(tmp_path / "a.csv", ["smiles", *names], rows)
    fit(file, names, tmp_path / "model", members=2, encoder=None, refit=False, quiet=True)
    assert main(["evaluate", str(tmp_path / "model"), "--quiet"]) == 0


def test_another_table_needs_no_column_of_the_split(fitted, smiles, tmp_path, capsys):
    folder, _ = fitted
    file = write_table(tmp_path / "a.csv", ["smiles", "y"], [[text, len(text)] for text in smiles[:30]])
    table = ["--data.path", str(file), "--data.target-columns", "y"]
    assert main(["evaluate", str(folder), "--split", "all", "--json", "--quiet", *table]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 30
    file.write_text("smiles,y\nCCO,3\n")
    assert main(["evaluate", str(folder), "--split", "all", "--json", "--quiet", *table]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 1
    assert main(["evaluate", str(folder), "--split", "all", *table]) == 0
    assert "training molecules" not in capsys.readouterr().err
    with (folder / ROWS).open(newline="") as stream:
        known = next(row["smiles"] for row in csv.DictReader(stream) if row["split"] == "train")
    file.write_text(f"smiles,y\nCCO,3\n{known},3\n{known},\n(,1\n")
    assert main(["evaluate", str(folder), "--split", "all", *table]) == 0
    line = "at least 1 of 2 measured rows are of training molecules; the error for new molecules is larger\n"
    assert line in capsys.readouterr().err
    assert main(["evaluate", str(folder), "--quiet", *table]) == 1
    assert re.search("has no column 'split'.*; to measure all rows .* --split all", capsys.readouterr().err)
    assert main(["evaluate", str(folder), "--quiet", "--data.path", str(tmp_path / "b.csv")]) == 1
    assert re.search(r"no such file: \S+ \(data\.path\)\n$", capsys.readouterr().err)


def test_true_and_false_are_numbers_everywhere(smiles, tmp_path, capsys):
    rows = [[text, len(text), str(len(text) > 35).lower()] for text in smiles]
    file = write_table(tmp_path / "a.csv", ["smiles", "size", "big"], rows)
    about = fit(file, ["size", "big"], tmp_path / "model", members=2, encoder=None, quiet=True)
    assert [result["kind"] for result in about["results"]] == ["regression", "classification"]
    words = ["--input", str(file), "--output", str(tmp_path / "out.csv"), "--metrics", "--json", "--quiet"]
    assert main(["predict", str(tmp_path / "model"), *words]) == 0
    assert [each["count"] for each in json.loads(capsys.readouterr().out)["metrics"]] == [90, 90]
    words = ["--split", "all", "--data.path", str(file), "--quiet"]
    assert main(["evaluate", str(tmp_path / "model"), *words]) == 0


def test_a_target_that_is_missing_in_half_of_the_rows(table, tmp_path):
    about = fit(table, ["size", "half"], tmp_path / "model", members=2, encoder=None, quiet=True)
    one, two = about["results"]
    assert two["train_rows"] < one["train_rows"]
    assert any("half: " in text and "have no value" in text for text in about["findings"])
    assert load_model(tmp_path / "model").predict(["CCO"]).shape == (1, 2)


def test_a_column_divides_the_rows(smiles, tmp_path):
    rows = [
        [text, values[0], "test" if i < 20 else ("valid" if i < 30 else "train")]
        for i, (text, values) in enumerate(zip(smiles, targets_of(smiles), strict=True))
    ]
    file = write_table(tmp_path / "a.csv", ["smiles", "size", "part"], rows)
    about = fit(file, "size", tmp_path / "model", split="part", members=2, encoder=None, quiet=True)
    assert about["rows"] == {"train": ROWS_OF_TABLE - 20, "test": 20}
    assert {row["smiles"] for row in read_rows(tmp_path / "model") if row["split"] == "test"} == set(
        smiles[:20]
    )


def test_usual_words_for_the_splits_are_known(smiles, tmp_path):
    words = ["holdout" if i % 3 == 0 else "train_val" for i in range(len(smiles))]
    rows = [
        [text, word, size] for text, word, (size, *_) in zip(smiles, words, targets_of(smiles), strict=True)
    ]
    file = write_table(tmp_path / "a.csv", ["smiles", "set\u00a0", "size"], rows)
    fit(file, "size", tmp_path / "model", split="set", members=2, encoder=None, quiet=True)
    held_out = {row["smiles"] for row in read_rows(tmp_path / "model") if row["split"] == "test"}
    assert held_out == {text for text, word in zip(smiles, words, strict=True) if word == "holdout"}


def test_valid_rows_alone_are_training_rows(smiles, tmp_path):
    rows = [[text, len(text), "test" if i < 20 else "valid"] for i, text in enumerate(smiles)]
    rows[50] = ["", 1.0, ""]  # left out before its split is read
    data = read(write_table(tmp_path / "a.csv", ["smiles", "y", "part"], rows), split="part")
    assert data.test.sum() == 20
    assert len(data.smiles) == ROWS_OF_TABLE - 1
    only = [[text, y, "test"] for text, y, _ in rows]
    with pytest.raises(MolsliceError, match=r"\.csv, column 'part' assigns no row to train or valid"):
        read(write_table(tmp_path / "b.csv", ["smiles", "y", "part"], only), split="part")


def test_unreadable_rows_do_not_shift_the_held_out_ones(smiles, tmp_path):
    rows = [[text, len(text), "test" if 30 <= i < 40 else "train"] for i, text in enumerate(smiles)]
    for i in (3, 12, 35):
        rows[i][0] = "C(("
    data = read(write_table(tmp_path / "a.csv", ["smiles", "y", "part"], rows), split="part")
    held_out = {text for text, test in zip(data.smiles, data.test, strict=True) if test}
    assert held_out == {*smiles[30:35], *smiles[36:40]}


def test_held_out_values_do_not_enter_the_mean_and_the_deviation(smiles, tmp_path):
    rows = [[text, 1e6 if i < 20 else len(text), "train"] for i, text in enumerate(smiles)]
    for row in rows[:20]:
        row[2] = "test"
    file = write_table(tmp_path / "a.csv", ["smiles", "y", "part"], rows)
    options: dict[str, Any] = {"members": 2, "encoder": None, "minutes": 1e-9, "quiet": True}
    options["outliers"] = "keep"
    about = fit(file, "y", tmp_path / "model", split="part", **options)
    values = [len(text) for text in smiles[20:]]
    assert about["targets"]["mean"] == pytest.approx([np.mean(values)])
    assert about["targets"]["std"] == pytest.approx([np.std(values)])


def test_held_out_rows_of_one_class_are_named(smiles, tmp_path):
    rows = [
        [text, row % 2 if row % 5 else 1, "train" if row % 5 else "test"] for row, text in enumerate(smiles)
    ]
    table = write_table(tmp_path / "t.csv", ["smiles", "y", "part"], rows)
    about = fit(table, "y", tmp_path / "model", split="part", members=2, encoder=None, quiet=True)
    assert about["findings"][-1] == "y: all 18 held-out rows are of class 1; no ROC-AUC is defined"
    assert result_rows(about)[1][0][4:] == ["18", "-", "-", "-"]
    assert "nan" not in (tmp_path / "model" / CARD).read_text()
    assert json.loads((tmp_path / "model" / FIT).read_text())["results"][0]["test"]["molslice fit"] is None


def test_little_time_leaves_learners_out(table, tmp_path):
    about = fit(table, "size", tmp_path / "model", members=2, minutes=1e-9, encoder=None, quiet=True)
    assert len(about["results"][0]["weights"]) == 1
    assert [what.partition(" ")[0] for what in about["left_out"]] == [
        "boosting",
        "gaussian_process",
        "random",
        "boosting",
        "the",  # second division
    ]
    assert len(set(load_model(tmp_path / "model").predict(["CCO", "c1ccccc1CCCN"]))) == 2
    assert "not computed for lack of time" in (tmp_path / "model" / CARD).read_text()


def test_too_many_targets_are_refused_before_the_work(table, fitted, tmp_path, monkeypatch):
    rows = fitted[1]["rows"]["train"]  # each takes about 430 bytes
    monkeypatch.setattr("molslice.fitting.fit.LARGEST_ARRAYS", rows * 500)
    fit(table, "size", tmp_path / "one", members=2, minutes=1e-9, encoder=None, refit=False, quiet=True)
    monkeypatch.setattr("molslice.fitting.stacks.LearnerFits", None)  # a call fails
    with pytest.raises(MolsliceError, match=r"a model of 2 targets has more than [\d,]+ bytes; fit fewer"):
        fit(table, ["size", "half"], tmp_path / "two", members=2, encoder=None, refit=False, quiet=True)
    assert not (tmp_path / "two").exists()


def duplicated(smiles, tmp_path, kind="number"):
    """The first molecule in three rows, in two spellings, with different values."""
    values: list[Any] = [target[0 if kind == "number" else 1] for target in targets_of(smiles)]
    rows = list(zip(smiles, values, strict=True))
    first = 1 - values[0] if kind == "class" else values[0] + 3.0
    return write_table(
        tmp_path / "double.csv", ["smiles", "y"], [*rows, (smiles[0], first), (smiles[0], first)]
    )


def read(file, targets=("y",), **options):
    return read_fit_data(file, targets, FitOptions(**options), workers=0)


def test_duplicates_are_averaged(smiles, tmp_path):
    data = read(duplicated(smiles, tmp_path))
    assert len(data.smiles) == ROWS_OF_TABLE
    assert data.targets[data.smiles.index(smiles[0]), 0] == pytest.approx(targets_of(smiles)[0][0] + 2.0)
    assert "1 molecule has several rows, with different values; they are averaged" in data.findings


def test_a_target_without_a_value_in_any_row_of_a_molecule_stays_missing(smiles, tmp_path):
    rows = [(text, i, i / 2) for i, text in enumerate(smiles)]
    table = write_table(
        tmp_path / "two.csv", ["smiles", "y", "z"], [*rows[1:], (smiles[0], 4.0, ""), (smiles[0], 6.0, "")]
    )
    data = read(table, ("y", "z"))
    np.testing.assert_array_equal(data.targets[data.smiles.index(smiles[0])], [5.0, np.nan])


@pytest.mark.parametrize(("scale", "expected"), [("linear", [5.0, 8.0]), ("log", [24**0.5, 63**0.5])])
def test_a_missing_cell_does_not_count_in_the_mean_of_several_rows(scale, expected, smiles, tmp_path):
    several = [(smiles[0], 4.0, ""), (smiles[0], 6.0, 7.0), (smiles[0], "", 9.0)]
    rows = [(text, i + 1, i / 2 + 1) for i, text in enumerate(smiles[1:])]
    table = write_table(tmp_path / "two.csv", ["smiles", "y", "z"], [*rows, *several])
    data = read(table, ("y", "z"), scale=scale)
    np.testing.assert_allclose(data.targets[data.smiles.index(smiles[0])], expected)


@pytest.mark.parametrize(("factor", "word"), [(1 + 1e-5, "different"), (1 + 1e-12, "equal")])
def test_values_that_differ_by_rounding_are_equal(factor, word, smiles, tmp_path):
    rows = [*((text, i + 1) for i, text in enumerate(smiles)), (smiles[4], repr(5 * factor))]
    data = read(write_table(tmp_path / "a.csv", ["smiles", "y"], rows))
    assert f"1 molecule has several rows, with {word} values; they are averaged" in data.findings


def test_classes_that_disagree_are_missing(smiles, tmp_path):
    data = read(duplicated(smiles, tmp_path, kind="class"))
    assert len(data.smiles) == ROWS_OF_TABLE - 1
    assert smiles[0] not in data.smiles


def test_kept_duplicates_stay_together(smiles, tmp_path):
    for seed in range(4):
        data = read(duplicated(smiles, tmp_path), duplicates="keep", seed=seed)
        assert len(data.smiles) == ROWS_OF_TABLE + 2
        assert len({bool(data.test[i]) for i, text in enumerate(data.smiles) if text == smiles[0]}) == 1


def test_duplicates_are_refused_if_asked(smiles, tmp_path):
    with pytest.raises(MolsliceError, match=r"1 molecule has several rows, with different values"):
        read(duplicated(smiles, tmp_path), duplicates="refuse")


def test_held_out_duplicates_of_training_molecules_are_refused_if_asked(smiles, tmp_path):
    rows = [[text, len(text), "train"] for text in smiles] + [[smiles[3], 1.0, "test"]]
    file = write_table(tmp_path / "a.csv", ["smiles", "y", "part"], rows)
    assert (
        "1 held-out molecule is also a training molecule; both are kept" in read(file, split="part").findings
    )
    with pytest.raises(MolsliceError, match=r"1 held-out molecule is also .*; the first: \S+\. Remove them"):
        read(file, split="part", duplicates="refuse")


def test_numbers_that_may_be_classes_are_named(smiles, tmp_path):
    numbers = [[text, n, n % 2 + 1] for text, n in zip(smiles, range(len(smiles)), strict=True)]
    file = write_table(tmp_path / "b.csv", ["smiles", "y", "class"], numbers)
    words = "class: has only 1 and 2, but is learned as numbers; if they are classes, write them as 0 and 1"
    assert words in read(file, ("class",)).notices
    assert words not in read(file, ("class",), kinds=("regression",)).notices


def with_sentinels(smiles, tmp_path):
    """A table with -999 in seven rows and the text n.d. in one."""
    values = [float(len(text)) for text in smiles]
    values[5:40:5] = [-999] * 7
    rows = [[text, value] for text, value in zip(smiles, values, strict=True)]
    rows[3][1] = "n.d."
    return write_table(tmp_path / "a.csv", ["smiles", "y"], rows)


def test_a_value_far_outside_is_refused_until_the_user_decides(smiles, tmp_path, capsys):
    file = with_sentinels(smiles, tmp_path)
    words = [
        "fit",
        str(file),
        "--target",
        "y",
        "--out",
        str(tmp_path / "model"),
        "--members",
        "2",
        "--no-encoder",
    ]
    assert main(words) == 1
    assert "row 4 (line 5), column 'y': 'n.d.' is not a number" in capsys.readouterr().err
    assert main([*words, "--missing-value", "n.d."]) == 1
    told = capsys.readouterr().err
    assert "column 'y': -999 in 7 rows (row 6 (line 7), row 11 (line 12), " in told
    assert "row 26 (line 27) and 2 others): far outside the other values" in told
    assert "give --missing-value=-999; if it is right, give --outliers keep" in told
    assert not (tmp_path / "model").exists()
    assert main([*words, "--missing-value", "n.d.", "--missing-value=-999", "--quiet"]) == 0
    assert "far outside" not in capsys.readouterr().err
    known = {float(row["y"]) for row in read_rows(tmp_path / "model")}
    assert min(known) > 0
    about = json.loads((tmp_path / "model" / FIT).read_text())
    assert about["options"]["missing_values"] == ["n.d.", "-999"]
    assert "8 rows left out: no value of any target" in about["findings"]
    predicted = load_model(tmp_path / "model").predict(["CCO", "CCN"])
    assert np.all(predicted > 0)


def test_values_far_outside_are_learned_if_asked(smiles, tmp_path, capsys):
    file = with_sentinels(smiles, tmp_path)
    options = {"missing_values": "N.D.", "outliers": "keep", "members": 2, "encoder": None, "refit": False}
    about = fit(file, "y", tmp_path / "model", **options)
    assert about["notices"][0].startswith("y: -999 in 7 rows (row 6 (line 7)")
    assert {float(row["y"]) for row in read_rows(tmp_path / "model")} >= {-999.0}
    assert main(["evaluate", str(tmp_path / "model"), "--json"]) == 0
    with pytest.raises(MolsliceError, match="invalid outliers 'drop'"):
        fit(file, "y", tmp_path / "other", **{**options, "outliers": "drop"})
    with pytest.raises(MolsliceError, match="a missing value must be a number or a text, got None"):
        fit(file, "y", tmp_path / "other", **{**options, "missing_values": [None]})


def test_what_the_numbers_mean_is_named_before_the_fit_and_on_the_card(smiles, tmp_path, capsys):
    rows = [[text, i % 3, ">" if i % 4 else "=", ["nM", "uM"][i % 2]] for i, text in enumerate(smiles)]
    file = write_table(tmp_path / "a.csv", ["smiles", "y", "Relation", "unit"], rows)
    data = read(file, limits="exact", unit_columns=(None,))
    assert [text.split(",")[0] for text in data.notices] == [
        "column 'Relation' has relations",
        "column 'unit' has units",
        "y: has only 0",
    ]
    assert "nM in 45 rows" in data.notices[1]
    options = {"kinds": ("regression",), "unit_columns": (None,)}
    assert read(file, limits="exact", **options).notices == data.notices[:2]
    assert read(file, **options).notices == data.notices[1:2]  # limits are learned
    assert not read(file, kinds=("regression",)).notices  # and units are converted


def test_a_point_that_may_separate_thousands_is_asked_about(smiles, tmp_path):
    lines = [f"{text};{len(text)}.{100 + i}" for i, text in enumerate(smiles)]
    (tmp_path / "a.csv").write_text("\n".join(["smiles;y", *lines]) + "\n")
    fast = {"encoder": None, "members": 2, "quiet": True}
    with pytest.raises(MolsliceError, match=r"column 'y': .* may mean \d+, .* --decimal , \(data.decimal\)"):
        fit(tmp_path / "a.csv", "y", tmp_path / "model", **fast)
    fit(tmp_path / "a.csv", "y", tmp_path / "model", decimal=",", **fast)
    values = sorted(float(row["y"]) for row in read_rows(tmp_path / "model"))
    assert values[0] == min(1000 * len(text) + 100 + i for i, text in enumerate(smiles))
    with pytest.raises(MolsliceError, match="the decimal mark must be . or , but got 'x'"):
        fit(tmp_path / "a.csv", "y", tmp_path / "other", decimal="x", **fast)


def test_three_classes_are_named_at_once_and_on_the_card(smiles, tmp_path, capsys):
    file = write_table(tmp_path / "a.csv", ["smiles", "y"], [[s, i % 3 - 1] for i, s in enumerate(smiles)])
    words = [
        "fit",
        str(file),
        "--target",
        "y",
        "--out",
        str(tmp_path / "model"),
        "--members",
        "2",
        "--no-encoder",
    ]
    assert main([*words, "--quiet"]) == 0
    said = "y: has only -1, 0 and 1, but is learned as numbers"
    assert capsys.readouterr().err.count(said) == 1  # also with --quiet
    assert said in (tmp_path / "model" / CARD).read_text()
    assert [text for text in json.loads((tmp_path / "model" / FIT).read_text())["notices"] if said in text]


def test_molecules_without_rings_are_held_out_one_by_one(tmp_path):
    chains = [["C" * length, length] for length in range(1, 61)]
    data = read(write_table(tmp_path / "a.csv", ["smiles", "y"], chains), split="scaffold")
    assert data.test.sum() == 6


@pytest.fixture
def forms(tmp_path):
    """Four forms of each of 30 compounds with rings, and 30 compounds with one form."""
    chains = ["C" * length for length in range(1, 31)]
    centers = ("[C@H](N)", "[C@@H](N)", "C(N)")
    rows = [[f"c1ccccc1{center}C{chain}", len(chain)] for chain in chains for center in centers]
    rows += [[f"c1ccccc1C(N)C{chain}.Cl", len(chain)] for chain in chains]
    rows += [[f"N{chain}", len(chain)] for chain in chains]
    return write_table(tmp_path / "forms.csv", ["smiles", "y"], rows)


def test_all_forms_of_a_compound_are_held_out_or_in_one_fold(forms):
    for seed in range(5):
        data = read(forms, seed=seed)
        folds = divide_into_folds(data, 5, seed)
        places = {}
        for parent, fold in zip(data.molecules.parents, folds, strict=True):
            places.setdefault(parent, set()).add(int(fold))
        assert {len(each) for each in places.values()} == {1}
        assert 6 <= data.test.sum() <= 24  # 6 compounds of 60
        assert [text for text in data.findings if "stereochemistry" in text] == [
            "120 of 150 molecules differ from another one only in stereochemistry or salt form; "
            "all forms of a compound are in one fold"
        ]


def test_forms_that_a_column_divides_are_counted(forms, tmp_path):
    with forms.open() as stream:
        rows = [
            [*row, "test" if place in (0, 1, 40, 130) else "train"]
            for place, row in enumerate(csv.reader(stream))
        ]
    rows[0][-1] = "part"
    data = read(write_table(tmp_path / "divided.csv", rows[0], rows[1:]), split="part")
    (finding,) = [text for text in data.findings if "stereochemistry" in text]
    assert finding.endswith("; 2 held-out molecules are forms of training molecules")


def test_two_forms_are_forms_of_one_compound_if_neither_is_its_parent(smiles, tmp_path):
    rows = [[text, i, "train" if i % 5 else "test"] for i, text in enumerate(smiles)]
    rows += [["CCC[C@H](N)CO", 1.0, "train"], ["CCC[C@@H](N)CO", 2.0, "test"]]
    data = read(write_table(tmp_path / "a.csv", ["smiles", "y", "part"], rows), split="part")
    (finding,) = [text for text in data.findings if "stereochemistry" in text]
    divided = int(finding.partition("one fold; ")[2].partition(" held-out")[0])
    without = read(write_table(tmp_path / "b.csv", ["smiles", "y", "part"], rows[:-1]), split="part")
    others = [text.partition("one fold; ")[2] for text in without.findings if "stereochemistry" in text]
    assert divided == 1 + int(([text for text in others if text] or ["0"])[0].partition(" held-out")[0])


def test_all_forms_of_a_compound_have_one_scaffold(tmp_path):
    """The Murcko scaffolds of a cation and of a salt with rings are not those of the compound."""
    amines = [f"C1C{'C' * size}N(C1){tail}" for size in range(1, 13) for tail in ("C", "CC", "CCC")]
    cations = [text.replace("N(", "[NH+](") for text in amines]
    tosylates = [f"{text}.Cc1ccc(cc1)S(=O)(=O)[O-]" for text in cations]
    rows = [[text, index] for index, text in enumerate([*amines, *cations, *tosylates])]
    generator = np.random.default_rng(0)
    table = write_table(
        tmp_path / "a.csv", ["smiles", "y"], [rows[i] for i in generator.permutation(len(rows))]
    )
    for seed in range(5):
        data = read(table, split="scaffold", seed=seed)
        folds = divide_into_folds(data, 3, seed)
        places = {}
        for text, fold in zip(data.smiles, folds, strict=True):
            ring = text.split(".")[0].split("(C1)")[0].replace("[NH+]", "N")
            places.setdefault(ring, set()).add(int(fold))
        assert {len(each) for each in places.values()} == {1}
        assert 9 <= data.test.sum() <= 18  # one or two of the twelve rings
        (finding,) = [text for text in data.findings if "stereochemistry" in text]
        assert finding.endswith("salt form; all forms of a compound are in one fold")


def test_a_rare_class_is_held_out_with_any_seed(tmp_path):
    rows = [["C" * length, int(length % 10 == 0)] for length in range(1, 121)]
    table = write_table(tmp_path / "a.csv", ["smiles", "y"], rows)
    for seed in range(20):
        data = read(table, seed=seed)
        assert data.test.sum() == 12
        assert data.targets[data.test].sum() >= 1


def test_a_compound_with_many_rows_is_not_held_out(tmp_path):
    rows = [["C" * length, length] for length in range(1, 40)] + [["c1ccccc1", 0.1 * i] for i in range(80)]
    table = write_table(tmp_path / "a.csv", ["smiles", "y"], rows)
    assert {int(read(table, seed=seed, duplicates="keep").test.sum()) for seed in range(20)} == {4}


def test_a_table_with_one_form_of_each_compound_has_no_finding_about_them(tmp_path):
    rows = [["C" * length, length] for length in range(1, 41)]
    data = read(write_table(tmp_path / "a.csv", ["smiles", "y"], rows))
    assert not any("stereochemistry" in text for text in data.findings)


def test_held_out_scaffolds_have_one_molecule_or_more(tmp_path):
    """The smallest groups alone would be molecules without rings, which have no scaffold."""
    chains = [["C" * length, length] for length in range(1, 101)]
    heads = (f"C1{'C' * (size - 2)}C1" for size in range(3, 40))
    rings = [[ring + "C" * length, length] for ring in heads for length in range(1, 5)]
    data = read(write_table(tmp_path / "a.csv", ["smiles", "y"], chains + rings), split="scaffold")
    with_rings = [bool(data.molecules.scaffolds[row]) for row in np.flatnonzero(data.test)]
    assert 22 <= len(with_rings) <= 24
    assert 4 <= sum(with_rings) <= 20
    held = {data.molecules.scaffolds[row] for row in np.flatnonzero(data.test)} - {""}
    assert not held & {data.molecules.scaffolds[row] for row in np.flatnonzero(~data.test)}


def test_one_series_cannot_be_held_out_by_scaffold(tmp_path):
    series = [["c1ccccc1" + "C" * length, length] for length in range(60)]
    file = write_table(tmp_path / "a.csv", ["smiles", "y"], series)
    words = r"leaves the split 'test' empty; .* \(number of scaffolds: 1\); choose the split random"
    with pytest.raises(MolsliceError, match=words):
        read(file, split="scaffold")


def test_one_of_a_few_scaffolds_of_equal_size_is_held_out(tmp_path):
    rings = ("c1ccccc1", "c1ccncc1", "C1CCCCC1", "C1CCCC1", "c1ccsc1", "c1ccoc1", "C1CCNCC1", "C1CCOCC1")
    rows = [[ring + "C" * length, length] for ring in rings for length in range(1, 11)]
    data = read(write_table(tmp_path / "a.csv", ["smiles", "y"], rows), split="scaffold")
    assert data.test.sum() == 10
    assert len({data.molecules.scaffolds[row] for row in np.flatnonzero(data.test)}) == 1


def test_one_single_molecule_beside_two_series_is_not_the_held_out_part(tmp_path):
    heads = ["c1ccccc1"] * 50 + ["C1CCCCC1"] * 49
    rows = [[head + "C" * length, length] for length, head in enumerate(heads)] + [["C1CC1", 3]]
    data = read(write_table(tmp_path / "a.csv", ["smiles", "y"], rows), split="scaffold")
    assert data.test.sum() == 49


def test_unreadable_rows_are_counted_by_reason(smiles, tmp_path):
    rows = [*zip(smiles, [t[0] for t in targets_of(smiles)], strict=True), ("C1CC", 1.0), ("xyz", 2.0)]
    data = read(write_table(tmp_path / "a.csv", ["smiles", "y"], rows))
    assert sum(kind["count"] for kind in data.refusals.report()) == 2
    assert any(text.startswith("2 rows of ") and " left out: " in text for text in data.findings)


def spoiled(change):
    """A table of 40 rows after `change(rows)`; columns smiles and y."""

    def make(smiles, tmp_path):
        rows = [[text, float(len(text))] for text in smiles[:40]]
        return write_table(tmp_path / "a.csv", ["smiles", "y"], change(rows))

    return make


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda rows: rows[:3], {}, r"column 'y': 3 training rows with a value; a fit needs at least 20"),
        (lambda rows: [], {}, r"a\.csv has no rows$"),
        (
            lambda rows: [[s, 1.0] for s, _ in rows],
            {"kind": "regression"},
            r"the target is 1 in every training",
        ),
        (lambda rows: [[s, 1] for s, _ in rows], {}, r"0 training rows of class 0 and \d+ of class 1"),
        (
            lambda rows: [["?", y] for _, y in rows],
            {},
            r"none of the 40 SMILES in column 'smiles' can be",
        ),
        (lambda rows: [*rows, ["CCO", "high"]], {}, r"row 41 \(line 42\), column 'y': 'high'"),
        (lambda rows: rows, {"kind": "classification"}, r"row 1 \(line 2\), column 'y'"),
        (lambda rows: [[s, ""] for s, _ in rows], {}, r"0 training rows with a value|no target"),
        (
            lambda rows: [[s + ".[Cl-]" if i < 19 else s, y] for i, (s, y) in enumerate(rows)],
            {"fragment": "refuse"},
            r"19 training rows with a .* 20 \(19 rows of 40 left out: 19 .*; 2 rows held out\)",
        ),
        (
            lambda rows: [[s, kind] for s, _ in rows[:30] for kind in (0, 1)],
            {},
            r"0 training rows with a value; .* \(30 molecules have .* conflicting labels count as missing\)",
        ),
        (
            lambda rows: [["CCO", y] for _, y in rows],
            {"duplicates": "keep"},
            r"a\.csv: 1 different compounds in 40 rows; a fit needs at least 5",
        ),
        (
            lambda rows: [["CCO", y] for _, y in rows],
            {"duplicates": "refuse"},
            r"a\.csv: .*; the first: CCO\. ",
        ),
        (lambda rows: [[s, 1e12 + y] for s, y in rows], {}, r"has a spread of .*, and 32-bit floating point"),
    ],
)
def test_tables_that_cannot_be_fitted_are_refused(change, options, words, smiles, tmp_path):
    file = spoiled(change)(smiles, tmp_path)
    with pytest.raises(MolsliceError, match=words):
        fit(file, "y", tmp_path / "model", encoder=None, quiet=True, smiles_column="smiles", **options)
    assert not (tmp_path / "model").exists()
    assert not list(tmp_path.glob(".*partial"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "sise"}, r"sise.*(did you mean|columns)"),
        ({"target": ["size", "size"]}, "the target 'size' is given twice"),
        ({"target": []}, r"at least one target"),
        ({"split": "scafold"}, r"unknown split 'scafold'; did you mean 'scaffold'"),
        ({"smiles_column": "smile"}, r"smile"),
        ({"minutes": 0}, r"minutes must be a positive number, got 0"),
        ({"minutes": float("nan")}, r"minutes must be a positive number, got nan"),
        ({"minutes": "5"}, r"minutes must be a positive number, got '5'"),
        ({"workers": 1.5}, r"workers must be an integer, got 1\.5"),
        ({"encoder": 3}, r"encoder must be a path, got 3"),
        ({"out": None}, r"out must be a path, got None"),
        ({"smiles_column": 0}, r"smiles_column must be text, got 0"),
        ({"delimiter": 1}, r"delimiter must be text, got 1"),
        ({"data": "nowhere.csv"}, r"nowhere.csv"),
        ({"delimiter": "ab"}, r"the delimiter must be one character, got 'ab'"),
        ({"members": 1}, r"members must be from 2 to 20, got 1"),
        ({"seed": 2**32 - 1}, r"the seed must be from 0 to 4294967275, got 4294967295"),
        ({"kind": "ranking"}, r"unknown kind 'ranking'; choices: regression, classification"),
        ({"duplicates": "drop"}, r"unknown duplicates 'drop'"),
        ({"device": "cuda"}, r"device 'cuda' needs an encoder"),
        ({"device": "cuda:1"}, r"unknown device 'cuda:1'; choices: auto, cpu, cuda, mps"),
        ({"units": ["a", "b"]}, r"units must be one unit, or one for each target \(1\)"),
        ({"units": 3}, r"units must be one unit, or one for each target \(1\), got 3"),
        ({"members": 2.5}, r"members must be an integer, got 2\.5"),
        ({"seed": None}, r"seed must be an integer, got None"),
        ({"split": None}, r"split must be text, got None"),
        ({"smiles_column": 1}, r"smiles_column must be text, got 1"),
        ({"target": ["size", " size"]}, "the target 'size' is given twice"),
        ({"target": None}, r"targets must be names of columns, got \(None,\)"),
        ({"data": {"smiles": []}}, r"data must be the path or URL of a table, got dict; write it to a file"),
    ],
)
def test_wrong_options_are_refused(options, words, table, tmp_path):
    usual = {
        "data": table,
        "target": "size",
        "out": tmp_path / "new" / "model",
        "quiet": True,
        "encoder": None,
    }
    with pytest.raises(MolsliceError, match=words):
        fit(**{**usual, **options})
    assert not (tmp_path / "new").exists()


def test_an_existing_folder_is_refused(table, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine").touch()
    with pytest.raises(MolsliceError, match="exists; choose another folder"):
        fit(table, "size", tmp_path / "model", encoder=None, quiet=True)


@pytest.mark.parametrize("columns", [("a", "b"), ("smiles", "SMILES")])
def test_an_unclear_smiles_column_is_refused(columns, smiles, tmp_path):
    file = write_table(tmp_path / "a.csv", [*columns, "y"], [[text, text, 1.0] for text in smiles])
    with pytest.raises(MolsliceError, match=r"several could be it \(.*--smiles-column"):
        read(file)


def test_a_table_without_smiles_is_refused(tmp_path):
    file = write_table(tmp_path / "a.csv", ["name", "y"], [["ethanol", i] for i in range(40)])
    with pytest.raises(MolsliceError, match="no column contains SMILES"):
        read(file)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / FIT).write_text("{}"), r"format None"),
        (lambda f: edit(f, descriptors_version=0), r"descriptors of version 0"),
        (lambda f: edit(f, stacks=[]), r"weighs 0 targets, but has 1"),
        (
            lambda f: edit(f, stacks=[{"names": ["magic"], "weights": [1.0], "calibration": []}]),
            r"unknown learner",
        ),
        (lambda f: (f / LEARNER_FILE).write_bytes(b"x" * 99), r"is not a safetensors file"),
        (lambda f: (f / LEARNER_FILE).unlink(), r"learners.safetensors"),
    ],
)
def test_a_damaged_folder_is_refused(damage, words, fitted, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(fitted[0], folder)
    damage(folder)
    with pytest.raises(MolsliceError, match=words):
        load_model(folder)


def edit(folder, **values):
    about = json.loads((folder / FIT).read_text())
    (folder / FIT).write_text(json.dumps({**about, **values}))


def test_uses_of_a_network_refuse_it(fitted):
    with pytest.raises(MolsliceError, match="is a model of molslice fit, not a network"):
        load_network(fitted[0])


def test_the_order_of_atoms_has_no_meaning(fitted):
    from molslice.data import build_dataset

    predictor = load_model(fitted[0])
    assert isinstance(predictor, FittedPredictor)
    options = dict(predictor.data_config.options)
    dataset = build_dataset("csv", options)
    dataset.target_names = predictor.target_names
    with pytest.raises(MolsliceError, match="do not depend on the order of atoms"):
        evaluate(predictor, dataset, atom_permutation=1, progress=False)


def test_the_command_prints_the_errors(table, tmp_path, capsys):
    command = [
        "fit",
        str(table),
        "--target",
        "size",
        "--out",
        str(tmp_path / "model"),
        "--members",
        "2",
        "--no-encoder",
    ]
    assert main(command) == 0
    captured = capsys.readouterr()
    assert "molslice fit MAE" in captured.out
    assert "SMILES: column 'structure' (detected)" in captured.err
    assert main(command) == 1
    assert "exists; choose another folder" in capsys.readouterr().err


def test_a_table_in_a_store_is_fitted_as_a_file(table, fitted, tmp_path):
    with fsspec.open(f"memory:/{tmp_path}/measured.csv", "wb") as file:
        file.write(table.read_bytes())
    url = f"memory:/{tmp_path}/measured.csv"
    about = fit(
        url, "size", tmp_path / "model", units="bits", members=3, encoder=None, refit=False, quiet=True
    )
    assert about["results"] == fitted[1]["results"]
    assert about["source_sha256"] == fitted[1]["source_sha256"]
    assert about["source"] == "measured.csv"


def test_files_of_a_pattern_are_fitted_as_one_table(table, tmp_path, capsys):
    header, *rows = table.read_text().splitlines(keepends=True)
    (tmp_path / "parts").mkdir()
    for name, part in {"a": rows[:20], "b": ["0,C(,1,1,1\n", *rows[20:]]}.items():
        (tmp_path / "parts" / f"{name}.csv").write_text("".join([header, *part]))
    pattern, folder = tmp_path / "parts" / "*.csv", tmp_path / "model"
    about = fit(str(pattern), "size", folder, members=2, encoder=None, refit=False, quiet=True)
    assert sum(about["rows"].values()) == len(rows)
    assert about["failed"] == 1
    joined = b"".join(path.read_bytes() for path in sorted((tmp_path / "parts").iterdir()))
    assert about["source_sha256"] == hashlib.sha256(joined).hexdigest()
    assert about["source"] == "*.csv"
    assert str(tmp_path) not in (folder / "fit.json").read_text()
    assert about["findings"][0].startswith("a.csv, the first of 2 files: ")


def test_the_checksum_is_of_the_table_as_it_was_read(table, tmp_path, monkeypatch):
    changed = tmp_path / "t.csv"
    changed.write_bytes(table.read_bytes())

    def read(*args, **options):
        found = read_fit_data(*args, **options)
        changed.unlink()
        return found

    monkeypatch.setattr("molslice.fitting.fit.read_fit_data", read)
    about = fit(changed, "size", tmp_path / "model", members=2, encoder=None, quiet=True)
    assert about["source_sha256"] == hashlib.sha256(table.read_bytes()).hexdigest()


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for name, shown in ((tmp_path / "pipe.csv", "pipe.csv"), ("-", "standard input")):
        with pytest.raises(MolsliceError, match=f"cannot read .*{shown} more than once; write it to a file"):
            fit(name, "size", tmp_path / "model", encoder=None, quiet=True)
    assert not (tmp_path / "model").exists()


def test_a_second_fit_into_a_folder_is_refused_while_the_first_runs(table, tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.fitting.fit.read_fit_data", None)  # a call fails
    with reserved(tmp_path / "model"), pytest.raises(MolsliceError, match="is in use by process"):
        fit(table, "size", tmp_path / "model", encoder=None, quiet=True)


def test_all_rows_are_training_rows(smiles, tmp_path, capsys):
    rows = [[text, *targets_of([text])[0][:1]] for text in smiles]
    file, folder = write_table(tmp_path / "t.csv", ["smiles", "size"], rows), tmp_path / "model"
    words = ["fit", str(file), "--target", "size", "--split", "all", "--no-encoder", "--out", str(folder)]
    assert main([*words, "--members", "2", "--quiet"]) == 0
    assert "held-out" not in capsys.readouterr().out
    assert {row["split"] for row in read_rows(folder)} == {"train"}
    assert "No row was held out. " in (folder / CARD).read_text()
    assert main(["evaluate", str(folder), "--quiet"]) == 1
    assert "has learned all of its rows, so there is no split 'test'" in capsys.readouterr().err
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html"), "--quiet"]) == 0
