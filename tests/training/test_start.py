"""Runs that start from a trained model: which weights are taken, what moves, and what is refused."""

import dataclasses
import json
import logging
from pathlib import Path

import pytest
import torch
import yaml

from molslice.cli import main
from molslice.config import DataConfig, StartConfig, config_to_mapping, load_config
from molslice.files.cache import file_checksum
from molslice.folders.ensemble import write_ensemble
from molslice.folders.run import CONFIG, LAST_CHECKPOINT, MODEL, read_run
from molslice.model import build_model
from molslice.model.graphormer import GraphormerSpec
from molslice.tasks import TASKS, TargetInfo
from molslice.training.compare import compare_attentions
from molslice.training.optimizer import build_optimizer
from molslice.training.run import train
from molslice.training.start import load_run_config
from molslice.training.trainer import Trainer
from molslice.types import DataSpec, MolsliceError
from tests.data.molecules.corpora import make_corpus

SAVED_TEXT = Path(__file__).parents[1] / "saved_models" / "text"
WITHOUT_MOVING = {"lr": 1e-9, "ema_decay": None, "weight_decay": 0.0}


@pytest.fixture(scope="module")
def encoder(build_config, tmp_path_factory):
    """A pretrained run."""
    folder = tmp_path_factory.mktemp("encoder")
    config = build_config(
        model={"name": "graphormer_pretraining", "num_layers": 3, "readout": "mean"},
        task="pretraining",
        training={"max_steps": 3},
    )
    options = {"path": str(make_corpus(folder / "corpus")), "valid_fraction": 0.2, "test_fraction": 0.1}
    train(dataclasses.replace(config, data=DataConfig("corpus", options)), folder / "run", quiet=True)
    return folder / "run"


@pytest.fixture(scope="module")
def settings(build_config, encoder, tmp_path_factory):
    """Write a configuration without model and attention; returns its path."""

    def write(**sections):
        mapping = config_to_mapping(build_config())
        for section in ("model", "attention", "start"):
            del mapping[section]
        mapping["training"] |= {"max_epochs": None, "max_steps": 2}
        for name, section in sections.items():
            mapping[name] = {**mapping.get(name, {}), **section} if isinstance(section, dict) else section
        path = tmp_path_factory.mktemp("settings") / "mine.yaml"
        path.write_text(yaml.safe_dump(mapping))
        return path

    return write


def read(path, encoder, *overrides):
    return load_run_config(path, [("start.model", json.dumps(str(encoder))), *overrides])


def weights(folder):
    return read_run(folder).model.state_dict()


def test_the_model_is_that_of_the_encoder_with_a_new_head(settings, encoder, tmp_path, caplog):
    config = read(settings(optimizer=WITHOUT_MOVING, model={"dropout": 0.3}), encoder)
    assert isinstance(config.model, GraphormerSpec)
    assert config.model.name == "graphormer"
    assert (config.model.num_layers, config.model.readout, config.model.dropout) == (3, "mean", 0.3)
    with caplog.at_level(logging.WARNING):
        train(config, tmp_path / "run")
    source, found = weights(encoder), weights(tmp_path / "run")
    trunk = [name for name in found if not name.startswith("readout")]
    assert len(trunk) > 40
    for name in trunk:
        torch.testing.assert_close(found[name], source[name], atol=1e-6, rtol=0)
    count = sum(found[name].numel() for name in trunk)
    total = sum(tensor.numel() for tensor in found.values())
    assert f"{count:,} of {total:,} parameters come from {encoder}" in caplog.text
    assert "new: readout (for other targets)" in caplog.text
    assert "not used: atom_head, atom_readout, bond_head, hidden_atom, hidden_bond" in caplog.text


def test_the_run_keeps_name_and_checksum(settings, encoder, tmp_path):
    train(read(settings(), encoder), tmp_path / "run", quiet=True)
    kept = load_config(tmp_path / "run" / CONFIG).start
    assert kept is not None
    assert kept == StartConfig(str(encoder), file_checksum(encoder / MODEL))
    other = dataclasses.replace(kept, sha256="0" * 64)
    config = dataclasses.replace(read(settings(), encoder), start=other)
    with pytest.raises(MolsliceError, match="is not the model that the run started from: its SHA-256 is"):
        train(config, tmp_path / "other", quiet=True)


