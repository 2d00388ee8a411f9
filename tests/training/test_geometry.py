"""Training with `data.geometry`: distances are learned beside the targets, and predictions need none."""

import csv

import pytest
import torch

from molslice.cli import main
from molslice.config import StartConfig, config_from_mapping
from molslice.data import build_dataset
from molslice.data.molecules.prepare import Featurizing
from molslice.data.molecules.prepare_files import prepare_files
from molslice.folders.run import METRICS, read_run
from molslice.inference.load import load_model
from molslice.model import build_model
from molslice.training.run import train
from molslice.training.start import read_start, start_from
from molslice.types import DataSpec, MolsliceError


def losses(folder):
    with (folder / METRICS).open() as file:
        return [float(row["train_loss"]) for row in csv.DictReader(file)]


@pytest.fixture
def embed_nothing(monkeypatch):
    """Return a function after which no conformer can be computed."""

    def fail(*_):
        raise AssertionError("embedded")

    return lambda: monkeypatch.setattr("molslice.chem.conformers.coordinates", fail)


@pytest.mark.parametrize("attention", ["softmax", "slice_sort"])
def test_the_distances_are_learned(build_config, tmp_path, attention):
    sections = {"data": {"geometry": True}, "attention": {"name": attention}}
    heavy = {"training": {"distance_weight": 100.0, "max_epochs": 6}}
    train(build_config(**sections, **heavy), tmp_path / "run", quiet=True)
    first, *_, last = losses(tmp_path / "run")
    assert last < 0.85 * first
    assert read_run(tmp_path / "run").data.has_geometry


def test_a_prediction_reads_smiles_alone(build_config, tmp_path, embed_nothing):
    train(build_config(data={"geometry": True}), tmp_path / "run", quiet=True)
    embed_nothing()
    one, other = load_model(tmp_path / "run").predict(["CCO", "OCC"])
    assert float(one) == float(other)


def test_a_weight_without_a_geometry_is_refused(build_config, tmp_path):
    with pytest.raises(MolsliceError, match=r"distance_weight is 7\.0, but the data have no geometry"):
        train(build_config(training={"distance_weight": 7.0}), tmp_path / "run", quiet=True)


def test_other_models_ignore_the_geometry_of_a_store(build_config, molecules, tmp_path):
    store = tmp_path / "store"
    prepare_files([molecules], store, targets=["gap"], how=Featurizing(geometry=True))
    data = {"name": "prepared", "path": str(store)}
    for number, sizes in enumerate(({"name": "gin_virtual"}, {"name": "graphormer", "num_heads": 2})):
        model = {**sizes, "num_layers": 1, "dim": 16}
        model |= {"ffn_dim": 16} if number else {}
        config = config_from_mapping(
            {"data": data, "model": model, "training": {"max_steps": 2}, "trainer": {"accelerator": "cpu"}}
        )
        train(config, tmp_path / str(number), quiet=True)
        assert read_run(tmp_path / str(number)).data.has_geometry == bool(number)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_a_run_starts_from_one_with_or_without_a_geometry(build_config, tmp_path, before, after):
    train(build_config(data={"geometry": before}), tmp_path / "first", quiet=True)
    config = build_config(data={"geometry": after}, training={"max_epochs": 1})
    model = build_model(config.model, config.attention, DataSpec(1, has_geometry=after))
    first = read_run(tmp_path / "first")
    dataset = build_dataset(config.data.name, dict(config.data.options))
    source = read_start(StartConfig(model=str(tmp_path / "first")), dataset)
    report = start_from(source, config, model, first.targets)
    new, unused = ({text.partition(".")[0] for text in names} for names in (report.new, report.unused))
    assert new == ({"distance_head"} if after and not before else set())
    assert unused == ({"distance_head"} if before and not after else set())


@pytest.mark.parametrize("fixed", [False, True])
def test_a_resumed_run_equals_an_uninterrupted_one(build_config, train_and_resume, fixed):
    settings = {"max_steps": 18, "fixed_shapes": fixed, "valid_every_steps": 6}
    config = build_config(data={"geometry": True}, training=settings)
    one, other = (state["model"] for state in train_and_resume(config, stop=13))
    assert any("distance_head" in name for name in one)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_task_that_learns_no_distances_is_refused(build_config, tmp_path):
    config = build_config(
        data={"geometry": True}, task="pretraining", training={"label_weights": {"descriptors": 1.0}}
    )
    with pytest.raises(MolsliceError, match=r"data\.geometry has no effect on the model .* task pretraining"):
        train(config, tmp_path / "run", quiet=True)


def test_an_invalid_weight_is_refused(build_config, tmp_path):
    with pytest.raises(MolsliceError, match=r"training\.distance_weight must be above 0, got 0"):
        train(
            build_config(data={"geometry": True}, training={"distance_weight": 0.0}),
            tmp_path / "run",
            quiet=True,
        )


def test_no_conformer_of_other_data_is_computed_for_an_evaluation(
    build_config, molecules, tmp_path, embed_nothing
):
    train(build_config(data={"geometry": True}), tmp_path / "run", quiet=True)
    embed_nothing()
    other = tmp_path / "other.csv"
    other.write_text("\n".join(molecules.read_text().splitlines()[:40]) + "\n")
    options = ["--data.path", str(other), "--data.cache_dir", str(tmp_path / "cache"), "--quiet"]
    assert main(["evaluate", str(tmp_path / "run"), *options]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--quiet"]) == 0
