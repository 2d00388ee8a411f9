"""The held-out rows of a model: intervals for several targets, and their file."""

import dataclasses
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from molslice.types import MolsliceError
from molslice.uncertainty.calibration import ARRAYS, CALIBRATION, Calibration, HeldOut
from molslice.uncertainty.conformal import class_sets, intervals
from molslice.uncertainty.probabilities import calibrate, fit_platt


def regression(count=60, num_folds=3, *, informative=False, seed=0):
    """Two targets; the second lacks every third value, and has errors that grow with the difficulty."""
    generator = np.random.default_rng(seed)
    difficulty = generator.uniform(0.1, 3.0, (count, 2))
    predicted = generator.standard_normal((count, 2))
    truth = predicted + generator.standard_normal((count, 2)) * (difficulty if informative else 1.0)
    truth[::3, 1] = np.nan
    folds = np.arange(count) % num_folds
    targets = tuple(
        HeldOut.of_rows(name, "regression", truth[:, i], predicted[:, i], folds, difficulty[:, i])
        for i, name in enumerate(("a", "b"))
    )
    return Calibration("regression", num_folds, "made-up rows", targets), truth, predicted, folds, difficulty


def classification(count=80):
    generator = np.random.default_rng(1)
    truth = (generator.random((count, 1)) < 0.3).astype(float)
    predicted = 1 / (1 + np.exp(-(2 * truth + generator.standard_normal((count, 1)))))
    held = HeldOut.of_rows("toxic", "classification", truth[:, 0], predicted[:, 0], np.arange(count) % 2)
    return Calibration("classification", 2, "made-up rows", (held,)), truth, predicted


def test_each_target_has_its_own_rows():
    calibration, truth, predicted, folds, _ = regression()
    new = np.random.default_rng(5).standard_normal((3, 8, 2))
    lower, upper = calibration.intervals(new, None, 0.8)
    for index in range(2):
        known = np.isfinite(truth[:, index])
        scores = np.abs(truth[known, index] - predicted[known, index])
        assert calibration.targets[index].floor is None
        low, high = intervals(new[:, :, index], np.ones((3, 8)), scores, folds[known], 0.8)
        np.testing.assert_array_equal(lower[:, index], np.minimum(low, new[:, :, index].mean(0)))
        np.testing.assert_array_equal(upper[:, index], np.maximum(high, new[:, :, index].mean(0)))


def test_a_difficulty_that_predicts_the_error_scales_the_intervals():
    calibration, truth, predicted, folds, difficulty = regression(600, informative=True)
    assert calibration.needs_difficulty
    held = calibration.targets[0]
    assert held.floor == np.median(difficulty[:, 0]) / 4
    new, hard = np.zeros((3, 2, 2)), np.array([0.1, 3.0])[None, :, None] * np.ones((3, 1, 2))
    lower, upper = calibration.intervals(new, hard, 0.9)
    assert (upper - lower)[1, 0] > 1.8 * (upper - lower)[0, 0]
    scales = difficulty[:, 0] + held.floor
    low, high = intervals(
        new[:, :, 0], hard[:, :, 0] + held.floor, np.abs(truth[:, 0] - predicted[:, 0]) / scales, folds, 0.9
    )
    np.testing.assert_allclose(lower[:, 0], low)
    np.testing.assert_allclose(upper[:, 0], high)


def test_a_difficulty_that_does_not_is_left_out():
    calibration, *_ = regression(600, informative=False)
    assert not calibration.needs_difficulty
    assert all(target.difficulty is None for target in calibration.targets)


def test_a_difficulty_that_follows_the_errors_in_part_is_damped():
    generator = np.random.default_rng(0)
    difficulty = np.exp(generator.normal(0, 0.5, 5000))
    errors = np.abs(generator.standard_normal(5000)) * (difficulty + np.median(difficulty))
    zeros = np.zeros(5000)
    held = HeldOut.of_rows("size", "regression", errors, zeros, zeros.astype(int), difficulty)
    assert held.floor == np.median(difficulty)


