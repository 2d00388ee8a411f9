"""Tests of the policy: inputs, units, padding, and every causal attention."""

from dataclasses import replace

import pytest
import torch

from molslice.attention import ATTENTIONS
from molslice.model import AttentionChoice, build_model
from molslice.model.count import parameters_by_part
from molslice.model.sequences.decision import DecisionModel, DecisionSpec
from molslice.model.sequences.sequence import SequenceSpec
from molslice.types import DataSpec, EpisodeBatch, MolsliceError

SIZES = {"dim": 8, "num_layers": 2, "num_heads": 2, "ffn_dim": 16, "dropout": 0.0, "attention_dropout": 0.0}
STATISTICS = {"state_mean": (1.0, -2.0, 0.5), "state_std": (2.0, 0.5, 1.0)}
DATA = DataSpec(2, "steps", channels=3, max_tokens=18, timesteps=30, statistics=STATISTICS)
CAUSAL = [name for name in ATTENTIONS.names() if ATTENTIONS.find(name).traits.causal]


def fresh(name="softmax", data=DATA, **changes):
    spec = DecisionSpec(**{**SIZES, "return_scale": 10.0, **changes})
    return build_model(spec, AttentionChoice(name), data)


def build(name="softmax", data=DATA, **changes):
    torch.manual_seed(0)
    model = fresh(name, data, **changes).double().eval()
    with torch.no_grad():  # far from the start, so that a difference shows
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


def episodes(count=3, steps=6, first=0):
    draw = torch.Generator().manual_seed(1)
    return EpisodeBatch(
        states=torch.randn(count, steps, 3, generator=draw, dtype=torch.float64),
        actions=torch.rand(count, steps, 2, generator=draw, dtype=torch.float64) * 2 - 1,
        returns_to_go=torch.randn(count, steps, generator=draw, dtype=torch.float64) * 10,
        timesteps=torch.arange(first, first + steps).repeat(count, 1),
    )


def padded(batch, places, length, garbage):
    """Return the steps of each row at `places`, with `garbage` elsewhere."""
    mask = torch.zeros(len(batch), length, dtype=torch.bool)
    parts = {}
    for name in ("states", "actions", "returns_to_go", "timesteps"):
        values = getattr(batch, name)
        filling = -7 if name == "timesteps" else garbage
        parts[name] = torch.full((len(batch), length, *values.shape[2:]), filling).to(values)
        for b, place in enumerate(places):
            parts[name][b, place] = values[b, : len(place)]
            mask[b, place] = True
    return EpisodeBatch(**parts, step_mask=mask)


@pytest.mark.parametrize("name", CAUSAL)
def test_every_causal_attention_is_blind_to_padding_in_it(name):
    model, batch = build(name), episodes(steps=4)
    lengths = [4, 2, 1]
    alone = [
        model(EpisodeBatch(*(getattr(batch, f)[b : b + 1, :n] for f in FIELDS))).prediction[0]
        for b, n in enumerate(lengths)
    ]
    behind = [list(range(n)) for n in lengths]
    before = [list(range(6 - n, 6)) for n in lengths]
    between = [[0, 2, 3, 5], [1, 4], [2]]
    for places, garbage in ((behind, 9.0), (before, float("nan")), (between, float("nan"))):
        found = model(padded(batch, places, 6, garbage)).prediction
        for b, place in enumerate(places):
            torch.testing.assert_close(found[b, place], alone[b], rtol=1e-7, atol=1e-7)


FIELDS = ("states", "actions", "returns_to_go", "timesteps")


@pytest.mark.parametrize("name", CAUSAL)
def test_an_action_is_chosen_from_what_came_before_it(name):
    model, batch = build(name), episodes()
    expected = model(batch).prediction
    for field, first_changed in (("states", 3), ("returns_to_go", 3), ("actions", 4)):
        values = getattr(batch, field).clone()
        values[:, 3] += 20.0
        found = model(replace(batch, **{field: values})).prediction
        torch.testing.assert_close(
            found[:, :first_changed], expected[:, :first_changed], rtol=1e-9, atol=1e-9
        )
        assert (found[:, first_changed:] - expected[:, first_changed:]).abs().max() > 1e-4, field


@pytest.mark.parametrize("name", CAUSAL)
def test_every_causal_attention_trains_in_it(name):
    torch.manual_seed(0)
    model = fresh(name)
    batch = episodes(4)
    output = model(replace(batch, **{f: getattr(batch, f).float() for f in FIELDS[:3]}))
    assert output.prediction.shape == (4, 6, 2)
    loss = output.prediction.square().sum() + (0 if output.penalty is None else output.penalty)
    loss.backward()
    embedding = model.embedding
    for part in (
        embedding.return_to_go,
        embedding.state,
        embedding.action,
        embedding.positions,
        model.readout,
    ):
        gradient = part.weight.grad
        assert torch.isfinite(gradient).all()
        assert gradient.any()