def test_a_head_for_the_same_targets_is_taken(settings, encoder, tmp_path, caplog):
    first = settings(optimizer=WITHOUT_MOVING)
    train(read(first, encoder), tmp_path / "first", quiet=True)
    with caplog.at_level(logging.WARNING):
        train(read(first, tmp_path / "first"), tmp_path / "second")
    assert "nothing is new" in caplog.text
    one, other = weights(tmp_path / "first"), weights(tmp_path / "second")
    torch.testing.assert_close(one["readout.weight"], other["readout.weight"], atol=1e-6, rtol=0)


def test_pretraining_continues_with_its_heads(encoder, tmp_path, caplog):
    config = load_config(encoder / CONFIG)
    config = dataclasses.replace(config, start=StartConfig(str(encoder)))
    with caplog.at_level(logging.WARNING):
        train(config, tmp_path / "run")
    assert "nothing is new" in caplog.text


def test_other_targets_of_molecules_leave_the_heads_of_atoms_and_bonds(encoder, tmp_path, caplog):
    config = load_config(encoder / CONFIG)
    path = make_corpus(tmp_path / "corpus", quantum=(("gap", "eV"), ("energy", "eV")))
    config = dataclasses.replace(
        config,
        start=StartConfig(str(encoder)),
        data=DataConfig("corpus", {**config.data.options, "path": str(path)}),
        optimizer=dataclasses.replace(config.optimizer, **WITHOUT_MOVING),
    )
    with caplog.at_level(logging.WARNING):
        train(config, tmp_path / "run")
    assert "new: readout (for other targets)\n" in caplog.text
    one, other = weights(encoder), weights(tmp_path / "run")
    for name in ("atom_readout.weight", "atom_head.weight", "bond_head.weight"):
        torch.testing.assert_close(one[name], other[name], atol=1e-6, rtol=0)


def test_features_of_hidden_atoms_in_another_order_need_a_new_head(encoder, tmp_path, caplog):
    config = load_config(encoder / CONFIG)
    model = dataclasses.replace(config.model, atom_features=config.model.atom_features[::-1])
    config = dataclasses.replace(config, start=StartConfig(str(encoder)), model=model)
    with caplog.at_level(logging.WARNING):
        train(config, tmp_path / "run")
    assert "new: atom_head (for other targets)" in caplog.text


def test_a_preset_sets_the_sizes(settings, encoder, tmp_path):
    config = read(settings(model={"preset": "slim"}), encoder)
    assert config.model.dim == 80
    with pytest.raises(MolsliceError, match="do not fit: model.dim is 80, not"):
        train(config, tmp_path / "run", quiet=True)


def test_a_folder_of_several_networks_is_refused(settings, tmp_path):
    write_ensemble(tmp_path, 2)
    with pytest.raises(MolsliceError, match="not a network; give one of its networks, such as .*0"):
        read(settings(), tmp_path)


def test_another_attention_takes_what_fits(settings, encoder, tmp_path, caplog):
    config = read(settings(optimizer=WITHOUT_MOVING), encoder, ("attention.name", "slice_sort"))
    assert config.attention.name == "slice_sort"
    with caplog.at_level(logging.WARNING):
        train(config, tmp_path / "run")
    assert "not used: " in caplog.text
    assert "encoder.layers.0.attention" in caplog.text
    source, found = weights(encoder), weights(tmp_path / "run")
    name = "encoder.layers.2.ffn.inner.weight"
    torch.testing.assert_close(found[name], source[name], atol=1e-6, rtol=0)


def test_fewer_layers_are_the_first_ones(settings, encoder, tmp_path):
    config = read(settings(optimizer=WITHOUT_MOVING), encoder, ("model.num_layers", "2"))
    train(config, tmp_path / "run", quiet=True)
    source, found = weights(encoder), weights(tmp_path / "run")
    name = "encoder.layers.1.ffn.inner.weight"
    torch.testing.assert_close(found[name], source[name], atol=1e-6, rtol=0)


