"""Descriptors at the readout: from the table to the store, the batch, the model and the prediction."""

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from molslice.chem import DESCRIPTORS_VERSION
from molslice.chem.descriptors import descriptor_names
from molslice.config import DataConfig, StartConfig, config_from_mapping
from molslice.data import build_dataset
from molslice.data.molecules.base import describe_columns
from molslice.data.molecules.collate import collate
from molslice.data.molecules.describe import describe_molecules
from molslice.data.molecules.store import MoleculeStore
from molslice.folders.run import MODEL, read_run
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.model import build_model
from molslice.model.graphormer import DescriptorState
from molslice.training.run import train
from molslice.training.start import read_start, start_from
from molslice.types import DataSpec, MolsliceError
from tests.real_data import SAVED_MODEL, embedded_smiles

BAD = "C(C"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Molecules with their polar surface area as target, and a row that cannot be read."""
    smiles = [*embedded_smiles()[::50][:240], BAD]
    area = describe_molecules(smiles).descriptors[:, descriptor_names().index("TPSA")]
    file = tmp_path_factory.mktemp("table") / "area.csv"
    with file.open("w", newline="") as stream:
        rows = [[text, "" if np.isnan(value) else value] for text, value in zip(smiles, area, strict=True)]
        csv.writer(stream).writerows([["smiles", "area"], *rows])
    return file


def options(table, **more):
    return {"path": str(table), "target_columns": "area", "cache_dir": str(table.parent / "cache"), **more}


def configuration(table, **more):
    return config_from_mapping(
        {
            "data": {"name": "csv", **options(table, descriptors=True)},
            "model": {"num_layers": 1, "dim": 16, "ffn_dim": 16, "num_heads": 2, "dropout": 0.0},
            "optimizer": {"lr": 1e-2},
            "training": {"max_epochs": 40, "batch_size": 16, "token_budget": 2048},
            "trainer": {"accelerator": "cpu"},
            **more,
        }
    )


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    return folder, train(configuration(table), folder, quiet=True)


def test_the_store_holds_the_descriptors_of_every_row(table):
    dataset = build_dataset("csv", options(table, descriptors=True))
    expected = describe_molecules(dataset.smiles()).descriptors.astype(np.float32)
    np.testing.assert_array_equal(dataset.store.descriptors, expected)
    assert np.isnan(dataset.store.descriptors[-1]).all()
    reopened = MoleculeStore.open(dataset.store.path)
    np.testing.assert_array_equal(reopened.descriptors, expected)
    np.testing.assert_array_equal(collate(reopened, [3, 1]).descriptors, expected[[3, 1]])
    assert dataset.metadata["descriptors_version"] == DESCRIPTORS_VERSION


def test_stores_with_and_without_descriptors_are_different_ones(table):
    plain, described = (build_dataset("csv", options(table, descriptors=with_)) for with_ in (False, True))
    assert plain.store.path != described.store.path
    assert plain.store.descriptors is None
    assert plain.spec == DataSpec(1)
    assert collate(plain.store, [0]).descriptors is None
    assert "descriptors_version" not in plain.metadata
    assert described.describe({"descriptors": True}) == described.spec


def test_statistics_are_those_of_the_training_rows(table):
    dataset = build_dataset("csv", options(table, descriptors=True))
    values = dataset.store.descriptors[dataset.labeled_rows("train")].astype(np.float64)
    column = descriptor_names().index("MolWt")
    low, high = np.quantile(values[:, column], [0.005, 0.995])
    kept = [min(max(value, low), high) for value in values[:, column]]
    for name, expected in (("low", low), ("high", high), ("mean", np.mean(kept)), ("std", np.std(kept))):
        assert dataset.spec.statistics[f"descriptor_{name}"][column] == pytest.approx(expected)
    found = describe_columns(
        np.array([[1.0, np.nan, np.nan], [1.0, 2.0, np.nan], [1.0, 4.0, np.nan]], np.float32)
    )
    assert found["descriptor_std"][0] == found["descriptor_std"][2] == 1.0
    assert found["descriptor_mean"] == pytest.approx((1.0, 3.0, 0.0), abs=0.01)


def test_the_state_is_that_of_its_formula():
    draw = np.random.default_rng(0)
    statistics = {
        "descriptor_low": (-1.0, -2.0),
        "descriptor_high": (1.0, 2.0),
        "descriptor_mean": (0.5, -0.5),
        "descriptor_std": (2.0, 0.5),
    }
    state = DescriptorState(3, DataSpec(1, num_descriptors=2, statistics=statistics)).double()
    values = draw.normal(size=(20, 2)) * 3
    values[0, 0], values[1] = np.nan, np.nan
    found = state(torch.from_numpy(values)).detach().numpy()
    weight, bias = (tensor.detach().numpy() for tensor in (state.map.weight, state.map.bias))
    for row, numbers in enumerate(values):
        standardized = [
            0.0 if np.isnan(number) else (min(max(number, low), high) - mean) / std
            for number, low, high, mean, std in zip(numbers, *statistics.values(), strict=True)
        ]
        inner = weight @ np.array(standardized) + bias
        expected = [0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0))) for x in inner]
        np.testing.assert_allclose(found[row], expected, rtol=1e-6, atol=1e-12)


def test_a_batch_without_descriptors_is_refused(table):
    config = configuration(table)
    data = DataSpec(1, num_descriptors=2)
    model = build_model(config.model, config.attention, data)
    batch = collate(build_dataset("csv", options(table)).store, [0, 1])
    with pytest.raises(MolsliceError, match="the model takes descriptors, but the molecules have none"):
        model(batch)


def test_a_run_learns_from_descriptors_and_predicts_from_smiles(run, table):
    folder, summary = run
    targets = build_dataset("csv", options(table)).targets
    assert summary["test"]["mae"]["area"] < 0.25 * np.nanstd(targets)
    model = load_model(folder)
    dataset = build_dataset("csv", options(table, descriptors=True))
    rows = dataset.labeled_rows("test")
    found = model.predict([dataset.smiles()[row] for row in rows])
    error = float(np.abs(found - dataset.targets[rows, 0]).mean())
    assert error == pytest.approx(summary["test"]["mae"]["area"], rel=1e-4)
    assert evaluate(model, dataset, "test", progress=False)["targets"][0]["mae"] == pytest.approx(
        error, rel=1e-4
    )
    assert np.isnan(model.predict([BAD]))[0]
    np.testing.assert_allclose(model.predict(["OCC"]), model.predict(["C(O)C"]), rtol=1e-6)
    assert model.embed(["CCO"]).shape == (1, 32)


def test_other_descriptors_than_those_of_the_training_are_refused(run, table, tmp_path, monkeypatch):
    def start_of(path):
        return configuration(table, start={"model": str(path)})

    folder, _ = run
    monkeypatch.setattr("molslice.folders.run.DESCRIPTORS_VERSION", DESCRIPTORS_VERSION + 1)
    for use in (load_model, lambda path: train(start_of(path), tmp_path / "run", quiet=True)):
        with pytest.raises(MolsliceError, match=f"descriptors of version {DESCRIPTORS_VERSION}; this ver"):
            use(folder)


def test_an_embedding_computes_no_descriptors(run, monkeypatch):
    model = load_model(run[0])
    expected = model.embed(["CCO", BAD])
    assert np.isfinite(expected[0]).all()
    monkeypatch.setattr("molslice.chem.descriptors.descriptors", None)  # a call fails
    np.testing.assert_array_equal(model.embed(["CCO", BAD]), expected)
    with pytest.raises(TypeError):
        model.predict(["CCO"])


def test_forged_statistics_are_refused(run, tmp_path):
    from safetensors import safe_open
    from safetensors.torch import save_file

    folder, _ = run
    with safe_open(folder / MODEL, "pt") as file:
        about = json.loads(file.metadata()["molslice"])
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    about["data"]["statistics"]["descriptor_low"] = [0.0]
    save_file(state, tmp_path / MODEL, metadata={"molslice": json.dumps(about)})
    with pytest.raises(MolsliceError, match="descriptor_low has 1 of"):
        load_model(tmp_path)


def test_a_trained_encoder_gets_a_new_head_for_descriptors(table, tmp_path, caplog):
    from molslice.training.start import load_run_config

    mapping = {
        "data": {"name": "csv", **options(table, descriptors=True)},
        "start": {"model": str(SAVED_MODEL)},
        "training": {"max_steps": 2},
        "trainer": {"accelerator": "cpu"},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(mapping))
    train(load_run_config(tmp_path / "run.yaml"), tmp_path / "run")
    report = caplog.text
    assert "new: descriptor_state.map" in report
    assert "readout" in report


def test_pretraining_reads_descriptors_too(table, tmp_path):
    config = configuration(
        table,
        model={"name": "graphormer_pretraining", "num_layers": 1, "dim": 16, "ffn_dim": 16, "num_heads": 2},
        task="pretraining",
        training={"max_steps": 2, "batch_size": 16, "token_budget": 2048},
    )
    train(config, tmp_path / "run", quiet=True)
    trained = load_model(tmp_path / "run")
    assert np.isfinite(trained.predict(["CCO", "c1ccccc1"])).all()
    batch = collate(build_dataset("csv", options(table, descriptors=True)).store, [0, 1])
    other = replace(batch, descriptors=torch.flip(batch.descriptors, (0,)))
    with torch.no_grad():
        assert not torch.allclose(trained.model(batch).prediction, trained.model(other).prediction)


def test_a_model_without_a_place_for_descriptors_refuses_them(table, tmp_path):
    config = configuration(table, model={"name": "gin_virtual", "num_layers": 1, "dim": 8})
    with pytest.raises(MolsliceError, match="gin_virtual does not take descriptors"):
        train(config, tmp_path / "run", quiet=True)


def with_other_statistics(data):
    """The properties of data whose descriptors have another mean and spread."""
    statistics = {
        name: tuple(value + (0.5 + k % 3) * name.endswith(("mean", "std")) for k, value in enumerate(values))
        for name, values in data.statistics.items()
    }
    return replace(data, statistics=statistics)


@pytest.mark.parametrize("loss", ["mae", "gaussian"])
def test_heads_are_converted_to_another_mean_and_spread(table, tmp_path, loss):
    config = configuration(table, training={"max_steps": 3, "batch_size": 16, "loss": loss})
    train(config, tmp_path / "run", quiet=True)
    source, dataset = read_run(tmp_path / "run"), build_dataset("csv", options(table, descriptors=True))
    (mean,), (std,) = source.targets.mean, source.targets.std
    targets = replace(source.targets, mean=(mean - 7.0,), std=(3.0 * std,))
    model = build_model(config.model, config.attention, with_other_statistics(source.data)).eval()
    start = read_start(StartConfig(str(tmp_path / "run")), dataset)
    report = start_from(start, config, model, targets)
    assert "nothing is new" in str(report)
    batch = dataset.collate([row for row in range(40) if np.isfinite(dataset.store.descriptors[row]).all()])
    with torch.no_grad():
        then, now = source.model(batch), model(batch)
    torch.testing.assert_close(
        mean - 7.0 + 3.0 * std * now.prediction, mean + std * then.prediction, rtol=1e-4, atol=1e-3
    )
    if loss == "gaussian":
        moved = then.log_variance - 2.0 * math.log(3.0)
        torch.testing.assert_close(now.log_variance, moved, rtol=0.02, atol=0.02)


def test_the_descriptors_of_a_classifier_are_converted_too(table, tmp_path):
    labels = tmp_path / "labels.csv"
    rows = list(csv.reader(table.open(newline="")))[1:-1]
    with labels.open("w", newline="") as stream:
        classes = [[text, int(float(area) > 60)] for text, area in rows]
        csv.writer(stream).writerows([["smiles", "area"], *classes])
    config = configuration(labels, training={"max_steps": 3, "batch_size": 16})
    kind = {"kind": "classification", "descriptors": True}
    config = replace(config, data=DataConfig("csv", options(labels, **kind)))
    train(config, tmp_path / "run", quiet=True)
    source, dataset = read_run(tmp_path / "run"), build_dataset("csv", options(labels, **kind))
    assert source.targets.kind == "classification"
    model = build_model(config.model, config.attention, with_other_statistics(source.data)).eval()
    start_from(read_start(StartConfig(str(tmp_path / "run")), dataset), config, model, source.targets)
    batch = dataset.collate([row for row in range(40) if np.isfinite(dataset.store.descriptors[row]).all()])
    with torch.no_grad():
        then, now = source.model(batch), model(batch)
    torch.testing.assert_close(now.prediction, then.prediction, rtol=1e-4, atol=1e-3)


def test_statistics_of_many_rows_are_those_of_some(table, monkeypatch):
    dataset = build_dataset("csv", options(table, descriptors=True))
    rows = dataset.labeled_rows("train")[::2]
    monkeypatch.setattr("molslice.data.molecules.base.DESCRIBED_ROWS", len(rows))
    assert dict(dataset.spec.statistics) == describe_columns(dataset.store.descriptors[rows])
