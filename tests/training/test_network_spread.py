"""The spread of single networks: a predicted variance, and passes with dropout."""

import csv
import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch

from molslice.cli import main
from molslice.config import StartConfig
from molslice.data import build_dataset
from molslice.data.molecules.collate import collate
from molslice.explanation.explain import explain
from molslice.fitting.networks import FineTuning, fine_tune
from molslice.folders.ensemble import member_folder
from molslice.folders.fitted import network_folder
from molslice.folders.run import read_run, write_model
from molslice.inference.held_out import calibrate
from molslice.inference.load import load_model, load_network
from molslice.inference.options import PLAIN, PredictionOptions
from molslice.inference.smiles_reader import read_molecules
from molslice.inference.tables.table import predict_table
from molslice.inference.uncertainty import evaluate_uncertainty
from molslice.model.dropout import DropoutSampler
from molslice.tasks.targets import TargetInfo
from molslice.training.ensemble import train_ensemble
from molslice.training.run import train
from molslice.types import DataSpec, MolsliceError
from molslice.uncertainty.calibration import CALIBRATION, Calibration
from tests.inference.models import embedded_smiles

SPLIT = {"split": {"kind": "random", "fractions": [0.5, 0.3, 0.2]}}
TWO = {**SPLIT, "target_columns": ["gap", "half"], "units": ["eV", "eV"]}
DROPOUT = {"dropout": 0.2, "attention_dropout": 0.0}