def test_the_tokens_are_return_state_and_action_in_the_units_of_the_model():
    model, batch = build(), episodes(2, 3, first=5)
    tokens = model.embedding(batch)
    assert tokens.shape == (2, 9, 8)
    mean, std = (torch.tensor(STATISTICS[name], dtype=torch.float64) for name in ("state_mean", "state_std"))
    parts = model.embedding
    for b in range(2):
        for step in range(3):
            place = parts.positions.weight[5 + step]
            expected = [
                parts.return_to_go(batch.returns_to_go[b, step, None] / 10.0),
                parts.state((batch.states[b, step] - mean) / std),
                parts.action(batch.actions[b, step]),
            ]
            for kind, token in enumerate(expected):
                torch.testing.assert_close(tokens[b, 3 * step + kind], parts.norm(token + place))


def test_the_action_is_read_out_at_the_state():
    model, batch = build(action_limit=0.4), episodes(2, 3)
    encoded = model.encoder(model.embedding(batch)).tokens
    expected = 0.4 * torch.tanh(model.readout(torch.stack([encoded[:, 1], encoded[:, 4], encoded[:, 7]], 1)))
    torch.testing.assert_close(model(batch).prediction, expected)
    without = build(action_limit=None)
    torch.testing.assert_close(0.4 * torch.tanh(without(batch).prediction), expected)


def test_the_statistics_travel_in_the_description_and_not_in_the_weights():
    model = build()
    assert not [name for name in model.state_dict() if "mean" in name or "std" in name]
    again = fresh(data=DataSpec(**{**VALUES, "statistics": {k: list(v) for k, v in STATISTICS.items()}}))
    again = again.double().eval()
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again(episodes()).prediction, model(episodes()).prediction)
    plain = build(data=replace(DATA, statistics={}))
    assert (plain(episodes()).prediction - model(episodes()).prediction).abs().max() > 1e-3


VALUES = {"num_outputs": 2, "tokens": "steps", "channels": 3, "max_tokens": 18, "timesteps": 30}


def test_a_mask_of_true_equals_no_mask():
    for name in ("softmax", "flow"):
        model, batch = build(name), episodes()
        mask = torch.ones(3, 6, dtype=torch.bool)
        torch.testing.assert_close(model(replace(batch, step_mask=mask)).prediction, model(batch).prediction)


def test_a_window_without_steps_is_finite():
    batch = replace(episodes(), step_mask=torch.tensor([[True] * 6, [False] * 6, [True] * 6]))
    assert torch.isfinite(build()(batch).prediction).all()


def test_parameters():
    parts = parameters_by_part(fresh())
    layer = 4 * (8 * 8 + 8) + (8 * 16 + 16) + (16 * 8 + 8) + 2 * 2 * 8
    assert parts["embedding"] == (1 + 1) * 8 + (3 + 1) * 8 + (2 + 1) * 8 + 30 * 8 + 2 * 8
    assert parts["layers"] == 2 * layer + 2 * 8
    assert parts["readout"] == 8 * 2 + 2
    assert parts["total"] - parts["without embeddings"] == 30 * 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 0}, "num_layers"),
        ({"return_scale": 0.0}, "return_scale"),
        ({"return_scale": float("nan")}, "return_scale"),
        ({"action_limit": -1.0}, "action_limit"),
        ({"dropout": 1.0}, "dropout"),
        ({"num_heads": 3}, "multiple"),
    ],
)
def test_bad_sizes_are_refused_by_name(changes, message):
    with pytest.raises(MolsliceError, match=message):
        fresh(**changes)


def test_actions_that_the_model_cannot_return_are_refused():
    for low, high, fits in ((-1.0, 1.0, True), (-1.000001, 0.5, True), (-2.0, 0.5, False), (0.0, 1.1, False)):
        data = replace(DATA, statistics={**STATISTICS, "action_low": (low, 0.0), "action_high": (high, 0.0)})
        assert isinstance(fresh(data=data, action_limit=None), DecisionModel)
        if fits:
            fresh(data=data)
        else:
            with pytest.raises(MolsliceError, match=r"beyond model.action_limit 1;"):
                fresh(data=data)


def test_a_context_shorter_than_a_step_is_refused():
    with pytest.raises(MolsliceError, match="a step has 3 tokens, but max_tokens is 2"):
        fresh(data=replace(DATA, max_tokens=2))


def test_more_steps_than_the_context_are_refused():
    with pytest.raises(MolsliceError, match="a context of 6 steps, got 7"):
        build()(episodes(steps=7))


def test_an_attention_without_a_causal_form_is_refused():
    with pytest.raises(MolsliceError, match="no causal form"):
        fresh("slice_sort")


def test_models_and_data_belong_together():
    with pytest.raises(MolsliceError, match="'decision' does not take these data; choices: hier"):
        fresh(data=DataSpec(3, "values", channels=3, max_tokens=9))
    with pytest.raises(MolsliceError, match="'sequence' does not take these data; choices: behavior_"):
        build_model(SequenceSpec(1, 8, 8, 2), AttentionChoice(), DATA)
    with pytest.raises(MolsliceError, match="timesteps"):
        replace(DATA, timesteps=None)
