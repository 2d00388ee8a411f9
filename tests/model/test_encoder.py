"""Tests of dropout, stochastic depth, penalties, carry and activation checkpointing."""

import pytest
import torch
from torch import nn

from molslice.attention import ATTENTIONS, Attention
from molslice.model import MODELS, AttentionChoice, build_model
from molslice.model.encoder import Encoder, EncoderLayer, FeedForward, drop_path_rates
from molslice.types import DataSpec, MolsliceError, TokenContext

NEARLY_ALL = 1.0 - 1e-9  # a rate of dropout that leaves nothing of a few hundred numbers


def build(name="softmax", *, mode=None, num_layers=3, **options):
    torch.manual_seed(0)
    choice = AttentionChoice(name, mode)
    return Encoder(choice, dim=8, num_layers=num_layers, num_heads=2, ffn_dim=16, **options)


def random_tokens(rows=2):
    return torch.randn(rows, 5, 8, generator=torch.Generator().manual_seed(1))


def observed(encoder, tokens, **options):
    """Return the output of the encoder, the carry of each layer, and the output of each layer."""
    given, returned = [], []
    for layer in encoder.layers:
        layer.register_forward_pre_hook(lambda _, args: given.append(args[1].carry))
        layer.register_forward_hook(lambda _, args, output: returned.append(output))
    return encoder(tokens, **options), given, returned


def test_tokens_are_dropped_before_the_first_layer():
    encoder = build(num_layers=0, dropout=NEARLY_ALL, last_norm=False)
    assert not encoder(random_tokens()).tokens.any()
    assert torch.equal(encoder.eval()(random_tokens()).tokens, random_tokens())


@pytest.mark.parametrize("part", ["attention", "feed-forward"])
def test_both_parts_of_a_layer_are_dropped(part):
    layer = build(num_layers=1, dropout=NEARLY_ALL).layers[0]
    # with the inner dropout off, the feed-forward part is large until the layer drops it
    layer.ffn.dropout.p = 0.0
    silence(layer, but=part)
    tokens = random_tokens()
    assert torch.equal(layer(tokens, context_of(tokens)).tokens, tokens)
    assert not torch.equal(layer.eval()(tokens, context_of(tokens)).tokens, tokens)


def test_the_inner_width_of_the_feed_forward_part_is_dropped():
    ffn = FeedForward(8, 16, NEARLY_ALL)
    tokens = random_tokens()
    assert torch.equal(ffn(tokens), ffn.outer.bias.expand_as(tokens))
    assert not torch.equal(ffn.eval()(tokens), ffn.outer.bias.expand_as(tokens))


def test_each_rate_of_dropout_goes_to_its_own_part():
    layer = build(dropout=0.25, attention_dropout=0.5).layers[-1]
    assert (layer.dropout.p, layer.ffn.dropout.p, layer.attention.spec.dropout) == (0.25, 0.25, 0.5)


@pytest.mark.parametrize("part", ["attention", "feed-forward"])
def test_stochastic_depth_drops_whole_rows_and_scales_the_others(part):
    layer = build(num_layers=1, drop_path=[0.75]).layers[0]
    silence(layer, but=part)
    tokens = random_tokens(400)
    context = context_of(tokens)
    change = layer(tokens, context).tokens - tokens
    expected = layer.eval()(tokens, context).tokens - tokens
    dropped = ~change.flatten(1).any(1)
    assert 270 < int(dropped.sum()) < 330
    torch.testing.assert_close(change[~dropped], expected[~dropped] / 0.25, rtol=1e-4, atol=1e-5)


def test_stochastic_depth_grows_evenly_with_the_layers():
    assert drop_path_rates(0.5, 3) == [0.0, 0.25, 0.5]
    assert drop_path_rates(0.5, 1) == [0.0]
    assert [layer.drop_path for layer in build(drop_path=[0.0, 0.25, 0.5]).layers] == [0.0, 0.25, 0.5]


def test_the_penalties_of_all_layers_are_summed():
    output, _, returned = observed(build("singular"), random_tokens())
    penalties = [layer.penalty for layer in returned]
    assert len(penalties) == 3
    assert min(penalties) > 0
    torch.testing.assert_close(output.penalty, sum(penalties))


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("name", ["singular", "realformer"])
def test_each_layer_takes_the_carry_of_the_layer_below(name, is_checkpointed):
    encoder = build(name, activation_checkpointing=is_checkpointed)
    _, given, returned = observed(encoder, random_tokens())
    assert given[0] is None
    for carry, below in zip(given[1:], returned[:-1], strict=True):
        assert carry is not None
        assert torch.equal(carry, below.carry)


def test_the_shapes_are_checked_once_for_all_layers(monkeypatch):
    encoder, checked = build(), []
    check = Attention.check_input
    monkeypatch.setattr(Attention, "check_input", lambda *given: checked.append(given) or check(*given))
    encoder(random_tokens())
    assert len(checked) == 1
    with pytest.raises(MolsliceError, match="softmax was built for 4 tokens, got 5"):
        build(max_tokens=4)(random_tokens())


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_checkpointing_computes_each_layer_again_in_the_backward_pass_only(is_checkpointed):
    encoder = build(activation_checkpointing=is_checkpointed)
    calls = []
    for number, layer in enumerate(encoder.layers):
        layer.attention.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    encoder(random_tokens()).tokens.sum().backward()
    assert calls == [0, 1, 2, *([2, 1, 0] if is_checkpointed else [])]
    calls.clear()
    with torch.no_grad():
        encoder(random_tokens())
    assert calls == [0, 1, 2]


