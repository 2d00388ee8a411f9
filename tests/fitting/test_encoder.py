"""Fitting with the embeddings of a trained encoder as features."""

import csv
import json
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from molslice.cli import main
from molslice.files.cache import file_checksum
from molslice.fitting.fit import fit
from molslice.folders.fitted import ENCODER, LEARNER_FILE, ROWS, TABLE_ROWS, read_fitted
from molslice.folders.run import MODEL
from molslice.inference.load import find_model, load_model, load_network
from molslice.learners.features import NormalScores
from molslice.learners.gaussian_process import GaussianProcess
from molslice.pretrained import DEFAULT_ENCODER, find_pretrained, pretrained_names
from molslice.types import MolsliceError
from tests.fitting.test_fit import targets_of, write_table
from tests.inference.models import embedded_smiles
from tests.real_data import SAVED_MODEL

SHIPPED = str(SAVED_MODEL)

pytestmark = pytest.mark.usefixtures("few_trees", "few_epochs")


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(70)


@pytest.fixture(scope="module")
def table(smiles, tmp_path_factory):
    rows = [[text, value] for text, (value, _, _) in zip(smiles, targets_of(smiles), strict=True)]
    return write_table(tmp_path_factory.mktemp("table") / "measured.csv", ["smiles", "size"], rows)


@pytest.fixture(scope="module")
def fitted(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "model"
    return folder, fit(table, "size", folder, members=2, encoder=SHIPPED, refit=False, quiet=True)


def test_the_embeddings_are_features(fitted):
    folder, about = fitted
    with open(folder / ROWS, newline="") as file:
        train = [row["smiles"] for row in csv.DictReader(file) if row["split"] == "train"]
    gaussian = read_fitted(folder).learners[0]["gaussian_process"]
    assert isinstance(gaussian, GaussianProcess)
    expected = NormalScores.of(load_network(folder / ENCODER).embed(train))
    np.testing.assert_allclose(gaussian.scores[1].quantiles, expected.quantiles, rtol=1e-4, atol=1e-5)
    assert about["encoder"] == SAVED_MODEL.name


def test_mixtures_are_embedded_as_in_predictions(smiles, tmp_path):
    with safe_open(find_model(SHIPPED) / MODEL, "pt") as file:
        about = json.loads(file.metadata()["molslice"])
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    (tmp_path / "encoder").mkdir()
    metadata = {"molslice": json.dumps({**about, "fragment": "largest"})}
    save_file(state, tmp_path / "encoder" / MODEL, metadata=metadata)
    assert load_network(tmp_path / "encoder").fragment == "largest"
    mixtures = [f"{text}.CCCCCCO" for text in smiles[:40]]
    table = write_table(tmp_path / "a.csv", ["smiles", "y"], [[s, k % 7] for k, s in enumerate(mixtures)])
    options = {"members": 2, "refit": False, "quiet": True}
    fit(table, "y", tmp_path / "model", encoder=tmp_path / "encoder", **options)
    model = load_model(tmp_path / "model")
    with open(tmp_path / "model" / ROWS, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "test"]
    measured = [float(row["y_predicted"]) for row in rows]
    np.testing.assert_allclose(model.predict([row["smiles"] for row in rows]), measured, rtol=1e-3, atol=1e-3)


def test_a_moved_folder_predicts_what_the_fit_has_measured(fitted, tmp_path):
    folder, _ = fitted
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    with open(moved / ROWS, newline="") as file:
        held = [row for row in csv.DictReader(file) if row["split"] == "test"]
    assert held
    found = load_model(moved).predict([row["smiles"] for row in held])
    np.testing.assert_allclose(found, [float(row["size_predicted"]) for row in held], rtol=1e-5)


def test_a_file_of_weights_is_the_same_encoder_as_its_folder(fitted, table, smiles, tmp_path):
    folder, _ = fitted
    options = {"members": 2, "refit": False, "quiet": True}
    fit(table, "size", tmp_path / "model", encoder=find_model(SHIPPED) / MODEL, **options)
    found, expected = (load_model(each).predict(smiles[:10]) for each in (tmp_path / "model", folder))
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, expected)
    for each in (folder, tmp_path / "model"):
        assert [path.name for path in (each / ENCODER).iterdir()] == [MODEL]


