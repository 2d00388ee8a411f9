"""Ensembles of runs, and intervals of runs from their validation rows."""

import csv
import dataclasses
import json
import shutil

import numpy as np
import pytest

from molslice.cli import main
from molslice.data import build_dataset
from molslice.folders.ensemble import ENSEMBLE, member_folder
from molslice.folders.run import CONFIG, SUMMARY
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model, load_network
from molslice.inference.tables.table import predict_table
from molslice.training.ensemble import _mean_errors, train_ensemble
from molslice.training.run import train
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import ARRAYS, CALIBRATION
from tests.inference.models import embedded_smiles

SPLIT = {"split": {"kind": "random", "fractions": [0.6, 0.3, 0.1]}}


@pytest.fixture(scope="module")
def config(build_config):
    return build_config(training={"max_epochs": 1}, data=SPLIT)


@pytest.fixture(scope="module")
def ensemble(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble") / "three"
    return folder, train_ensemble(config, folder, 3, quiet=True)


@pytest.fixture(scope="module")
def run(build_config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "two"
    two = build_config(
        training={"max_epochs": 1}, data={**SPLIT, "target_columns": ["gap", "half"], "units": ["eV", "eV"]}
    )
    train(two, folder, quiet=True)
    return folder, two


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(7)


def valid_rows(config, column=0):
    """Return SMILES and truth of the validation rows with a value."""
    dataset = build_dataset(config.data.name, dict(config.data.options))
    rows = dataset.labeled_rows("valid")
    truth = np.asarray(dataset.targets[rows], np.float64)[:, column]
    known = np.isfinite(truth)
    smiles = dataset.smiles()
    return [smiles[row] for row in rows[known]], truth[known]


def test_a_run_has_split_conformal_intervals_from_its_validation_rows(run, smiles):
    folder, config = run
    model = load_model(folder)
    found = model.predict_with_errors(smiles, interval=0.8)
    assert found.spread is None
    for column in range(2):
        known, truth = valid_rows(config, column)
        errors = np.sort(np.abs(truth - model.predict(known)[:, column]))
        half = errors[int(np.ceil((len(errors) + 1) * 0.8)) - 1]
        np.testing.assert_allclose(found.upper[:, column], found.values[:, column] + half, rtol=1e-5)
        np.testing.assert_allclose(found.lower[:, column], found.values[:, column] - half, rtol=1e-5)
    np.testing.assert_array_equal(found.values, model.predict(smiles))


def test_the_members_are_runs_with_consecutive_seeds(ensemble, config):
    folder, summary = ensemble
    assert [json.loads((member_folder(folder, i) / SUMMARY).read_text())["seed"] for i in range(3)] == [
        5,
        6,
        7,
    ]
    values = [member["valid"]["mae"]["gap"] for member in summary["members"]]
    assert len(set(values)) == 3
    assert summary["mean"]["valid"]["gap"] == pytest.approx(np.mean(values))


def test_an_ensemble_predicts_mean_and_spread_of_its_members(ensemble, smiles):
    folder, _ = ensemble
    members = np.stack([load_network(member_folder(folder, i)).predict(smiles) for i in range(3)])
    model = load_model(folder)
    found = model.predict_with_errors([*smiles, "C1CC"], interval=0.8)
    np.testing.assert_allclose(found.values[:-1, 0], members.mean(0), rtol=1e-6)
    np.testing.assert_allclose(found.spread[:-1, 0], members.astype(np.float64).std(0), rtol=1e-4)
    assert found.errors[-1] is not None
    for part in (found.values, found.spread, found.lower, found.upper):
        assert np.isnan(part[-1]).all()
    plain = model.predict_with_errors(smiles)
    assert (plain.spread, plain.lower, plain.members) == (None, None, None)


def test_the_intervals_of_an_ensemble_are_those_of_its_mean(ensemble, config, smiles):
    model = load_model(ensemble[0])
    known, truth = valid_rows(config)
    found = model.predict_with_errors(smiles, interval=0.8)
    held = model.find_calibration().targets[0]
    valid = model.predict_with_errors(known, interval=0.5)
    scales, scale = np.ones(len(known)), np.ones(len(smiles))
    if held.floor is not None:
        scales, scale = valid.spread[:, 0] + held.floor, found.spread[:, 0] + held.floor
    scores = np.sort(np.abs(truth - valid.values[:, 0]) / scales)
    half = scores[int(np.ceil((len(scores) + 1) * 0.8)) - 1] * scale
    np.testing.assert_allclose(found.upper[:, 0] - found.values[:, 0], half, rtol=1e-3)
    np.testing.assert_allclose(found.values[:, 0] - found.lower[:, 0], half, rtol=1e-3)


def test_the_spread_of_an_ensemble_scales_its_intervals_where_it_is_kept(ensemble, smiles, monkeypatch):
    monkeypatch.setattr("molslice.uncertainty.calibration.NARROWER", 100.0)  # always
    from molslice.inference.held_out import calibrate

    model = load_model(ensemble[0])
    dataset = build_dataset(model.data_config.name, dict(model.data_config.options))
    calibration = calibrate(model, dataset)
    held = calibration.targets[0]
    monkeypatch.setattr(model, "find_calibration", lambda: calibration)
    found = model.predict_with_errors(smiles, interval=0.8)
    half = (found.upper - found.values)[:, 0]
    np.testing.assert_allclose(
        half / half[0], (found.spread[:, 0] + held.floor) / (found.spread[0, 0] + held.floor), rtol=1e-3
    )


def test_an_ensemble_is_evaluated_and_predicts_tables(ensemble, config, smiles, tmp_path, capsys):
    folder, _ = ensemble
    model = load_model(folder)
    dataset = build_dataset(config.data.name, dict(config.data.options))
    result = evaluate(model, dataset, "valid", progress=False)
    known, truth = valid_rows(config)
    assert result["targets"][0]["mae"] == pytest.approx(np.abs(model.predict(known) - truth).mean(), rel=1e-5)
    assert (
        result["parameters"] == 3 * evaluate(model.members[0], dataset, "valid", progress=False)["parameters"]
    )
    assert main(["evaluate", str(folder), "--split", "valid", "--quiet"]) == 0
    source, target = tmp_path / "in.smi", tmp_path / "out.csv"
    source.write_text("\n".join(smiles) + "\n")
    predict_table(model, source, target, model.find_options(0.8), workers=1, progress=False)
    with target.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {"gap_eV", "gap_lower", "gap_upper", "gap_spread"} < rows[0].keys()


def test_an_interrupted_ensemble_continues_with_the_same_weights(config, ensemble, tmp_path, monkeypatch):
    folder, calls = tmp_path / "stopped", []
    import molslice.training.ensemble as module

    def stop_in_second(*args, **options):
        calls.append(args[1].name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module, "train", stop_in_second)
        with pytest.raises(
            KeyboardInterrupt, match="member 2 of 3; the same command with --resume continues"
        ):
            train_ensemble(config, folder, 3, quiet=True)
    with pytest.raises(MolsliceError, match="not finished|does not exist"):
        load_model(folder)
    with pytest.raises(MolsliceError, match="continue its ensemble with --resume"):
        train_ensemble(config, folder, 3, quiet=True)
    with pytest.raises(MolsliceError, match="an ensemble of 3 members, not of 2"):
        train_ensemble(config, folder, 2, resume=True, quiet=True)
    assert main(["train", "--resume", "--out", str(folder), "--quiet"]) == 0
    assert load_model(folder).checksum() == load_model(ensemble[0]).checksum()


def test_changed_data_are_refused_although_members_are_finished(config, tmp_path):
    table = tmp_path / "mine.csv"
    shutil.copy(config.data.options["path"], table)
    data = dataclasses.replace(config.data, options={**config.data.options, "path": str(table)})
    mine = dataclasses.replace(config, data=data)
    train_ensemble(mine, tmp_path / "two", 2, quiet=True)
    shutil.rmtree(member_folder(tmp_path / "two", 1))
    header, first, *rows = table.read_text().splitlines(keepends=True)
    table.write_text("".join([header, *rows, first]))
    with pytest.raises(MolsliceError, match=r"the data of the run in .* have changed since its start"):
        train_ensemble(mine, tmp_path / "two", 2, resume=True, quiet=True)
    assert not member_folder(tmp_path / "two", 1).exists()


def test_an_undefined_error_of_a_finished_member_has_no_mean():
    summaries = [
        {"metric": "roc_auc", **{split: {"roc_auc": {"y": error}} for split in ("train", "valid", "test")}}
        for error in (0.5, None)
    ]
    assert np.isnan(_mean_errors(summaries)["test"]["y"])


def test_several_devices_are_refused(config, tmp_path):
    trainer = dataclasses.replace(config.trainer, devices=2)
    with pytest.raises(MolsliceError, match=r"each member on one device; trainer\.devices must be 1"):
        train_ensemble(dataclasses.replace(config, trainer=trainer), tmp_path / "out", 2, quiet=True)
    assert not (tmp_path / "out").exists()


def test_a_refused_configuration_is_not_written(ensemble, config):
    before = (ensemble[0] / CONFIG).read_bytes()
    other = dataclasses.replace(config, training=dataclasses.replace(config.training, batch_size=7))
    with pytest.raises(MolsliceError, match="was started with another configuration"):
        train_ensemble(other, ensemble[0], len(load_model(ensemble[0]).members), resume=True, quiet=True)
    assert (ensemble[0] / CONFIG).read_bytes() == before
    assert main(["train", "--resume", "--out", str(ensemble[0]), "--quiet"]) == 0


def test_a_corrected_command_may_follow_one_that_failed_at_once(config, tmp_path):
    folder = tmp_path / "out"
    wrong = dataclasses.replace(config, model=dataclasses.replace(config.model, num_heads=5))
    with pytest.raises(MolsliceError, match="heads"):
        train_ensemble(wrong, folder, 3, quiet=True)
    train_ensemble(config, folder, 2, quiet=True)
    assert len(load_model(folder).members) == 2
    with pytest.raises(MolsliceError, match="continue its ensemble with --resume"):
        train_ensemble(config, folder, 2, quiet=True)


def test_a_folder_of_something_else_is_refused(config, tmp_path, run):
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(MolsliceError, match="is not empty"):
        train_ensemble(config, tmp_path, 2, quiet=True)
    with pytest.raises(MolsliceError, match="is not empty"):
        train_ensemble(config, run[0], 2, resume=True, quiet=True)
    with pytest.raises(MolsliceError, match="from 2 to 100"):
        train_ensemble(config, tmp_path / "one", 1, quiet=True)


def test_a_damaged_description_is_refused(ensemble, tmp_path):
    for content in (
        "{}",
        '{"format": "molslice-ensemble-1", "members": 1}',
        '{"format": "molslice-ensemble-1", "members": "x"}',
        "x",
    ):
        (tmp_path / ENSEMBLE).write_text(content)
        with pytest.raises(MolsliceError, match=ENSEMBLE):
            load_model(tmp_path)
    with pytest.raises(MolsliceError, match="is an ensemble, not a network; give one of its networks"):
        load_network(ensemble[0])


def test_a_run_without_calibration_says_how_to_get_it(run, tmp_path, smiles, capsys):
    folder = tmp_path / "older"
    shutil.copytree(run[0], folder)
    calibration = (folder / CALIBRATION).read_bytes(), (folder / ARRAYS).read_bytes()
    for name in (CALIBRATION, ARRAYS):
        (folder / name).unlink()
    with pytest.raises(MolsliceError, match=f"has no {CALIBRATION}.*--split valid --calibrate"):
        load_model(folder).predict_with_errors(smiles, interval=0.8)
    assert main(["evaluate", str(folder), "--split", "test", "--calibrate", "--quiet"]) == 1
    assert "not test" in capsys.readouterr().err
    assert not (folder / CALIBRATION).exists()
    assert main(["evaluate", str(folder), "--split", "valid", "--calibrate", "--quiet"]) == 0
    assert ((folder / CALIBRATION).read_bytes(), (folder / ARRAYS).read_bytes()) == calibration


def test_the_run_of_a_class_has_sets(build_config, tmp_path, smiles):
    config = build_config(
        training={"max_epochs": 1},
        data={**SPLIT, "target_columns": "wide", "units": "", "kind": "classification"},
    )
    train(config, tmp_path / "run", quiet=True)
    model = load_model(tmp_path / "run")
    found = model.predict_with_errors(smiles, interval=0.8)
    known, truth = valid_rows(config)
    chances = model.predict(known).astype(np.float64)
    for label in (0, 1):
        own = np.abs(truth[truth == label] - chances[truth == label])
        limit = np.sort(own)[int(np.ceil((len(own) + 1) * 0.8)) - 1]
        np.testing.assert_array_equal(
            found.sets[:, 0, label], np.abs(label - found.values[:, 0].astype(np.float64)) <= limit
        )


def test_the_command_trains_an_ensemble(config, write_config, tmp_path, capsys):
    file = write_config(config, tmp_path / "config.yaml")
    assert (
        main(
            [
                "train",
                "--config",
                str(file),
                "--out",
                str(tmp_path / "run"),
                "--members",
                "2",
                "--json",
                "--quiet",
            ]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert [member["seed"] for member in printed["members"]] == [5, 6]
    assert load_model(tmp_path / "run").num_members == 2


def test_runs_and_ensembles_keep_their_training_molecules(ensemble, run, config):
    dataset = build_dataset(config.data.name, dict(config.data.options))
    for folder in (ensemble[0], run[0], member_folder(ensemble[0], 1)):
        found = load_model(folder).find_domain()
        assert len(found.smiles) == len(dataset.labeled_rows("train"))