@pytest.mark.parametrize(("frozen", "moving"), [(2, 2), ("all", None)])
def test_frozen_layers_do_not_move(settings, encoder, tmp_path, frozen, moving):
    # a large rate and weight decay would show
    path = settings(optimizer={"lr": 0.1, "weight_decay": 0.5}, training={"frozen_layers": frozen})
    train(read(path, encoder), tmp_path / "run", quiet=True)
    source, found = weights(encoder), weights(tmp_path / "run")
    for name, tensor in found.items():
        layer = int(name.split(".")[2]) if name.startswith("encoder.layers") else None
        if name.startswith("readout"):
            continue
        is_frozen = (
            moving is None or (layer is not None and layer < moving) or name.split(".")[0] != "encoder"
        )
        if is_frozen:
            assert torch.equal(tensor, source[name]), name
        elif tensor.ndim > 1:
            assert not torch.equal(tensor, source[name]), name


def test_rates_of_the_optimizer_decrease_from_layer_to_layer(settings, encoder, tmp_path, monkeypatch):
    rates = []
    original = Trainer._record_step

    def step(self, batch, loss):
        original(self, batch, loss)
        named = {id(p): name for name, p in self.stepper.model.named_parameters()}
        for group in self.stepper.optimizer.param_groups:
            rates.extend((named[id(p)], group["lr"], group["weight_decay"]) for p in group["params"])

    monkeypatch.setattr(Trainer, "_record_step", step)
    optimizer = {
        "lr": 0.01,
        "layer_decay": 0.5,
        "schedule": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.1,
    }
    path = settings(optimizer=optimizer, training={"max_steps": 1, "frozen_layers": 1})
    train(read(path, encoder), tmp_path / "run", quiet=True)
    found = {name: (rate, decay) for name, rate, decay in rates}
    assert not any(name.startswith(("encoder.layers.0", "atom_embedding", "graph_bias")) for name in found)
    assert found["readout.weight"] == pytest.approx((0.01, 0.1))
    assert found["readout.bias"] == pytest.approx((0.01, 0.0))
    assert found["encoder.last_norm.weight"] == pytest.approx((0.01, 0.0))
    assert found["encoder.layers.2.ffn.inner.weight"] == pytest.approx((0.005, 0.1))
    assert found["encoder.layers.1.ffn.inner.weight"] == pytest.approx((0.0025, 0.1))


def test_an_interrupted_run_continues_without_the_encoder(settings, encoder, tmp_path, monkeypatch):
    path = settings(training={"max_steps": 4, "checkpoint_every_steps": 1}, optimizer={"layer_decay": 0.7})
    config = read(path, encoder)
    train(config, tmp_path / "whole", quiet=True)
    original = Trainer._record_step

    def stop(self, batch, loss):
        if self.progress.step == 2:
            raise KeyboardInterrupt
        original(self, batch, loss)

    monkeypatch.setattr(Trainer, "_record_step", stop)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", quiet=True)
    monkeypatch.setattr(Trainer, "_record_step", original)
    assert (tmp_path / "cut" / LAST_CHECKPOINT).is_file()
    monkeypatch.setattr("molslice.training.run.start_from", None)
    train(config, tmp_path / "cut", resume=True, quiet=True)
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_comparison_starts_each_run_from_the_model(settings, encoder, tmp_path):
    path = settings(start={"model": str(encoder)}, optimizer=WITHOUT_MOVING)
    found = compare_attentions(path, "softmax,slice_sort", tmp_path / "out", quiet=True)
    assert {result.label for result in found.results} == {"softmax", "slice_sort"}
    source = weights(encoder)
    for label in ("softmax", "slice_sort"):
        taken = weights(tmp_path / "out" / "runs" / label / "seed5")
        name = "encoder.layers.1.ffn.inner.weight"
        torch.testing.assert_close(taken[name], source[name], atol=1e-6, rtol=0)
    again = compare_attentions(path, "softmax,slice_sort", tmp_path / "out", quiet=True)
    assert len(again.results) == 2