@pytest.fixture(scope="module")
def config(build_config):
    return build_config(training={"max_epochs": 1, "loss": "gaussian"}, data=TWO, model=DROPOUT)


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    """The run of two numbers with their variances; one has missing values."""
    folder = tmp_path_factory.mktemp("gaussian") / "run"
    train(config, folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def ensemble(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gaussian") / "two"
    train_ensemble(config, folder, 2, quiet=True)
    return folder


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(9)


@pytest.fixture
def copied(run, tmp_path):
    return shutil.copytree(run, tmp_path / "copied")


def outputs(model, smiles):
    """Return what the network itself returns, in float64."""
    with model.reader() as reader:
        (store,) = reader.read([smiles])
    with torch.inference_mode():
        found = model.model(collate(store, np.arange(len(smiles))))
    return found.prediction.double().numpy(), found.log_variance.double().numpy(), store


def test_the_spread_is_the_predicted_deviation_in_the_unit_of_the_target(run, smiles):
    model = load_model(run)
    found = model.predict_with_errors([*smiles, "C1CC"], interval=0.8)
    mean, log_variance, _ = outputs(model, smiles)
    std = np.array(model.targets.std)
    assert std[0] != pytest.approx(std[1], rel=0.1)
    np.testing.assert_allclose(found.spread[:-1], np.exp(log_variance / 2) * std, rtol=1e-4)
    np.testing.assert_allclose(found.values[:-1], mean * std + model.targets.mean, rtol=1e-4)
    np.testing.assert_array_equal(found.values[:-1], model.predict(smiles))
    assert np.isnan(found.spread[-1]).all()
    assert model.predict_with_errors(smiles).spread is None
    assert model.predict_with_errors([], interval=0.8).spread.shape == (0, 2)


def test_intervals_follow_the_spread_where_it_is_kept(run, smiles, monkeypatch):
    monkeypatch.setattr("molslice.uncertainty.calibration.NARROWER", 100.0)  # always
    model = load_model(run)
    dataset = build_dataset(model.data_config.name, dict(model.data_config.options))
    calibration = calibrate(model, dataset)
    assert calibration.needs_difficulty
    monkeypatch.setattr(model, "find_calibration", lambda: calibration)
    found = model.predict_with_errors(smiles, interval=0.8)
    for column, held in enumerate(calibration.targets):
        scale = found.spread[:, column] + held.floor
        half = (found.upper - found.values)[:, column]
        np.testing.assert_allclose(half / half[0], scale / scale[0], rtol=1e-3)
        assert np.ptp(half) > 0


def test_the_variance_of_an_ensemble_is_that_of_the_means_plus_the_mean_variance(ensemble, smiles):
    model = load_model(ensemble)
    members = [load_model(member_folder(ensemble, index)) for index in range(2)]
    parts = [member.predict_with_errors(smiles, interval=0.8) for member in members]
    means = np.stack([part.values for part in parts]).astype(np.float64)
    stated = np.stack([part.spread for part in parts]).astype(np.float64)
    found = model.predict_with_errors(smiles, interval=0.8)
    np.testing.assert_allclose(found.values, means.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.spread, np.sqrt(means.var(0) + (stated**2).mean(0)), rtol=1e-4)
    assert model.predict_with_errors(smiles).members is None


def test_members_of_other_losses_are_refused(ensemble, build_config, tmp_path):
    folder = shutil.copytree(ensemble, tmp_path / "mixed")
    shutil.rmtree(member_folder(folder, 1))
    plain = build_config(training={"max_epochs": 1}, data=TWO, model=DROPOUT)
    train(plain, member_folder(folder, 1), quiet=True)
    with pytest.raises(MolsliceError, match=r"members/1 and .*members/0 were trained with other losses"):
        load_model(folder)


def with_passes(model, passes, smiles):
    options = PredictionOptions(dropout_passes=passes, with_members=True)
    return model.predict_with_errors(smiles, options=options)


@pytest.mark.parametrize("passes", [0, 6])
def test_a_spread_does_not_depend_on_batches_or_workers(run, passes):
    model = load_model(run)
    options = PredictionOptions(dropout_passes=passes, with_members=True)
    smiles = embedded_smiles(40)
    together = model.predict_with_errors(smiles, options=options).members.spread
    shuffled = np.random.default_rng(0).permutation(len(smiles))
    mixed = model.predict_with_errors([smiles[row] for row in shuffled], options=options, workers=2)
    np.testing.assert_allclose(mixed.members.spread, together[shuffled], rtol=1e-4)
    alone = model.predict_with_errors(smiles[7], options=options).members.spread
    np.testing.assert_allclose(alone[0], together[7], rtol=1e-4)


def test_dropout_passes_add_their_variance_and_change_no_prediction(run, smiles):
    model = load_model(run)
    predictions = with_passes(model, 5, smiles)
    _, log_variance, store = outputs(model, smiles)
    with torch.inference_mode():
        passes = DropoutSampler(model.model, 5).predictions(collate(store, np.arange(len(smiles))))
    variance = passes.double().numpy().var(0) + np.exp(log_variance)
    np.testing.assert_allclose(predictions.members.spread, np.sqrt(variance) * model.targets.std, rtol=1e-4)
    np.testing.assert_array_equal(predictions.values, model.predict(smiles))
    options = PredictionOptions(dropout_passes=5)
    assert model.predict_with_errors(smiles, options=options).members is None


def test_the_command_keeps_the_passes_with_the_calibration(copied, run, smiles, tmp_path, capsys):
    calibrating = ["evaluate", str(copied), "--split", "valid", "--calibrate", "--quiet"]
    assert main([*calibrating, "--dropout-passes", "7"]) == 0
    assert json.loads((copied / CALIBRATION).read_text())["dropout_passes"] == 7
    model, plain = load_model(copied), load_model(run)
    found = model.predict_with_errors(smiles, interval=0.8)
    assert model.find_options(0.8).dropout_passes == 7
    expected = with_passes(plain, 7, smiles)
    np.testing.assert_allclose(found.spread, expected.members.spread, rtol=1e-5)
    assert (found.spread > plain.predict_with_errors(smiles, interval=0.8).spread).all()
    assert model.find_calibration().checksum() != plain.find_calibration().checksum()
    capsys.readouterr()
    assert main(["evaluate", str(copied), "--split", "test", "--uncertainty", "--json", "--quiet"]) == 0
    printed = json.loads(capsys.readouterr().out)["uncertainty"]
    dataset = build_dataset(model.data_config.name, dict(model.data_config.options))
    assert printed["targets"] == json.loads(json.dumps(evaluate_uncertainty(model, dataset)["targets"]))
    assert main(calibrating) == 0
    assert Calibration.read(copied, "regression", model.target_names).dropout_passes == 0


def test_dropout_passes_that_are_not_possible_are_refused(copied, build_config, tmp_path, capsys):
    calibrating = ["evaluate", str(copied), "--split", "valid", "--calibrate", "--quiet"]
    assert main([*calibrating, "--dropout-passes", "1"]) == 1
    assert ": the number of passes must be from 2 to 1000, got 1" in capsys.readouterr().err
    assert main(["evaluate", str(copied), "--dropout-passes", "5"]) == 2
    assert "--dropout-passes needs --calibrate" in capsys.readouterr().err
    about = json.loads((copied / CALIBRATION).read_text())
    for passes in ("5", -1, True):
        (copied / CALIBRATION).write_text(json.dumps({**about, "dropout_passes": passes}))
        with pytest.raises(MolsliceError, match=f"{CALIBRATION} is damaged: dropout_passes"):
            load_model(copied).predict_with_errors("CCO", interval=0.8)
    dry = build_config(training={"max_epochs": 1}, data=SPLIT, model={"dropout": 0.0})
    train(dry, tmp_path / "dry", quiet=True)
    with pytest.raises(MolsliceError, match=r"cannot compute dropout passes of .*dry: .*model\.dropout 0"):
        with_passes(load_model(tmp_path / "dry"), 5, "CCO")
    assert not load_model(tmp_path / "dry").has_spread(PLAIN)


def test_an_ensemble_has_dropout_passes_of_its_members(ensemble, smiles):
    predictions = with_passes(load_model(ensemble), 4, smiles)
    parts = [with_passes(load_model(member_folder(ensemble, index)), 4, smiles) for index in range(2)]
    means = np.stack([part.values for part in parts]).astype(np.float64)
    stated = np.stack([part.members.spread for part in parts])
    np.testing.assert_allclose(
        predictions.members.spread, np.sqrt(means.var(0) + (stated**2).mean(0)), rtol=1e-4
    )


def test_classes_have_dropout_passes_of_their_probability(build_config, tmp_path, smiles):
    config = build_config(
        training={"max_epochs": 1},
        data={**SPLIT, "target_columns": "wide", "units": "", "kind": "classification"},
        model=DROPOUT,
    )
    train(config, tmp_path / "run", quiet=True)
    model = load_model(tmp_path / "run")
    with model.reader() as reader:
        (store,) = reader.read([smiles])
    with torch.inference_mode():
        passes = DropoutSampler(model.model, 6).predictions(collate(store, np.arange(len(smiles))))
    predictions = with_passes(model, 6, smiles)
    np.testing.assert_allclose(
        predictions.members.spread, passes.double().sigmoid().numpy().std(0), rtol=1e-4
    )


def test_tables_have_a_column_of_the_spread(run, smiles, tmp_path):
    source, target = tmp_path / "in.smi", tmp_path / "out.csv"
    source.write_text("\n".join(smiles) + "\n")
    model = load_model(run)
    predict_table(model, source, target, model.find_options(0.8), workers=1, progress=False)
    with target.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    predictions = model.predict_with_errors(smiles, interval=0.8)
    assert [float(row["half_spread"]) for row in rows] == pytest.approx(
        predictions.spread[:, 1].tolist(), rel=1e-4
    )


def test_the_mean_of_a_run_with_a_variance_is_explained(run):
    model = load_model(run)
    mean = float(model.predict("CCO")[0, 0])
    assert explain(model, "CCO", target="gap").prediction == pytest.approx(mean, rel=1e-4)


def test_runs_start_from_a_run_with_a_variance_and_the_other_way(run, build_config, config, tmp_path, caplog):
    plain = build_config(training={"max_steps": 1}, data=TWO, model=DROPOUT)
    back = dataclasses.replace(plain, start=StartConfig(str(run)))
    train(back, tmp_path / "plain")
    assert "not used: variance_readout" in caplog.text
    assert not load_model(tmp_path / "plain").data.predicts_variance
    caplog.clear()
    forth = dataclasses.replace(config, start=StartConfig(str(tmp_path / "plain")))
    train(forth, tmp_path / "gaussian")
    assert "new: variance_readout (not there)" in caplog.text
    assert load_model(tmp_path / "gaussian").has_spread(PLAIN)


def test_the_report_measures_a_run_with_a_variance_and_dropout_passes(copied, tmp_path):
    calibrating = ["evaluate", str(copied), "--split", "valid", "--calibrate", "--dropout-passes", "3"]
    assert main([*calibrating, "--quiet"]) == 0
    page = tmp_path / "page.html"
    assert main(["report", str(copied), "--out", str(page), "--quiet"]) == 0
    words = page.read_text()
    assert "Intervals are computed from valid rows of" in words
    assert "rank correlation of the error with spread" in words


def test_the_service_answers_with_the_spread(copied, monkeypatch):
    from fastapi.testclient import TestClient

    from molslice.serve import app
    from tests.serve.inline import InlineWorker

    calibrating = ["evaluate", str(copied), "--split", "valid", "--calibrate", "--dropout-passes", "3"]
    assert main([*calibrating, "--quiet"]) == 0
    monkeypatch.setattr(app, "WorkerProcess", InlineWorker)
    wanted = load_model(copied).predict_with_errors(["CCO"], interval=0.8)
    with TestClient(app.build_app(app.Service({"run": str(copied)}))) as client:
        request = {"smiles": ["CCO"], "model": "run", "interval": 0.8}
        (row,) = client.post("/predict", json=request).json()["predictions"]
    for name in ("spread", "lower", "upper"):
        found = row["uncertainty"][name]
        assert list(found.values()) == pytest.approx(getattr(wanted, name)[0].tolist(), rel=1e-5)


def test_a_run_with_a_variance_is_fine_tuned_by_fit(run, tmp_path):
    smiles = embedded_smiles(24)
    sizes = np.array([[len(text)] for text in smiles], np.float64)
    info = TargetInfo(("size",), ("",), "regression", (float(sizes.mean()),), (float(sizes.std()),))
    folds = np.arange(24) % 2
    molecules = read_molecules(smiles)
    training = FineTuning(run, molecules, sizes, info, folds, tmp_path, epochs=1, seed=0)
    networks = fine_tune(training, smiles)
    assert np.isfinite(networks.unseen).all()
    network = load_network(network_folder(tmp_path, 0))
    assert (network.data.predicts_variance, network.has_spread(PLAIN)) == (False, False)


def test_a_forged_variance_of_a_class_is_refused(build_config, tmp_path):
    data = {**SPLIT, "target_columns": "wide", "units": "", "kind": "classification"}
    config = build_config(training={"max_steps": 1}, data=data)
    train(config, tmp_path / "run", quiet=True)
    loaded = read_run(tmp_path / "run")
    forged = DataSpec(1, predicts_variance=True)
    write_model(tmp_path / "run", loaded.model.state_dict(), loaded.targets, forged, loaded.config)
    with pytest.raises(MolsliceError, match="targets of kind classification have no variance"):
        read_run(tmp_path / "run")


def test_parameters_are_counted_with_the_variance(config, write_config, tmp_path, run, capsys):
    file = write_config(config, tmp_path / "config.yaml")
    assert main(["params", "--config", str(file), "--json"]) == 0
    counted = json.loads(capsys.readouterr().out)["parameters"]["total"]
    assert counted == sum(parameter.numel() for parameter in load_model(run).model.parameters())