def test_a_difficulty_without_a_relation_to_the_errors_is_rarely_used():
    used = 0
    for seed in range(100):
        generator = np.random.default_rng(seed)
        errors, zeros = generator.standard_t(5, 113), np.zeros(113)
        difficulty = np.exp(generator.normal(0, 0.35, 113))
        held = HeldOut.of_rows("size", "regression", errors, zeros, zeros.astype(int), difficulty)
        used += held.floor is not None
    assert used <= 15


def test_scaled_intervals_still_cover_as_often_as_stated():
    covered = []
    for seed in range(60):
        calibration, *_ = regression(200, 1, informative=True, seed=seed)
        generator = np.random.default_rng(1000 + seed)
        hard = generator.uniform(0.1, 3.0, (1, 200, 2))
        truth = generator.standard_normal((200, 2)) * hard[0]
        lower, upper = calibration.intervals(np.zeros((1, 200, 2)), hard, 0.9)
        covered.append(((lower <= truth) & (truth <= upper)).mean())
    assert np.mean(covered) == pytest.approx(0.9, abs=0.01)


def test_classes_have_sets_and_calibrated_probabilities():
    calibration, truth, predicted = classification()
    new = np.random.default_rng(2).random((2, 9, 1))
    expected = class_sets(new[:, :, 0], predicted[:, 0], truth[:, 0], np.arange(80) % 2, 0.8)
    np.testing.assert_array_equal(calibration.sets(new, 0.8)[:, 0], expected)
    line = fit_platt(predicted[:, 0], truth[:, 0])
    np.testing.assert_array_equal(calibration.calibrated(new.mean(0)), calibrate(new.mean(0), *line))


def test_a_level_with_too_few_rows_names_the_target_before_anything_is_predicted():
    calibration, *_ = regression(60)
    calibration.check(0.97)
    with pytest.raises(
        MolsliceError, match=r"interval 0\.98 needs 49 calibration rows of target 'b', there are 40"
    ):
        calibration.check(0.98)
    classes, truth, _ = classification()
    rare = int(truth.sum())
    level = rare / (rare + 1) + 0.005
    with pytest.raises(MolsliceError, match=f"class 1 of target 'toxic', there are {rare}"):
        classes.check(level)
    with pytest.raises(MolsliceError, match="between 0 and 1"):
        classes.check(90)


def logarithmic(count=200):
    """A positive target whose logarithm has errors that grow with the difficulty, and one row of zero."""
    generator = np.random.default_rng(3)
    hard = generator.uniform(0.1, 2.0, count)
    predicted = 10.0 ** generator.standard_normal(count)
    truth = predicted * 10.0 ** (generator.standard_normal(count) * hard)
    truth[7] = 0.0
    folds = np.arange(count) % 2
    held = HeldOut.of_rows("dose", "regression", truth, predicted, folds, hard, logarithmic=True)
    return Calibration("regression", 2, "made-up rows", (held,)), truth, predicted, folds, hard


def test_intervals_of_a_logarithm_are_those_of_a_target_that_is_a_logarithm():
    calibration, truth, predicted, folds, hard = logarithmic()
    some = truth > 0
    logs = HeldOut.of_rows(
        "dose", "regression", np.log10(truth[some]), np.log10(predicted[some]), folds[some], hard[some]
    )
    assert len(calibration.targets[0].truth) == 199
    np.testing.assert_allclose(calibration.targets[0].scores, logs.scores, rtol=1e-12)
    new = np.random.default_rng(4).standard_normal((2, 9, 1))
    difficulty = np.random.default_rng(5).uniform(0.1, 2.0, (2, 9, 1))
    ends = Calibration("regression", 2, "", (logs,)).intervals(new, difficulty, 0.9)
    found = calibration.intervals(10.0**new, difficulty, 0.9)
    middle = (10.0**new).mean(0)
    np.testing.assert_allclose(found[0], np.minimum(10.0 ** ends[0], middle), rtol=1e-12)
    np.testing.assert_allclose(found[1], np.maximum(10.0 ** ends[1], middle), rtol=1e-12)


