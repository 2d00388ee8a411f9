from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from molslice.attention import ATTENTIONS, Attention
from molslice.data.molecules.collate import collate
from molslice.inference.maps import AttentionCall, attention_maps, influence_map, map_of, record_calls
from molslice.model import AttentionChoice
from molslice.model.encoder import Encoder
from molslice.testing import Inputs
from molslice.types import AttentionOutput, MolsliceError
from tests.attention.subjects import all_subjects
from tests.data.molecules.builders import memory_store
from tests.inference.models import untrained

LENGTHS = (5, 1, 0, 4)
SUBJECTS = [subject for subject in all_subjects() if not subject.spec.cross]
OWN = [
    subject
    for subject in SUBJECTS
    if subject.label.split("-")[0] in ("softmax", "slice_sort", "flow", "singular")
]
ONE_EACH = {subject.label.split("-")[0]: subject for subject in reversed(SUBJECTS)}


def call_of(subject, garbage=float("nan")) -> Any:
    """Return an attention applied to padded sequences, and the input of its output projection."""
    attention = subject.attention()
    tokens, context, _ = Inputs.draw(*LENGTHS, spec=subject.spec).batch(
        subject.spec, length=7, garbage=garbage, scattered=True
    )
    if subject.label.startswith("singular") and "logits" in subject.label:
        rank = attention.rank  # scores handed on by the layer below join those of this one
        context = replace(context, carry=torch.randn(len(LENGTHS), 2, rank, rank, dtype=torch.float64))
    return AttentionCall(attention, tokens, context, attention(tokens, context))


WIDE = [
    replace(subject, label=f"{subject.label}-wide", spec=replace(subject.spec, channels_per_head=5))
    for subject in (ONE_EACH[name] for name in ("softmax", "slice_sort", "flow", "singular", "linear"))
]


