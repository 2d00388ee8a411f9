"""Tests of the offline reinforcement learning configurations: published settings, building the model."""

import re
from pathlib import Path

import pytest

from molslice.cli import main
from molslice.config import load_config
from molslice.config.entries import describe_data, parse_entries
from molslice.model import build_model
from molslice.model.count import parameters_by_part
from molslice.tasks import TASKS

FOLDER = Path(__file__).parents[1] / "configs" / "rl"
CLONING = FOLDER / "hopper_medium_behavior_cloning.yaml"
FILES = sorted({*FOLDER.glob("*.yaml")} - {CLONING})
KINDS = ("medium", "medium_expert", "medium_replay")
SIZES = {"hopper": (11, 3), "halfcheetah": (17, 6), "walker2d": (17, 6)}


def test_every_task_has_its_file():
    assert [path.stem for path in FILES] == [f"{name}_{kind}" for name in sorted(SIZES) for kind in KINDS]
    paths = [load_config(path).data.options["path"] for path in FILES]
    assert paths == [f"data/d4rl/{path.stem}-v2.hdf5" for path in FILES]


def test_the_baseline_is_trained_on_the_same_windows():
    config, policy = load_config(CLONING), load_config(FOLDER / "hopper_medium.yaml")
    assert (config.data, config.task, config.training) == (policy.data, policy.task, policy.training)
    assert (config.model.name, config.model.num_layers, config.model.dim) == ("behavior_cloning", 3, 256)
    assert config.optimizer.gradient_clip is None
    parts = parameters_by_part(build_model(config.model, config.attention, describe_data(config)))
    assert parts["total"] == (11 * 256 + 256) + 2 * (256 * 256 + 256) + (256 * 3 + 3)


def test_the_published_scores_have_the_published_means():
    scores = {name: [] for name in ("Flowformer", "Decision Transformer", "behavior cloning")}
    for path in FILES:
        text = " ".join(path.read_text(encoding="utf-8").partition("\ndata:")[0].replace("#", "").split())
        assert "Published scores (Wu et al. 2022, table of D4RL scores" in text
        for name, values in scores.items():
            values.append(
                float(re.search(rf"{name} ([\d.]+)[,. ]", text.partition("Published")[2])[1].rstrip("."))
            )
    means = {name: round(sum(values) / 9, 1) for name, values in scores.items()}
    assert means == {"Flowformer": 73.5, "Decision Transformer": 72.2, "behavior cloning": 51.9}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_settings_are_the_published_ones(path):
    config = load_config(path)
    name = path.stem.partition("_")[0]
    data = describe_data(config)  # without the data
    assert (data.channels, data.num_outputs) == SIZES[name]
    assert (data.max_tokens, data.timesteps) == (3 * 20, 1000)
    model, optimizer, training = config.model, config.optimizer, config.training
    assert (model.num_layers, model.dim, model.ffn_dim, model.num_heads) == (3, 256, 1024, 4)
    assert (model.dropout, model.attention_dropout) == (0.1, 0.1)
    assert (model.return_scale, model.action_limit) == (1000.0, 1.0)
    assert (optimizer.lr, optimizer.weight_decay, optimizer.warmup_steps) == (1e-3, 1e-4, 10_000)
    assert (optimizer.schedule, optimizer.gradient_clip, optimizer.ema_decay) == ("constant", 0.25, None)
    assert (training.max_steps, training.batch_size) == (100_000, 64)
    assert training.token_budget >= training.batch_size * data.max_tokens
    assert config.mixes_lengths  # otherwise a step of a batch of short windows has more weight
    assert config.task in TASKS.names()
    assert name in config.data.options["path"]
    assert config.data.options["environment"].lower().startswith(name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_header_says_what_was_not_measured(path):
    header = path.read_text(encoding="utf-8").partition("\ndata:")[0]
    assert "Not measured here" in header
    assert "2106.01345" in header
    assert f"{path.stem}-v2.hdf5" in header
    assert all(line.startswith("#") for line in header.splitlines())


def test_the_model_has_the_expected_number_of_parameters():
    config = load_config(FOLDER / "hopper_medium.yaml")
    parts = parameters_by_part(build_model(config.model, config.attention, describe_data(config)))
    layer = 4 * (256 * 256 + 256) + (256 * 1024 + 1024) + (1024 * 256 + 256) + 2 * 2 * 256
    inputs = (1 + 11 + 3) * 256 + 3 * 256 + 2 * 256
    expected = 3 * layer + 2 * 256 + inputs + 1000 * 256 + 256 * 3 + 3
    assert parts["total"] == expected
    assert parts["without embeddings"] == expected - 1000 * 256


def test_attentions_are_exchanged_and_counted_without_data(capsys):
    path = str(FOLDER / "hopper_medium.yaml")
    assert main(["params", "--config", path, "--attention.name", "flow"]) == 0
    assert "decision, flow" in capsys.readouterr().out
    entries = parse_entries("softmax,flow,linear", load_config(path))
    assert [entry.config.attention.name for entry in entries] == ["softmax", "flow", "linear"]
