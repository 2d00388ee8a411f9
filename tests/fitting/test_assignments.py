"""Rows that are divided into folds twice: what is averaged, what is out of fold, and what it is good for."""

import csv
import json
import shutil
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Self

import numpy as np
import pytest

from molslice.fitting import folds as fit_folds
from molslice.fitting import learner_fits as fit_learners
from molslice.fitting.fit import fit
from molslice.folders.fitted import FIT, ROWS, read_fitted
from molslice.inference.load import load_model
from molslice.learners import LEARNERS, Features, Labels, Learner
from molslice.learners.fold_averages import average_unseen, by_member, left_out, member_numbers
from tests.fitting.test_fit import write_table
from tests.fitting.test_folds import CHAINS, data_of
from tests.inference.models import embedded_smiles

pytestmark = pytest.mark.usefixtures("few_trees")


class Memory(Learner):
    """Predicts 1 for a molecule that it has been fitted to, else 0."""

    def __init__(self, rows: np.ndarray, used: np.ndarray) -> None:
        self.rows, self.used = rows, used

    @classmethod
    def fit(cls, features, labels, folds, *, classes, seed) -> tuple[Self, np.ndarray]:
        learner = cls(features.counts, ~left_out(folds))
        return learner, average_unseen(learner.predict(features), folds)

    def predict(self, features: Features) -> np.ndarray:
        same = (features.counts[:, None] == self.rows).all(2)
        return (self.used[:, None] & same).any(2).astype(np.float64)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"rows": self.rows, "used": self.used}

    @classmethod
    def _rebuild(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(arrays["rows"], arrays["used"])


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    return [[text, len(text) + draw.normal(0.0, 4.0)] for text in embedded_smiles(120)]


@pytest.fixture(scope="module")
def table(rows, tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("table") / "t.csv", ["smiles", "y"], rows[:80])


def fitted(table, out, **options):
    return fit(table, "y", out, **{"members": 3, "encoder": None, "quiet": True, "split": "all", **options})


@pytest.fixture(scope="module")
def folders(table, tmp_path_factory):
    """Three seeds with one assignment, and with two."""
    root, folders = tmp_path_factory.mktemp("fit"), {}
    for number in (1, 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fit_folds, "MAX_ROWS", 2_000 * (number > 1))
            patch.setattr("molslice.learners.extra_trees.NUM_TREES", 90)  # so that their noise is small
            for seed in range(3):
                folders[number, seed] = root / f"{number}_{seed}"
                fitted(table, folders[number, seed], seed=seed)
    return folders


def test_models_members_and_rows_are_numbered_alike():
    folds = np.array([[0, 1, 0, 1], [1, 1, 0, 0]])
    seen = ~left_out(folds)
    expected = [[0, 1, 0, 1], [1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1]]
    np.testing.assert_array_equal(seen, expected)
    predicted = np.arange(16.0).reshape(4, 4)
    members = by_member(predicted, 2, 2)
    pairs = [(0, 2), (0, 3), (1, 2), (1, 3)]
    np.testing.assert_array_equal(members, [predicted[[*pair]].mean(0) for pair in pairs])
    numbers = member_numbers(folds, 2)
    np.testing.assert_array_equal(members[numbers, np.arange(4)], average_unseen(predicted, folds))
    np.testing.assert_array_equal(members.mean(0), predicted.mean(0))
    networks = np.array([[1.0], [2.0]])  # of the first assignment only
    np.testing.assert_array_equal(by_member(networks, 2, 2)[:, 0], [1, 1, 2, 2])
    np.testing.assert_array_equal(by_member(networks, 2, 1), networks)
    assert by_member(np.empty((4, 0)), 2, 2).shape == (4, 0)


@pytest.mark.parametrize("name", LEARNERS.names())
@pytest.mark.parametrize("classes", [False, True])
def test_an_out_of_fold_prediction_does_not_depend_on_the_value_of_its_row(name, classes):
    draw = np.random.default_rng(0)
    features = Features(draw.normal(size=(60, 4)), draw.poisson(0.4, (60, 20)).astype(np.uint8))
    values = features.descriptors[:, 0] > 0 if classes else features.descriptors[:, 0]
    values, folds = values.astype(float), np.stack([np.arange(60) % 3, np.arange(60) // 20])
    learner, unseen = LEARNERS.find(name).fit(features, Labels(values), folds, classes=classes, seed=0)
    predicted = learner.predict(features)
    assert predicted.shape == (6, 60)
    expected = (predicted[folds[0], np.arange(60)] + predicted[3 + folds[1], np.arange(60)]) / 2
    np.testing.assert_allclose(unseen, expected, rtol=1e-4, atol=1e-6)
    changed = values.copy()
    changed[7] = 1.0 - changed[7] if classes else changed[7] + 100.0
    again = LEARNERS.find(name).fit(features, Labels(changed), folds, classes=classes, seed=0)[1]
    assert again[7] == pytest.approx(unseen[7], rel=1e-9)
    assert np.abs(again - unseen).max() > 1e-3


def test_a_learner_that_remembers_its_rows_knows_no_row_out_of_fold(rows, table, tmp_path, monkeypatch):
    find = LEARNERS.find
    monkeypatch.setattr(LEARNERS, "find", lambda name: Memory if name == "boosting" else find(name))
    caught = []
    stack_learners = fit_learners.TargetFit.stack_learners

    def keep(self, *arguments, **options):
        caught.append(self)
        stack_learners(self, *arguments, **options)

    monkeypatch.setattr(fit_learners.TargetFit, "stack_learners", keep)
    file = write_table(
        tmp_path / "t.csv",
        ["smiles", "y", "part"],
        [[*row, "train" if i < 80 else "test"] for i, row in enumerate(rows)],
    )
    fitted(file, tmp_path / "model", split="part")
    memory = caught[0].learners["boosting"]
    assert memory.used.shape == (6, 80)
    np.testing.assert_array_equal(memory.used.sum(0), np.full(80, 4))  # two of three models, twice
    np.testing.assert_array_equal(caught[0].parts["boosting"], np.zeros(80))
    np.testing.assert_array_equal(caught[0].test_parts["boosting"], np.zeros((9, 40)))
    predictor = load_model(tmp_path / "model")
    calibration = predictor.find_calibration().targets[0]
    # the prediction that the calibration has of a row comes from the member that has not seen it
    part = next(iter(predictor.reader().read([[row[0] for row in rows[:80]]])))
    members = predictor.member_predictions(part)[0][:, :, 0]
    np.testing.assert_allclose(calibration.predicted, members[calibration.folds, np.arange(80)], rtol=1e-4)


def test_seeds_differ_less_with_two_assignments(rows, folders):
    new = [text for text, _ in rows[80:]]
    spreads = [
        np.std([load_model(folders[number, seed]).predict(new) for seed in range(3)], axis=0).mean()
        for number in (1, 2)
    ]
    assert spreads[1] < 0.9 * spreads[0]


def test_a_prediction_is_the_mean_over_both_assignments(rows, folders):
    model = load_model(folders[2, 0])
    part = next(iter(model.reader().read([[text for text, _ in rows[80:90]]])))
    features = Features(part.descriptors, part.counts)
    stack = model.model.stacks[0]
    parts = {name: learner.predict(features).mean(0) for name, learner in model.model.learners[0].items()}
    np.testing.assert_allclose(model.predict([text for text, _ in rows[80:90]]), stack.mean(parts), rtol=1e-5)
    assert {len(learner.predict(features)) for learner in model.model.learners[0].values()} == {6}


def test_the_folder_says_what_was_averaged(folders):
    one, two = (json.loads((folders[number, 0] / FIT).read_text()) for number in (1, 2))
    assert (one["assignments"], two["assignments"]) == (1, 2)
    for number, words in ((1, "folds: 3, divided once"), (2, "folds: 3, divided twice")):
        assert words in (folders[number, 0] / "card.md").read_text()
    first = [
        [row["fold"] for row in csv.DictReader((folders[number, 0] / ROWS).open(newline=""))]
        for number in (1, 2)
    ]
    assert first[0] == first[1]


def test_a_folder_of_the_version_before_predicts_the_same(folders, rows, tmp_path):
    shutil.copytree(folders[1, 0], tmp_path / "older")
    file = tmp_path / "older" / FIT
    record = json.loads(file.read_text())
    del record["assignments"]
    file.write_text(json.dumps(record))
    new = [text for text, _ in rows[80:]]
    older, same = (load_model(path) for path in (file.parent, folders[1, 0]))
    one, other = older.predict_with_errors(new, interval=0.8), same.predict_with_errors(new, interval=0.8)
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.lower, other.lower)


def test_a_second_assignment_needs_time(table, tmp_path, monkeypatch):
    """A clock on which every learner takes a minute; the first assignment therefore takes three."""
    clock = [0.0]
    for module in ("fit", "learner_fits"):
        monkeypatch.setattr(f"molslice.fitting.{module}.time", SimpleNamespace(monotonic=lambda: clock[0]))
    for name in LEARNERS.names():
        learner = LEARNERS.find(name)

        def fit_slowly(*arguments, fit=learner.fit, **options):
            clock[0] += 60.0
            return fit(*arguments, **options)

        monkeypatch.setattr(learner, "fit", fit_slowly)
    counts = [
        fitted(table, tmp_path / f"{minutes}", members=2, minutes=minutes)["assignments"]
        for minutes in (11.9, 12.1)
    ]
    assert counts == [1, 2]
    assert read_fitted(tmp_path / "11.9").num_members == 2
    assert fitted(table, tmp_path / "short", members=2, minutes=1e-9)["assignments"] == 1


def test_there_is_one_assignment_if_another_says_nothing_new(monkeypatch):
    data = data_of(CHAINS[:22], np.arange(22), "regression")
    assert fit_folds.assign_folds(data, 2, 0).shape == (2, 22)
    assert fit_folds.assign_folds(data, 11, 0).shape == (1, 22)  # too many pairs
    monkeypatch.setattr(fit_folds, "MAX_PAIRED", 22)
    assert fit_folds.assign_folds(data, 22, 0).shape == (1, 22)  # each row is a fold
    assert fit_folds.assign_folds(data, 11, 0).shape == (2, 22)


def test_a_large_table_has_one_assignment(monkeypatch):
    data = data_of(CHAINS, np.arange(40), "regression")
    data.test[:10] = True
    for largest, number in ((29, 1), (30, 2)):
        monkeypatch.setattr(fit_folds, "MAX_ROWS", largest)
        folds = fit_folds.assign_folds(data, 2, 0)
        assert folds.shape == (number, 40)
        assert (folds[:, :10] == -1).all()


def test_a_second_assignment_that_is_not_valid_is_left_out(monkeypatch):
    divide, calls = fit_folds._divide, []

    def divide_badly(found, groups, members, draw):
        calls.append(len(groups))
        folds = divide(found, groups, members, draw)
        return folds if len(calls) == 1 else np.where(np.arange(len(folds)) < 2, 0, 1)

    monkeypatch.setattr(fit_folds, "_divide", divide_badly)
    data = data_of(CHAINS[:20], np.arange(20), "regression")
    assert fit_folds.assign_folds(data, 2, 0).shape == (1, 20)
    assert calls == [20, 20]