def test_the_command_line(settings, encoder, tmp_path, capsys):
    path = settings()
    assert main(["train", "--config", str(path), "--from", str(encoder), "--out", str(tmp_path / "run")]) == 0
    output = capsys.readouterr()
    assert "MAE" in output.out
    assert main(["train", "--resume", "--out", str(tmp_path / "run")]) == 0
    missing = str(tmp_path / "missing")
    assert main(["train", "--config", str(path), "--from", missing, "--out", str(tmp_path / "no")]) == 1
    assert f"no model '{missing}'" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([("model.dim", "32")], r"the weights of .* do not fit: model.dim is 32, not 16"),
        ([("model.head_dim", "5")], "model.head_dim is 5, not None"),
        (
            [("model.norm", "post"), ("model.ffn_dim", "8")],
            "model.ffn_dim is 8, not 16; model.norm is 'post'",
        ),
        ([("model.legacy_vocab", "true")], "model.legacy_vocab is True, not False"),
        (
            [("model.name", "gin_virtual"), ("model.num_layers", "2"), ("model.dim", "16")],
            "is a graphormer_pretr",
        ),
        ([("training.frozen_layers", "4")], "frozen_layers is 4, but the model has 3 layers"),
        ([("training.frozen_layers", "-1")], "frozen_layers is -1, expected zero or more, or all"),
        ([("training.frozen_layers", "some")], "frozen_layers is 'some', expected"),
        ([("optimizer.layer_decay", "1.5")], "layer_decay is 1.5, expected"),
        ([("start.sha", "x")], "unknown key 'start.sha'"),
    ],
)
def test_what_does_not_fit_is_refused(settings, encoder, tmp_path, overrides, message):
    with pytest.raises(MolsliceError, match=message):
        train(read(settings(), encoder, *overrides), tmp_path / "run", quiet=True)


def test_data_of_another_kind_are_refused(encoder, tmp_path):
    rows = "".join(f"a word and {n},{'odd' if n % 2 else 'even'}\n" for n in range(60))
    (tmp_path / "texts.csv").write_text(f"text,label\n{rows}")
    mapping = {
        "data": {
            "name": "text_table",
            "path": str(tmp_path / "texts.csv"),
            "cache_dir": str(tmp_path / "cache"),
        },
        "model": {"name": "sequence", "num_layers": 3, "dim": 16, "ffn_dim": 16, "num_heads": 2},
        "task": "sequence",
        "training": {"max_steps": 1},
        "trainer": {"accelerator": "cpu"},
        "start": {"model": str(encoder)},
    }
    (tmp_path / "text.yaml").write_text(yaml.safe_dump(mapping))
    with pytest.raises(MolsliceError, match=r"takes molecules, but the data .*texts.csv are ids"):
        train(load_run_config(tmp_path / "text.yaml"), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_model_of_other_data_is_named_and_not_a_setting_of_its_own(settings, tmp_path):
    config = read(settings(), SAVED_TEXT)
    with pytest.raises(MolsliceError, match=r"text takes ids, but the data .* are molecules"):
        train(config, tmp_path / "run", quiet=True)


def test_features_of_another_version_are_refused(settings, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.data.molecules.base.FEATURIZER_VERSION", 99)
    with pytest.raises(MolsliceError, match="was trained on features of version [23]; this version makes 99"):
        train(read(settings(), encoder), tmp_path / "run", quiet=True)


def test_factors_are_of_the_parameters_of_the_model(build_config):
    config = build_config()
    model = build_model(config.model, config.attention, DataSpec(1))
    task = TASKS.build("molecule", model, TargetInfo(("a",), ("",), "regression", (0.0,), (1.0,)))
    plain = build_optimizer(task, config.optimizer, fused=False)
    assert [len(group["params"]) for group in plain.param_groups] == [14, 29]
    assert "factor" not in plain.param_groups[0]
    falling = build_optimizer(task, dataclasses.replace(config.optimizer, layer_decay=0.5), fused=False)
    assert sum(len(group["params"]) for group in falling.param_groups) == 43
    factors = [group["factor"] for group in falling.param_groups]
    assert factors == sorted(factors, reverse=True)
    assert set(factors) == {1.0, 0.5, 0.25, 0.125}