def test_the_default_encoder_ships_and_is_not_a_folder_of_that_name(table, tmp_path, monkeypatch, capsys):
    assert fit.__kwdefaults__["encoder"] == DEFAULT_ENCODER
    assert DEFAULT_ENCODER in pretrained_names()
    (tmp_path / DEFAULT_ENCODER).mkdir()
    monkeypatch.chdir(tmp_path)
    words = ["fit", table, "--target", "size", "--out", tmp_path / "model", "--members", "2", "--quiet"]
    assert main([str(word) for word in words]) == 0
    about = read_fitted(tmp_path / "model").about
    assert about["encoder"] == DEFAULT_ENCODER
    weights = find_pretrained(DEFAULT_ENCODER) / MODEL
    assert about["encoder_sha256"] == file_checksum(weights)
    stored = tmp_path / "model" / ENCODER / MODEL
    assert 2 * stored.stat().st_size < weights.stat().st_size + 50_000
    one, other = (load_network(path).model.state_dict() for path in (stored, weights))
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name].half().float(), rtol=0, atol=0)
    card = (tmp_path / "model" / "card.md").read_text()
    assert f"Encoder: {DEFAULT_ENCODER}, SHA-256 {about['encoder_sha256']}, not fine-tuned." in card
    both = ["--encoder", SHIPPED, "--no-encoder"]
    assert main([str(word) for word in [*words, *both]]) == 2
    capsys.readouterr()
    assert main(["fit", "--help"]) == 0
    assert f"(default:{DEFAULT_ENCODER})" in re.sub(r"\s+", "", capsys.readouterr().out)


def test_several_targets_with_missing_values_share_the_networks(smiles, tmp_path):
    rows = [[text, *values] for text, values in zip(smiles, targets_of(smiles), strict=True)]
    table = write_table(tmp_path / "t.csv", ["smiles", "size", "active", "half"], rows)
    about = fit(table, ["size", "half"], tmp_path / "m", members=2, encoder=SHIPPED, refit=False, quiet=True)
    assert [row["train_rows"] for row in about["results"]] == [63, about["results"][1]["train_rows"]]
    assert about["results"][1]["train_rows"] < 40
    found = load_model(tmp_path / "m").predict(smiles[:5])
    assert found.shape == (5, 2)
    assert np.isfinite(found).all()


def test_an_empty_name_of_an_encoder_is_refused(table, tmp_path, capsys):
    words = ["fit", table, "--target", "size", "--out", tmp_path / "model", "--encoder", ""]
    assert main([str(word) for word in words]) == 2
    assert "--encoder: the path is empty" in capsys.readouterr().err


def test_a_folder_without_its_encoder_is_refused(fitted, tmp_path):
    folder, _ = fitted
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    shutil.rmtree(moved / ENCODER)
    with pytest.raises(MolsliceError, match="was fitted with the embeddings of an encoder"):
        load_model(moved)
    (moved / ENCODER).mkdir()
    with pytest.raises(MolsliceError, match="model.safetensors"):
        load_model(moved)


def test_an_encoder_that_cannot_be_used_is_refused_before_anything_is_written(fitted, table, tmp_path):
    folder, _ = fitted
    out = tmp_path / "out"
    for encoder, reason in (
        (folder, "is a model of molslice fit, not a network"),
        ("absent", "no model 'absent'"),
        (tmp_path, "model.safetensors"),
    ):
        with pytest.raises(MolsliceError, match=reason):
            fit(table, "size", out, encoder=encoder, quiet=True)
    assert not out.exists()


def test_a_fit_without_an_encoder_has_none(table, tmp_path):
    fit(table, "size", tmp_path / "model", members=2, encoder=None, refit=False, quiet=True)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "calibration.json",
        "calibration.safetensors",
        "card.md",
        "domain.json",
        "domain.safetensors",
        "fit.json",
        LEARNER_FILE,
        ROWS,
        TABLE_ROWS,
    ]
    assert load_model(tmp_path / "model").encoder is None
