"""Intervals and sets of a fitted model: their definition, their file, tables and the command."""

import csv
import itertools
import json
import shutil

import numpy as np
import pytest

from molslice.cli import main
from molslice.data.molecules.describe import describe_molecules
from molslice.fitting.fit import fit
from molslice.folders.fitted import FIT, ROWS, out_of_fold_calibration, read_fitted
from molslice.inference.load import load_model
from molslice.inference.tables.table import predict_table
from molslice.learners import Features
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import ARRAYS, CALIBRATION
from molslice.uncertainty.rounding import rounded_interval
from tests.inference.models import embedded_smiles
from tests.uncertainty.test_conformal import slow_interval, slow_sets

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(120)


@pytest.fixture(scope="module")
def table(smiles, tmp_path_factory):
    """Two numbers with errors, one of them often missing, and a class."""
    file = tmp_path_factory.mktemp("table") / "measured.csv"
    generator = np.random.default_rng(0)
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["smiles", "size", "half", "big"])
        for row, text in enumerate(smiles):
            size = len(text) + generator.normal(0, 4)
            writer.writerow([text, size, size * 2 if row % 2 else "", int(size > 38)])
    return file


@pytest.fixture(scope="module")
def numbers(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "numbers"
    fit(table, ["size", "half"], folder, members=3, encoder=None, refit=False, quiet=True)
    return folder


@pytest.fixture(scope="module")
def single(table, tmp_path_factory):
    """A model of the same rows, divided into folds once, as earlier versions did."""
    folder = tmp_path_factory.mktemp("fit") / "single"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("molslice.fitting.folds.MAX_ROWS", 0)
        fit(table, ["size", "half"], folder, members=3, encoder=None, quiet=True)
    return folder


@pytest.fixture(scope="module")
def classes(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "classes"
    fit(table, "big", folder, members=3, encoder=None, refit=False, quiet=True)
    return folder


def held_out_rows(folder, target, predicted):
    """Return truth, prediction and first fold of the training rows with a value, read from rows.csv."""
    with (folder / ROWS).open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["split"] == "train" and row[target]]
    columns = [[float(row[name]) for row in rows] for name in (target, predicted)]
    return *map(np.array, columns), np.array([int(row["fold"]) for row in rows])


def older(folder, tmp_path):
    """Return a copy of a folder as it was before calibrations were written."""
    copy = tmp_path / "older"
    shutil.copytree(folder, copy)
    for name in (CALIBRATION, ARRAYS):
        (copy / name).unlink()
    return copy


def test_the_calibration_holds_the_out_of_fold_rows_and_no_test_row(numbers):
    calibration = load_model(numbers).find_calibration()
    assert calibration.num_folds == 9  # pairs of folds
    for target, name in zip(calibration.targets, ("size", "half"), strict=True):
        truth, predicted, folds = held_out_rows(numbers, name, f"{name}_predicted")
        np.testing.assert_array_equal(target.truth, truth)
        np.testing.assert_allclose(target.predicted, predicted)
        np.testing.assert_array_equal(target.folds // 3, folds)
        assert {*target.folds % 3} == {0, 1, 2}
    with (numbers / ROWS).open(newline="") as stream:
        assert sum(row["split"] == "test" for row in csv.DictReader(stream)) == 12


def test_an_older_folder_has_cross_conformal_intervals_of_equal_width(single, smiles, tmp_path):
    model = load_model(older(single, tmp_path))
    found = model.predict_with_errors(smiles[:6], interval=0.8)
    members, _ = model.member_predictions(describe_molecules(smiles[:6]))
    for index, name in enumerate(("size", "half")):
        truth, predicted, folds = held_out_rows(single, name, f"{name}_predicted")
        low, high = slow_interval(
            members[:, :, index], np.ones((3, 6)), np.abs(truth - predicted), folds, 0.8
        )
        np.testing.assert_allclose(found.lower[:, index], low, rtol=1e-5)
        np.testing.assert_allclose(found.upper[:, index], high, rtol=1e-5)
    np.testing.assert_allclose(found.spread, members.std(0), rtol=1e-3, atol=1e-5)


def test_intervals_scale_with_the_error_that_is_expected_of_a_molecule(numbers, smiles):
    model = load_model(numbers)
    calibration = model.find_calibration()
    found = model.predict_with_errors(smiles, interval=0.8)
    members, expected = model.member_predictions(describe_molecules(smiles), needs_spread=True)
    with (numbers / ROWS).open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["split"] == "train" and row["half"]]
    places = [smiles.index(row["smiles"]) for row in rows]
    held = calibration.targets[1]
    folds = held.folds
    # a held-out row has the expected error of the member that has not seen it, and its prediction
    np.testing.assert_allclose(held.predicted, members[folds, places, 1], rtol=1e-4)
    np.testing.assert_allclose(held.difficulty, expected[folds, places, 1], rtol=1e-3)
    assert held.floor == 0.0
    scores = np.abs(held.truth - held.predicted) / held.difficulty
    low, high = slow_interval(members[:, :, 1], expected[:, :, 1], scores, folds, 0.8)
    np.testing.assert_allclose(found.lower[:, 1], np.minimum(low, members[:, :, 1].mean(0)), rtol=1e-5)
    np.testing.assert_allclose(found.upper[:, 1], np.maximum(high, members[:, :, 1].mean(0)), rtol=1e-5)
    widths = found.upper - found.lower
    assert (widths.max(0) > 1.5 * widths.min(0)).all()


def test_the_expected_error_has_four_indicators(numbers, smiles):
    model = read_fitted(numbers)
    assert [scale.names for scale in model.scales] == [("size", "trees", "novelty", "disagreement")] * 2
    part = describe_molecules(smiles[:7])
    features = Features(part.descriptors, part.counts)
    learners = model.learners[0]
    parts = {name: learner.predict(features) for name, learner in learners.items()}
    trees = learners["extra_trees"].predict_with_indicators(features)[1]["trees"]
    novelty = learners["gaussian_process"].predict_with_indicators(features)[1]["novelty"]
    pairs = [*itertools.product(range(3), range(3, 6))]  # of models, one of each assignment
    indicators = {
        "size": np.broadcast_to(part.counts.sum(1), (9, 7)),
        "disagreement": np.std(
            [[part[[*pair]].mean(0) for pair in pairs] for part in parts.values()], axis=0
        ),
        "trees": np.array([trees[[*pair]].mean(0) for pair in pairs]),
        "novelty": np.array([novelty[[*pair]].mean(0) for pair in pairs]),
    }
    _, expected = load_model(numbers).member_predictions(part, needs_spread=True)
    np.testing.assert_allclose(expected[:, :, 0], model.scales[0].expect(indicators))


@pytest.mark.parametrize(
    "change", [{"names": ["size", "trees", "novelty", "luck"]}, {"lines": [[0.0] * 5] * 2}, {"names": 5}]
)
def test_a_scale_that_does_not_fit_the_learners_is_refused(numbers, tmp_path, change):
    folder = tmp_path / "model"
    shutil.copytree(numbers, folder)
    about = json.loads((folder / FIT).read_text())
    about["scales"][1].update(change)
    (folder / FIT).write_text(json.dumps(about))
    with pytest.raises(MolsliceError, match=r"fit\.json"):
        read_fitted(folder)
    del about["scales"][1]
    (folder / FIT).write_text(json.dumps(about))
    with pytest.raises(MolsliceError, match="one for each of 2 targets"):
        read_fitted(folder)


def test_intervals_of_an_older_folder_scale_with_the_disagreement_of_the_learners(
    single, smiles, tmp_path, monkeypatch
):
    folder = older(single, tmp_path)
    about = json.loads((folder / FIT).read_text())
    del about["scales"]
    (folder / FIT).write_text(json.dumps(about))
    model = load_model(folder)
    monkeypatch.setattr("molslice.uncertainty.calibration.NARROWER", 100.0)  # always
    calibration = model.find_calibration()
    truth, predicted, folds = held_out_rows(single, "size", "size_predicted")
    difficulty = np.linspace(0.5, 2.0, len(truth))
    held = type(calibration.targets[0]).of_rows("size", "regression", truth, predicted, folds, difficulty)
    forced = type(calibration)("regression", 3, "", (held, held))
    monkeypatch.setattr(model, "find_calibration", lambda: forced)
    found = model.predict_with_errors(smiles[:5], interval=0.8)
    members, hard = model.member_predictions(describe_molecules(smiles[:5]), needs_spread=True)
    part = describe_molecules(smiles[:5])
    learners = model.model.learners[0].values()
    parts = [learner.predict(Features(part.descriptors, part.counts)) for learner in learners]
    np.testing.assert_allclose(hard[:, :, 0], np.std(parts, axis=0))
    assert held.floor > 0
    scales = hard[:, :, 0] + held.floor
    scores = np.abs(truth - predicted) / (difficulty + held.floor)
    low, high = slow_interval(members[:, :, 0], scales, scores, folds, 0.8)
    np.testing.assert_allclose(found.lower[:, 0], np.minimum(low, members[:, :, 0].mean(0)), rtol=1e-5)
    np.testing.assert_allclose(found.upper[:, 0], np.maximum(high, members[:, :, 0].mean(0)), rtol=1e-5)


def test_intervals_do_not_change_the_predictions(numbers, smiles):
    model = load_model(numbers)
    plain, found = model.predict_with_errors(smiles[:4]), model.predict_with_errors(smiles[:4], interval=0.5)
    np.testing.assert_array_equal(plain.values, found.values)
    assert (plain.lower, plain.upper, plain.spread, plain.sets) == (None, None, None, None)
    assert ((found.lower <= found.values) & (found.values <= found.upper)).all()
    wide = model.predict_with_errors(smiles[:4], interval=0.9)
    assert (wide.upper - wide.lower > found.upper - found.lower).all()


def test_classes_have_sets_and_calibrated_probabilities(classes, smiles):
    model = load_model(classes)
    found = model.predict_with_errors(smiles[:8], interval=0.8)
    members, _ = model.member_predictions(describe_molecules(smiles[:8]))
    truth, predicted, _ = held_out_rows(classes, "big", "big_predicted")
    folds = model.find_calibration().targets[0].folds
    np.testing.assert_array_equal(found.sets[:, 0], slow_sets(members[:, :, 0], predicted, truth, folds, 0.8))
    assert found.calibrated.shape == (8, 1)
    assert (found.lower, found.upper) == (None, None)
    np.testing.assert_array_equal(np.argsort(found.calibrated[:, 0]), np.argsort(found.values[:, 0]))


@pytest.mark.parametrize("which", ["numbers", "classes"])
def test_failed_rows_and_no_rows(which, request, smiles):
    model = load_model(request.getfixturevalue(which))
    found = model.predict_with_errors([smiles[0], "C1CC", smiles[1]], interval=0.8)
    assert found.errors[1] is not None
    for part in (found.values, found.spread, found.lower, found.upper, found.calibrated):
        if part is not None:
            np.testing.assert_array_equal(np.isnan(part[:, 0]), [False, True, False])
    if found.sets is not None:
        assert not found.sets[1].any()
    none = model.predict_with_errors([], interval=0.8)
    for name in ("values", "spread", "lower", "upper", "sets", "calibrated"):
        one, other = getattr(found, name), getattr(none, name)
        assert (one is None) == (other is None)
        assert one is None or other.shape == (0, *one.shape[1:])


def test_too_few_rows_for_a_level_are_refused_before_predicting(numbers):
    with pytest.raises(MolsliceError, match=r"interval 0\.99 needs 99 calibration rows of target 'half'"):
        load_model(numbers).find_options(0.99)


def test_a_model_with_two_assignments_needs_its_calibration(numbers, tmp_path):
    """`rows.csv` has the fold of the first assignment only."""
    with pytest.raises(MolsliceError, match=r"older is incomplete: .*calibration\.json is missing"):
        load_model(older(numbers, tmp_path)).find_calibration()


def test_a_damaged_table_of_rows_is_refused(single, tmp_path):
    folder = older(single, tmp_path)
    model, good = read_fitted(folder), (folder / ROWS).read_text()
    for text, reason in (
        (good.replace("train,2", "train,7"), "folds up to 7"),
        (good.replace("train,2", "train,x"), "cannot read out-of-fold predictions"),
        (good.replace("smiles,split", "smiles,part"), "unexpected columns"),
        ("", "cannot read"),
    ):
        (folder / ROWS).write_text(text)
        with pytest.raises(MolsliceError, match=reason):
            out_of_fold_calibration(folder, model)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("workers", [0, 1])
def test_tables_have_columns_of_intervals_that_do_not_collide(numbers, smiles, tmp_path, ending, workers):
    source, target = tmp_path / "in.csv", tmp_path / f"out{ending}"
    source.write_text("smiles,size_lower\n" + "".join(f"{text},x\n" for text in [*smiles[:3], "oops"]))
    model = load_model(numbers)
    report = predict_table(model, source, target, model.find_options(0.8), workers=workers, progress=False)
    assert report.columns == (
        "size", "half", "size_lower_predicted", "half_lower", "size_upper", "half_upper", "size_spread",
        "half_spread",
    )  # fmt: skip
    predictions = model.predict_with_errors(smiles[:3], interval=0.8)
    expected = np.concatenate(
        [predictions.values, predictions.lower, predictions.upper, predictions.spread], axis=1
    )
    rows = read_rows(target)
    got = [[float(row[name]) for name in report.columns] for row in rows[:3]]
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert rows[3]["error"]


def read_rows(file):
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    if file.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(file).to_pylist()
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_tables_have_a_column_of_sets(classes, smiles, tmp_path, ending):
    source, target = tmp_path / "in.smi", tmp_path / f"out{ending}"
    source.write_text("\n".join([*smiles[:9], "oops"]) + "\n")
    model = load_model(classes)
    predict_table(model, source, target, model.find_options(0.8), progress=False)
    rows, predictions = read_rows(target), model.predict_with_errors(smiles[:9], interval=0.8)
    words = [" ".join(str(label) for label in (0, 1) if pair[0][label]) for pair in predictions.sets]
    assert [row["big_set"] or "" for row in rows] == [*words, ""]
    np.testing.assert_allclose(
        [float(row["big_calibrated"]) for row in rows[:9]], predictions.calibrated[:, 0], rtol=1e-6
    )


def test_an_interrupted_table_continues_with_the_same_texts(classes, smiles, tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.inference.fitted.FittedPredictor.chunk_rows", 4)
    source = tmp_path / "in.smi"
    source.write_text("\n".join(smiles[:20]) + "\n")
    model = load_model(classes)
    options = model.find_options(0.8)
    whole, target = tmp_path / "whole.csv", tmp_path / "out.csv"
    predict_table(model, source, whole, options, workers=0, progress=False)
    predict, calls = type(model).predict_molecules, []

    def fail_late(self, molecules, options):
        calls.append(molecules)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return predict(self, molecules, options)

    monkeypatch.setattr(type(model), "predict_molecules", fail_late)
    with pytest.raises(KeyboardInterrupt, match="--resume continues"):
        predict_table(model, source, target, options, workers=0, progress=False)
    with pytest.raises(MolsliceError, match="another level of the interval"):
        predict_table(model, source, target, model.find_options(0.7), resume=True, progress=False)
    predict_table(model, source, target, options, workers=0, resume=True, progress=False)
    assert target.read_text() == whole.read_text()
    assert len(calls) == 6  # three chunks were kept, one was interrupted, two are left


def test_the_command_prints_intervals(numbers, smiles, capsys):
    assert (
        main(
            ["predict", str(numbers), "--smiles", smiles[0], "C1CC", "--interval", "0.8", "--json", "--quiet"]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    predictions = load_model(numbers).predict_with_errors(smiles[:1], interval=0.8)
    assert printed["interval"] == 0.8
    row = printed["predictions"][0]
    assert row["size_lower"] == pytest.approx(float(predictions.lower[0, 0]))
    assert row["half_upper"] == pytest.approx(float(predictions.upper[0, 1]))
    assert printed["predictions"][1]["size_lower"] is None
    assert main(["predict", str(numbers), "--smiles", smiles[0], "C1CC", "--interval", "0.8", "--quiet"]) == 0
    header, line, failed = capsys.readouterr().out.splitlines()
    assert header.split(maxsplit=1)[1].startswith("size (80% interval)")
    value, lower, upper = rounded_interval(
        *(float(block[0, 0]) for block in (predictions.values, predictions.lower, predictions.upper))
    )
    assert f" {value} ({lower} to {upper}) " in line
    assert "spread" not in header
    assert " nan " in failed


@pytest.mark.parametrize("level", ["0", "1", "90", "-0.5", "x", "nan"])
def test_the_command_refuses_a_level_that_is_no_probability(numbers, level, capsys):
    assert main(["predict", str(numbers), "--smiles", "C", "--interval", level]) == 2
    assert "--interval" in capsys.readouterr().err


def test_the_training_molecules_of_a_fit_are_its_domain(numbers, smiles, tmp_path):
    with (numbers / ROWS).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    train = [row["smiles"] for row in rows if row["split"] == "train"]
    found = load_model(numbers).find_domain()
    assert len(found.smiles) == len(train)
    test = [row["smiles"] for row in rows if row["split"] == "test"]
    assert any(each.nearest_similarity < 1 for each in found.compare(test, [None] * len(test)))
    folder = older(numbers, tmp_path)
    (folder / "domain.json").unlink()
    again = load_model(folder).find_domain()
    assert (again.smiles, again.threshold, again.sizes) == (found.smiles, found.threshold, found.sizes)