@pytest.mark.parametrize("subject", [*OWN, *WIDE], ids=lambda subject: subject.label)
def test_an_exact_map_times_the_values_is_the_output(subject):
    call = call_of(subject)
    found = map_of(call)
    attention, mask = call.attention, call.context.token_mask
    assert found.kind == "exact"
    assert not found.weights.masked_select(~(mask[:, None, :, None] & mask[:, None, None])).any()
    values = attention.split_heads(attention.value(call.tokens.masked_fill(~mask[..., None], 0.0)))
    if "channels" in found.parts:
        assert torch.allclose(found.parts["channels"].mean(2), found.weights)
        heads = torch.einsum("bhcij,bhjc->bhic", found.parts["channels"], values)
    else:
        heads = found.weights @ values
    output = attention.output(attention.merge_heads(heads)).masked_fill(~mask[..., None], 0.0)
    assert torch.allclose(output, call.output.tokens, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_every_attention_has_a_map_and_an_influence(name):
    call = call_of(ONE_EACH[name], garbage=0.0)
    found, influence = map_of(call), map_of(call, kind="influence")
    mask = call.context.token_mask
    pairs = mask[:, None, :, None] & mask[:, None, None]
    assert influence.weights.shape == (len(mask), 1, 7, 7)
    for weights in (found.weights, influence.weights):
        assert weights.isfinite().all()
        assert not weights.masked_select(~pairs).any()
    assert found.name == name


@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_some_rows_are_those_of_the_whole_map(name):
    call, rows = call_of(ONE_EACH[name], garbage=0.0), torch.tensor([0, 3, 6])
    assert call.tokens.shape[2] <= 16  # the influence of some rows is an estimate in wider models
    for kind in ("exact", "influence"):
        whole, some = map_of(call, kind=kind), map_of(call, kind=kind, rows=rows)
        assert some.kind == whole.kind
        assert some.rows is rows
        assert torch.allclose(some.weights, whole.weights[:, :, rows], rtol=1e-9, atol=1e-12)


def test_the_influence_of_some_rows_is_an_estimate_without_bias(monkeypatch):
    """With many random signs it is close to the whole map; its square is right on average."""
    call, rows = call_of(ONE_EACH["softmax"], garbage=0.0), torch.tensor([0, 3])
    monkeypatch.setattr("molslice.inference.maps.PROBES", 7)
    whole = map_of(call, kind="influence").weights[:, :, rows]
    few = map_of(call, kind="influence", rows=rows).weights
    assert not torch.allclose(few, whole)
    assert torch.allclose(few, whole, rtol=1.0)
    assert few.square().sum() == pytest.approx(float(whole.square().sum()), rel=0.3)


@pytest.mark.parametrize("name", ["softmax", "slice_sort", "singular"])
def test_influence_is_the_norm_of_the_jacobian(name):
    call = call_of(ONE_EACH[name], garbage=0.0)
    b, length, dim = 0, 7, call.tokens.shape[2]

    def one(tokens):
        batch = call.tokens.index_put((torch.tensor([b]),), tokens[None])
        return call.attention(batch, call.context).tokens[b]

    jacobian = torch.autograd.functional.jacobian(one, call.tokens[b])
    assert jacobian.shape == (length, dim, length, dim)
    expected = jacobian.square().sum((1, 3)).sqrt()
    found = influence_map(call.attention, call.tokens, call.context)[b, 0]
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("placement", ["index", "aligned"])
@pytest.mark.parametrize("form", ["sort_of_mix", "mix_plus_sort"])
@pytest.mark.parametrize("bias", ["none", "mix"])
def test_the_map_of_a_sort_is_a_permutation(placement, form, bias):
    label = f"slice_sort-ascending-{form}-{placement}-{bias}"
    (subject,) = (s for s in SUBJECTS if s.label == label)
    call = call_of(subject)
    found = map_of(call)
    permutation = found.parts["permutation"]
    mask = call.context.token_mask
    real = mask[:, None, None].expand(permutation.shape[:-1]).double()
    assert torch.allclose(permutation.sum(-1), real)  # doubly stochastic over the real tokens
    assert torch.allclose(permutation.sum(-2), real)
    assert set(permutation.unique().tolist()) == {0.0, 1.0}
    if placement == "index" and form == "sort_of_mix" and bias == "none":
        values = call.attention.split_heads(call.attention.value(call.tokens.nan_to_num()))
        ascending = torch.einsum("bhcij,bhjc->bhic", permutation, values)[0, :, mask[0]]
        assert (ascending.diff(dim=1) >= 0).all()
    # Every channel sends each place to one token: shares of one place sum to one, places to their mean.
    shares, places = found.by_token.values()
    assert torch.allclose(shares.sum(1), mask[:, 0].double())
    assert torch.allclose(places.sum(1), torch.tensor([2.5, 0.0, 0.0, 2.0], dtype=torch.float64))


def test_an_attention_says_between_which_maps_it_is_linear():
    call = call_of(ONE_EACH["softmax"], garbage=0.0)
    attention, expected = call.attention, map_of(call).weights
    value, output = attention.value, attention.output
    attention.value_path = lambda: (value, output)
    attention.value, attention.exact_map = torch.nn.Sequential(value), partial(Attention.exact_map, attention)
    assert torch.allclose(map_of(call).weights, expected)


def test_parts_of_flow_and_singular():
    flow = map_of(call_of(ONE_EACH["flow"]))
    mask = flow.token_mask
    competition = flow.parts["competition"]
    assert torch.allclose(competition.sum(-1), mask.sum(-1, dtype=torch.float64)[:, None].expand(-1, 2))
    assert ((flow.parts["allocation"] > 0) & (flow.parts["allocation"] < 1)).all()
    singular = map_of(call_of(ONE_EACH["singular"]))
    assert torch.allclose(singular.parts["unfolding"].sum(-1), mask.double())
    assert torch.allclose(singular.weights.sum(-1), mask[:, None].double().expand(-1, 2, -1))


@pytest.mark.parametrize("broken", ["squared", "twice", "other name", "unused"])
def test_what_is_not_linear_in_its_values_has_no_exact_map(broken):
    call = call_of(ONE_EACH["softmax"], garbage=0.0)
    attention = call.attention
    assert Attention.exact_map(attention, call.tokens, call.context) is not None
    value, output = attention.value, attention.output
    if broken == "squared":
        attention.mix = lambda x, context: AttentionOutput(output(value(x).square()))
    elif broken == "twice":
        attention.mix = lambda x, context: AttentionOutput(output(value(value(x))))
    elif broken == "other name":
        attention.value = torch.nn.Sequential(attention.value)
    else:
        attention.mix = lambda x, context: AttentionOutput(output(x))
    assert Attention.exact_map(attention, call.tokens, call.context) is None


def test_the_maps_of_a_model_change_nothing_in_it(tmp_path):
    predictor = untrained(tmp_path, attention={"name": "softmax"})
    model = predictor.model.train()
    batch = collate(memory_store(), [0, 1, 4])
    found = attention_maps(model, batch)
    assert [m.layer for m in found] == [0, 1]
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert found[0].weights.shape == (3, 4, 10, 10)
    assert torch.allclose(found[0].weights.sum(-1), found[0].token_mask[:, None].float().expand(-1, 4, -1))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_calls_come_in_the_order_of_the_layers():
    encoder = Encoder(AttentionChoice("singular"), dim=8, num_layers=3, num_heads=2, ffn_dim=8)
    tokens, mask = torch.randn(2, 4, 8), torch.ones(2, 4, dtype=torch.bool)
    calls = record_calls(encoder, tokens, mask)
    assert [call.attention.spec.layer for call in calls] == [0, 1, 2]
    assert calls[0].context.carry is None
    below, handed_on = calls[0].output.carry, calls[1].context.carry
    assert below is not None
    assert handed_on is not None
    assert torch.equal(handed_on, below)


def test_a_model_without_attention_is_refused():
    with pytest.raises(MolsliceError, match="Linear has no attention"):
        record_calls(torch.nn.Linear(2, 2), torch.randn(2))


def test_cross_attention_is_refused():
    (subject,) = (s for s in all_subjects() if s.label == "softmax-none-cross")
    attention = subject.attention()
    tokens, context, _ = Inputs.draw(3, spec=subject.spec).batch(subject.spec)
    with pytest.raises(MolsliceError, match="separate memory"):
        map_of(AttentionCall(attention, tokens, context, attention(tokens, context)))
