"""Predictions of several models and targets, and the rows that they are in a table."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.fitted import network_scores
from molslice.inference.load import load_model
from molslice.inference.options import add_intervals
from molslice.inference.predictions import NOT_FINITE, Domain, Members, Neighbor, Predictions
from molslice.tasks.targets import TargetInfo
from molslice.uncertainty.calibration import Calibration, HeldOut
from tests.inference.models import checkpoint_folder

SMILES = ["CCO", "c1ccccc1", "CCN"]


def test_the_spread_is_that_of_a_mixture_of_distributions():
    """The variance of the members plus the mean of the variances that they state."""
    values = np.array(
        [[[1.0, 0.0], [3.0, 0.0]], [[5.0, 1.0], [5.0, -1.0]]], np.float32
    )  # [row, member, target]
    stated = np.array([[[0.0, 1.0], [2.0, 7.0]], [[3.0, 0.0], [3.0, 0.0]]], np.float32)
    members = Members.of_ensemble(values, stated)
    np.testing.assert_allclose(members.spread, [[3**0.5, 5.0], [3.0, 1.0]], rtol=1e-12)
    np.testing.assert_array_equal(members.models, values.mean(1, keepdims=True))
    np.testing.assert_array_equal(members.difficulty[:, 0], members.spread)
    np.testing.assert_array_equal(Members.of_ensemble(values).spread, [[1.0, 0.0], [0.0, 1.0]])
    single = Members.of_ensemble(values[:, :1], stated[:, :1])
    np.testing.assert_array_equal(single.spread, stated[:, 0])
    assert Members.of_ensemble(values[:, :1]).spread is None
    assert Members.of_ensemble(values[:, :1]).difficulty is None


def calibration(kind="regression", count=40):
    """Return held-out rows of two targets, whose errors are of the size of their difficulty."""
    rows = np.arange(count, dtype=float)
    targets = [
        HeldOut.of_rows(name, kind, rows + size, rows, np.zeros(count), scale=np.full(count, size))
        for name, size in (("a", 1.0), ("b", 3.0))
    ]
    return Calibration(kind, 1, "held-out rows", tuple(targets))


def test_each_target_has_intervals_of_its_own_difficulty():
    values = np.array([[0.0, 10.0], [np.nan, np.nan], [1.0, 20.0]], np.float32)
    difficulty = np.array([[[1.0, 5.0]], [[0.0, 0.0]], [[2.0, 7.0]]])  # [row, fold, target]
    members = Members(None, values[:, None], difficulty)
    predictions = Predictions(values, [None, "why", None], members=members)
    extended, good = add_intervals(predictions, calibration(), 0.9), [0, 2]
    np.testing.assert_allclose((extended.upper - values)[good], difficulty[good, 0], rtol=1e-5)
    np.testing.assert_allclose((values - extended.lower)[good], difficulty[good, 0], rtol=1e-5)
    assert np.isnan(extended.lower[1]).all()
    assert np.isnan(extended.upper[1]).all()
    assert extended.spread is None


def test_members_of_several_chunks_are_joined_in_order():
    values = np.arange(12, dtype=np.float32).reshape(3, 2, 2) ** 2
    whole = Members.of_ensemble(values)
    parts = [
        Predictions(part[:, 0], [None] * len(part), members=Members.of_ensemble(part))
        for part in (values[:1], values[1:])
    ]
    joined = Predictions.concatenate(parts).members
    for name in ("spread", "models", "difficulty"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
    single = [replace(part, members=Members.of_ensemble(part.values[:, None])) for part in parts]
    joined = Predictions.concatenate(single).members
    assert joined.spread is joined.difficulty is None
    np.testing.assert_array_equal(joined.models[:, 0], values[:, 0])


def test_each_class_target_has_its_own_calibrated_probability():
    count = 60
    rows = np.arange(count)
    probable = (rows % 10 + 0.5) / 10
    targets = [
        HeldOut.of_rows(name, "classification", rows % 10 >= least, probable, np.zeros(count))
        for name, least in (("a", 3), ("b", 7))
    ]
    held_out = Calibration("classification", 1, "held-out rows", tuple(targets))
    values = np.array([[0.4, 0.4], [np.nan, np.nan], [0.6, 0.6]], np.float32)
    members = Members(None, values[:, None], None)
    extended = add_intervals(Predictions(values, [None, "why", None], members=members), held_out, 0.8)
    np.testing.assert_allclose(extended.calibrated[[0, 2]], held_out.calibrated(values[[0, 2]]), rtol=1e-6)
    assert (extended.calibrated[[0, 2], 0] > 0.5).all()
    assert (extended.calibrated[[0, 2], 1] < 0.5).all()
    assert np.isnan(extended.calibrated[1]).all()
    assert not extended.sets[1].any()
    np.testing.assert_array_equal(extended.sets[[0, 2]], held_out.sets(values[None, [0, 2]], 0.8))


def test_what_a_learner_gets_from_a_network_is_in_its_own_unit():
    targets = TargetInfo(("a", "b"), ("", ""), "regression", (3.0, -1.0), (2.0, 0.5))
    found = network_scores(np.array([[1.0, 4.0], [0.0, -2.0]], np.float32), targets)
    np.testing.assert_array_equal(found, [[5.0, 1.0], [3.0, -2.0]])
    classes = TargetInfo(("a",), ("",), "classification", (0.0,), (1.0,))
    found = network_scores(np.array([[0.5], [0.75], [0.0], [1.0]], np.float32), classes)
    largest = np.log((1 - 1e-7) / 1e-7)
    np.testing.assert_allclose(found[:, 0], [0.0, np.log(3), -largest, largest], rtol=1e-6)


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble")
    members = [load_model(checkpoint_folder(folder / name)) for name in ("first", "second")]
    return EnsemblePredictor(members, "both", folder)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_row_that_any_member_cannot_predict_has_its_reason(ensemble, monkeypatch, failing):
    """A mean without a member would be that of another model."""
    member = ensemble.members[failing]
    expected, compute = ensemble.predict(SMILES), member.predict_molecules

    def partly(store, options):
        computed = compute(store, options)
        computed.values[1], computed.errors[1] = np.nan, NOT_FINITE
        return computed

    monkeypatch.setattr(member, "predict_molecules", partly)
    computed = ensemble.predict_with_errors([*SMILES, "oops"])
    assert computed.errors == [None, NOT_FINITE, None, "not valid SMILES: non-ring atom 0 marked aromatic"]
    assert np.isnan(computed.values[[1, 3]]).all()
    np.testing.assert_array_equal(computed.values[[0, 2], 0], expected[[0, 2]])


def test_texts_of_sets_and_domain_are_those_of_their_rows():
    near = Domain("at the edge", "", (Neighbor("CC", 0.5), Neighbor("CO", 0.25)))
    far = Domain("outside", "too large", (Neighbor("C", 0.125),))
    sets = np.zeros((4, 2, 2), bool)
    sets[0, :, 0], sets[1, 1, 1], sets[2] = True, True, True
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    predictions = Predictions(
        values,
        [None, None, "why", None],
        spread=values + 30,
        sets=sets,
        calibrated=values + 10,
        domain=[near, far, None, near],
        replaced=3,
    )
    rows = predictions.table_rows()
    assert rows.texts == [
        ["0", "0", "at the edge", "", "CC"],
        ["", "1", "outside", "too large", "C"],
        ["", "", "", "", ""],
        ["", "", "at the edge", "", "CC"],
    ]
    similarity = np.array([[0.5], [0.125], [np.nan], [0.5]], np.float32)
    np.testing.assert_array_equal(
        rows.values, np.concatenate([values, values + 10, values + 30, similarity], 1)
    )
    assert (rows.errors, rows.replaced) == ([None, None, "why", None], 3)
    joined = Predictions.concatenate([predictions, predictions]).table_rows()
    assert (joined.texts, joined.replaced) == (rows.texts * 2, 6)
    assert joined.errors == rows.errors * 2
    bounds = Predictions(values, [None] * 4, lower=values - 1, upper=values + 1, spread=values + 2)
    rows = bounds.table_rows()
    np.testing.assert_array_equal(
        rows.values, np.concatenate([values, values - 1, values + 1, values + 2], axis=1)
    )
    assert rows.texts == ()


def test_the_checksum_of_an_ensemble_is_of_all_members_in_order(ensemble):
    first, second = ensemble.members
    before = ensemble.checksum()
    weight = next(second.model.parameters())
    kept = weight.detach().clone()
    with torch.no_grad():
        weight.add_(1)
        assert ensemble.checksum() != before
        reverse = EnsemblePredictor([second, first], "both", ensemble.folder)
        assert reverse.checksum() != ensemble.checksum()
        weight.copy_(kept)
    assert ensemble.checksum() == before


def test_the_checksum_of_a_network_is_of_weights_settings_and_targets(tmp_path):
    model = load_model(checkpoint_folder(tmp_path / "model"))
    checksums = {model.checksum()}
    model.targets = replace(model.targets, mean=(4.0,))
    checksums.add(model.checksum())
    model.config = replace(model.config, data=replace(model.config.data, name="qm9"))
    checksums.add(model.checksum())
    with torch.no_grad():
        next(model.model.parameters()).add_(1)
    checksums.add(model.checksum())
    assert len(checksums) == 4


def test_the_checksum_of_a_fit_is_of_every_file_that_predicts(tmp_path):
    folder = shutil.copytree(Path(__file__).parents[1] / "saved_models" / "fit_encoder", tmp_path / "model")
    model = load_model(folder)
    before = model.checksum()
    (folder / "predicted.csv").write_text("smiles,y\n")
    (folder / "card.md").write_text("other words")
    assert model.checksum() == before
    files = [
        path for path in folder.rglob("*") if path.name not in ("predicted.csv", "card.md", "expected.json")
    ]
    files = [path for path in files if path.is_file()]
    assert len(files) == 8
    for file in files:
        content = file.read_bytes()
        file.write_bytes(content + b" ")
        assert model.checksum() != before, file
        file.write_bytes(content)
    assert model.checksum() == before