@pytest.mark.parametrize("name", ["softmax", "slice_sort", "flow", "singular"])
def test_the_configured_way_of_the_pair_bias_reaches_every_layer(name):
    traits = ATTENTIONS.find(name).traits
    for mode in (None, *traits.pair_bias):
        encoder = build(name, mode=mode, uses_pair_bias=True)
        expected = mode or traits.preferred_pair_bias
        assert {
            encoder.pair_bias_mode,
            *(layer.attention.spec.pair_bias_mode for layer in encoder.layers),
        } == {expected}
    assert build(name).pair_bias_mode == "none"


MOLECULES, IDS = DataSpec(1), DataSpec(9, "ids", vocabulary_size=9, max_tokens=16)
PATCHES = DataSpec(3, "values", channels=4, max_tokens=16, grid=(4, 4))
STEPS = DataSpec(2, "steps", channels=3, max_tokens=6, timesteps=9)


@pytest.mark.parametrize(
    ("name", "data"),
    [("graphormer", MOLECULES), ("sequence", IDS), ("language", IDS), ("decision", STEPS)]
    + [("hierarchical", PATCHES)],
)
def test_what_a_spec_says_reaches_its_encoder(name, data):
    sizes = {"num_layers": 2, "dim": 8, "ffn_dim": 8} if name != "hierarchical" else {}
    sizes |= {"dims": (8,), "depths": (2,)} if name == "hierarchical" else {}
    options = {"dropout": 0.25, "attention_dropout": 0.5, "activation_checkpointing": True}
    options |= {"drop_path": 0.3} if name in ("sequence", "hierarchical") else {}
    spec = MODELS.find(name)(num_heads=2, **sizes, **options)
    model = build_model(spec, AttentionChoice(), data)
    (encoder,) = (module for module in model.modules() if isinstance(module, Encoder))
    assert encoder.activation_checkpointing
    assert [layer.drop_path for layer in encoder.layers] == [0.0, options.get("drop_path", 0.0)]
    for layer in encoder.layers:
        assert (encoder.dropout.p, layer.dropout.p, layer.attention.spec.dropout) == (0.25, 0.25, 0.5)


def context_of(tokens):
    return TokenContext(torch.ones(tokens.shape[:2], dtype=torch.bool))


def silence(layer: EncoderLayer, but: str):
    """Set the weights of one sublayer so that it adds zero."""
    silent = layer.ffn.outer if but == "attention" else layer.attention.output
    nn.init.zeros_(silent.weight)
    nn.init.zeros_(silent.bias)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "post"},
        {"pair_state": True},
        {"activation_checkpointing": True},
        {"ffn_scale": 0.1, "last_norm": False},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
@pytest.mark.parametrize("name", ["softmax", "key_sort", "slice_sort", "flow"])
def test_first_rows_are_the_first_rows_of_the_whole_result(name, options):
    encoder = build(name, uses_pair_bias=True, **options).double()
    tokens = random_tokens().double().requires_grad_()
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[1, 3:] = False
    bias = torch.randn(2, 2, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    whole, first = (
        encoder(tokens, mask, bias).tokens[:, :1],
        encoder(tokens, mask, bias, num_queries=1).tokens,
    )
    assert first.shape == (2, 1, 8)
    torch.testing.assert_close(first, whole, rtol=0, atol=1e-12)
    leaves = [tokens, *encoder.parameters()]
    expected, actual = (
        torch.autograd.grad(result.sin().sum(), leaves, allow_unused=True, materialize_grads=True)
        for result in (whole, first)
    )
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", ["mix", "logits"])
def test_a_pair_bias_is_refused_without_one(mode):
    sizes = {"dim": 8, "num_layers": 1, "num_heads": 2, "ffn_dim": 8}
    with pytest.raises(MolsliceError, match=f"attention.pair_bias is {mode}, but only the model graphormer"):
        Encoder(AttentionChoice("softmax", pair_bias=mode), **sizes)
    Encoder(AttentionChoice("softmax", pair_bias="none"), **sizes)


@pytest.mark.parametrize("num_queries", [None, 1])
@pytest.mark.parametrize("name", ["softmax", "slice_sort", "flow"])
def test_the_order_of_steps_on_kernels_equals_the_layers(name, num_queries, monkeypatch):
    """The steps that a GPU takes, with torch's operations in place of the kernels."""
    encoder = build(name, uses_pair_bias=True).double()
    for norm in encoder.modules():
        if isinstance(norm, nn.LayerNorm):  # so that each norm is another function
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)
    tokens = random_tokens().double().requires_grad_()
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    bias = torch.randn(2, 2, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    real = mask[:, :num_queries]
    leaves, gradients = [tokens, *encoder.parameters()], []
    for by_kernels in (False, True):
        monkeypatch.setattr(Encoder, "_uses_kernels", lambda *_, by_kernels=by_kernels: by_kernels)
        encoded = encoder(tokens, mask, bias, num_queries=num_queries).tokens[real]
        gradients.append([encoded, *torch.autograd.grad(encoded.sin().sum(), leaves, materialize_grads=True)])
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)