def test_rows_that_cannot_be_scored_are_left_out():
    truth, predicted = np.array([1.0, 2.0, np.nan, 4.0, 5.0]), np.array([1.5, np.inf, 3.0, -4.0, 5.5])
    hard, folds = np.array([1.0, 1.0, 1.0, 1.0, np.nan]), np.arange(5)
    for logarithmic, difficulty, rows in (
        (False, None, [0, 3, 4]),
        (True, None, [0, 4]),
        (False, hard, [0, 3]),
    ):
        held = HeldOut.of_rows(
            "dose", "regression", truth, predicted, folds, difficulty, logarithmic=logarithmic
        )
        assert held.folds.tolist() == rows
        assert held.truth.tolist() == truth[rows].tolist()
        assert np.isfinite(held.scores).all()


def test_an_interval_holds_the_mean_over_the_folds():
    count = 19  # all held-out rows are of fold 0, whose model predicts 0 for the new row
    held = HeldOut("a", np.linspace(-0.1, 0.1, count), np.zeros(count), np.zeros(count, np.int64))
    calibration = Calibration("regression", 2, "", (held, dataclasses.replace(held, name="b")))
    new = np.array([[[0.0, 0.0]], [[10.0, -10.0]]])
    lower, upper = calibration.intervals(new, None, 0.9)
    assert (lower[0, 1], upper[0, 0]) == (-5.0, 5.0)  # the means
    assert lower[0, 0] == -upper[0, 1] == pytest.approx(-0.1, abs=0.02)


def test_each_class_target_has_its_own_line():
    held = classification()[0].targets[0]
    both = tuple(dataclasses.replace(held, name=name, line=line) for name, line in LINES.items())
    new = np.random.default_rng(2).random((9, 2))
    found = Calibration("classification", 2, "", both).calibrated(new)
    for index, line in enumerate(LINES.values()):
        np.testing.assert_allclose(found[:, index], calibrate(new[:, index], *line))


LINES = {"a": (2.0, 0.5), "b": (0.5, -1.0)}


def with_dropout():
    calibration, *rest = logarithmic()
    return dataclasses.replace(calibration, dropout_passes=5), *rest


@pytest.mark.parametrize(
    "make", [lambda: regression(600, informative=True), classification, logarithmic, with_dropout]
)
def test_a_calibration_reads_back_as_it_was_written(tmp_path, make):
    calibration = make()[0]
    names = [target.name for target in calibration.targets]
    assert Calibration.read(tmp_path, calibration.kind, names) is None
    calibration.write(tmp_path)
    found = Calibration.read(tmp_path, calibration.kind, names)
    assert (found.kind, found.num_folds, found.source) == (
        calibration.kind,
        calibration.num_folds,
        calibration.source,
    )
    assert found.dropout_passes == calibration.dropout_passes
    assert found.checksum() == calibration.checksum()
    for one, other in zip(found.targets, calibration.targets, strict=True):
        assert (one.name, one.floor, one.line) == (other.name, other.floor, other.line)
        assert one.logarithmic == other.logarithmic
        for field in ("truth", "predicted", "folds", "difficulty"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


def test_the_checksum_depends_on_every_row():
    one, same, other = (regression(60, seed=seed)[0] for seed in (0, 0, 1))
    assert one.checksum() == same.checksum() != other.checksum()
    held = one.targets[0]
    moved = dataclasses.replace(held, truth=held.truth + np.eye(60)[7])
    assert dataclasses.replace(one, targets=(moved, one.targets[1])).checksum() != one.checksum()
    logs = dataclasses.replace(held, logarithmic=True)
    assert dataclasses.replace(one, targets=(logs, one.targets[1])).checksum() != one.checksum()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "c"},
        {"floor": 0.125},
        {"floor": None},
        {"line": (1.0, 0.5)},
        {"line": (1.5, 0.0)},
        {"predicted": np.arange(600.0)},
        {"folds": np.zeros(600, np.int64)},
        {"difficulty": np.ones(600)},
        {"difficulty": None},
    ],
)
def test_the_checksum_depends_on_everything_that_an_interval_depends_on(change):
    calibration = regression(600, informative=True)[0]
    first, second = calibration.targets
    changed = dataclasses.replace(calibration, targets=(dataclasses.replace(first, **change), second))
    assert changed.checksum() != calibration.checksum()
    changed = dataclasses.replace(calibration, targets=(first, dataclasses.replace(second, **change)))
    assert changed.checksum() != calibration.checksum()


