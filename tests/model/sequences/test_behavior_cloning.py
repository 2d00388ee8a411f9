"""Tests of behavior cloning: the formula, padding, parameters, and errors."""

from dataclasses import replace

import pytest
import torch

from molslice.config import config_from_mapping
from molslice.config.entries import attention_label, parse_entries
from molslice.model import AttentionChoice, build_model
from molslice.model.count import parameters_by_part
from molslice.model.sequences.behavior_cloning import BehaviorCloningSpec
from molslice.types import EpisodeBatch, MolsliceError
from tests.model.sequences.test_decision import DATA, STATISTICS, episodes, padded


def build(**changes):
    torch.manual_seed(0)
    spec = BehaviorCloningSpec(**{"num_layers": 2, "dim": 8, **changes})
    return build_model(spec, AttentionChoice(), DATA).double().eval()


@pytest.mark.parametrize("limit", [None, 0.5])
def test_the_action_is_a_function_of_the_standardized_state(limit):
    model, batch = build(action_limit=limit) if limit is None else build(), episodes()
    if limit is not None:
        spec = BehaviorCloningSpec(2, 8, action_limit=limit)
        model = build_model(spec, AttentionChoice(), DATA).double().eval()
    prediction = model(batch).prediction
    mean, std = (torch.tensor(STATISTICS[name], dtype=torch.float64) for name in ("state_mean", "state_std"))
    for b in range(3):
        for step in range(6):
            values = (batch.states[b, step] - mean) / std
            for layer in model.hidden:
                values = (layer.weight @ values + layer.bias).clamp(min=0)
            action = model.readout.weight @ values + model.readout.bias
            expected = action if limit is None else limit * action.tanh()
            torch.testing.assert_close(prediction[b, step], expected)


def test_padding_is_ignored_and_returns_history_and_time_are_not_used():
    model, batch = build(), episodes()
    alone = model(batch).prediction
    places = [[0, 2, 3, 5, 6, 7], [1, 4], [2]]
    actions = model(padded(batch, places, 8, float("nan"))).prediction
    assert actions.isfinite().all()
    for b, place in enumerate(places):
        torch.testing.assert_close(actions[b, place], alone[b, : len(place)])
    changed = EpisodeBatch(batch.states, batch.actions + 1, batch.returns_to_go * 2, batch.timesteps + 3)
    assert torch.equal(model(changed).prediction, alone)
    one = EpisodeBatch(
        *(getattr(batch, f)[:, 3:4] for f in ("states", "actions", "returns_to_go", "timesteps"))
    )
    torch.testing.assert_close(model(one).prediction[:, 0], alone[:, 3])


def test_dropout_is_for_training_alone_and_every_parameter_is_trained():
    model, batch = build(dropout=0.5).train(), episodes()
    first, second = model(batch).prediction, model(batch).prediction
    assert not torch.equal(first, second)
    first.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_parameters():
    counts = parameters_by_part(build(num_layers=3, dim=256))
    layers = (3 * 256 + 256) + 2 * (256 * 256 + 256)
    assert counts == {
        "layers": layers,
        "readout": 256 * 2 + 2,
        "total": layers + 256 * 2 + 2,
        "without embeddings": layers + 256 * 2 + 2,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 0}, "model.num_layers must be at least 1"),
        ({"dim": 0}, "model.dim must be at least 1"),
        ({"dropout": 1.0}, "model.dropout must be in"),
        ({"action_limit": 0.0}, "model.action_limit must be positive"),
    ],
)
def test_bad_options_are_named(changes, message):
    with pytest.raises(MolsliceError, match=message):
        build(**changes)


def test_actions_beyond_the_limit_are_refused():
    data = replace(DATA, statistics={**STATISTICS, "action_low": (-2.0, 0.0), "action_high": (1.0, 1.0)})
    with pytest.raises(MolsliceError, match=r"actions up to 2, beyond model\.action_limit 1;"):
        BehaviorCloningSpec(2, 8, action_limit=1.0).build(AttentionChoice(), data)
    BehaviorCloningSpec(2, 8, action_limit=2.0).build(AttentionChoice(), data)


def test_there_is_no_attention_to_compare():
    config = config_from_mapping(
        {
            "data": {"name": "d4rl", "path": "x.hdf5", "environment": "Hopper-v4"},
            "model": {"name": "behavior_cloning", "num_layers": 2, "dim": 8},
            "task": "decision",
        }
    )
    assert attention_label(config) == "behavior_cloning"
    with pytest.raises(MolsliceError, match="the model behavior_cloning has no attention to compare"):
        parse_entries("softmax,flow", config)