@pytest.mark.parametrize("change", [{"kind": "classification"}, {"num_folds": 4}, {"dropout_passes": 5}])
def test_the_checksum_depends_on_the_model(change):
    calibration = regression(60)[0]
    assert dataclasses.replace(calibration, **change).checksum() != calibration.checksum()
    assert dataclasses.replace(calibration, source="other words").checksum() == calibration.checksum()


def test_a_calibration_of_another_model_is_refused(tmp_path):
    regression()[0].write(tmp_path)
    with pytest.raises(
        MolsliceError, match=r"belongs to a model of a, b \(regression\), but this one predicts c"
    ):
        Calibration.read(tmp_path, "regression", ["c"])
    with pytest.raises(MolsliceError, match=r"this one predicts a, b \(classification\)"):
        Calibration.read(tmp_path, "classification", ["a", "b"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"0/truth": None}, "truth is missing"),
        ({"0/truth": np.zeros(3)}, "shape"),
        ({"0/truth": np.full(600, np.nan)}, "not finite"),
        ({"0/folds": np.full(600, 7)}, "folds from 7 to 7, of 3"),
        ({"0/difficulty": np.full(600, -1.0)}, "difficulty"),
        ({"0/predicted": np.zeros(600, np.float32)}, "float32"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, change, reason):
    regression(600, informative=True)[0].write(tmp_path)
    arrays = {**load_file(tmp_path / ARRAYS), **change}
    save_file({name: array for name, array in arrays.items() if array is not None}, tmp_path / ARRAYS)
    with pytest.raises(MolsliceError, match=f"{CALIBRATION} is damaged: .*{reason}"):
        Calibration.read(tmp_path, "regression", ["a", "b"])


@pytest.mark.parametrize(
    "change",
    [{"format": "other"}, {"folds": 0}, {"folds": True}, {"kind": "tokens"}, {"targets": []}, {"targets": 3}],
)
def test_a_damaged_description_is_refused(tmp_path, change):
    regression()[0].write(tmp_path)
    about = json.loads((tmp_path / CALIBRATION).read_text())
    (tmp_path / CALIBRATION).write_text(json.dumps({**about, **change}))
    with pytest.raises(MolsliceError, match="is damaged"):
        Calibration.read(tmp_path, "regression", ["a", "b"])


def test_a_logarithmic_target_without_a_logarithm_is_refused(tmp_path):
    logarithmic()[0].write(tmp_path)
    arrays = load_file(tmp_path / ARRAYS)
    save_file({**arrays, "0/predicted": -arrays["0/predicted"]}, tmp_path / ARRAYS)
    with pytest.raises(MolsliceError, match="a value of a logarithmic target is not positive"):
        Calibration.read(tmp_path, "regression", ["dose"])


def test_missing_arrays_are_named(tmp_path):
    regression()[0].write(tmp_path)
    (tmp_path / ARRAYS).unlink()
    with pytest.raises(MolsliceError, match=ARRAYS):
        Calibration.read(tmp_path, "regression", ["a", "b"])


def test_the_measured_width_is_the_interval_that_knows_nothing_of_a_molecule():
    truth, folds = np.arange(101.0), np.zeros(101, int)
    held = HeldOut.of_rows("size", "regression", truth, np.full(101, 50.0), folds)
    assert held.measured_width(0.9) == pytest.approx(90.0)
    assert held.measured_width(0.5) == pytest.approx(50.0)
    logarithmic = HeldOut.of_rows("dose", "regression", truth + 1, truth + 2, folds, logarithmic=True)
    assert logarithmic.measured_width(0.9) is None
    assert classification()[0].targets[0].measured_width(0.9) is None
