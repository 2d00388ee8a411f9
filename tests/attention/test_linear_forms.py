"""Tests of `flow` and `singular` beside the contract tests."""

from dataclasses import replace

import pytest
import torch

from molslice.attention import build_attention
from molslice.types import AttentionSpec, MolsliceError, TokenContext
from tests.attention.references.flow import reference_sequence

SPEC = AttentionSpec(8, 2)


def build(name, spec=SPEC, **options):
    torch.manual_seed(0)
    return build_attention(name, spec, options).double().eval()


def everything(tokens):
    return TokenContext(torch.ones(tokens.shape[:2], dtype=torch.bool))


@pytest.mark.parametrize("length", [130, 300])
def test_causal_flow_in_linear_memory_equals_the_triangle_of_capacities(length):
    spec = replace(SPEC, causal=True)
    tokens = torch.randn(2, length, 8, dtype=torch.float64)
    linear = build("flow", spec)(tokens, everything(tokens)).tokens
    zero = torch.zeros(2, 2, length, length, dtype=torch.float64)
    context = replace(everything(tokens), pair_bias=zero)
    triangle = build("flow", replace(spec, pair_bias_mode="logits"))(tokens, context).tokens
    torch.testing.assert_close(linear, triangle, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "bias"),
    [({}, None), ({"causal": True}, None), ({"pair_bias_mode": "logits"}, 0.0)],
    ids=["full", "causal", "capacities"],
)
def test_sums_of_flow_beyond_the_range_of_half_precision(changes, bias):
    """The sums over 200 tokens with 1024 channels near one are three times the largest float16."""
    spec, shape = AttentionSpec(1024, 1, **changes), (1, 1, 200, 200)
    attention = build("flow", spec)
    with torch.no_grad():
        for part in (attention.query, attention.key):
            part.weight.zero_()
            part.bias.fill_(5.0)
    tokens = torch.randn(1, 200, 1024)
    context = replace(everything(tokens), pair_bias=None if bias is None else torch.full(shape, bias))
    expected = attention.float()(tokens, context).tokens
    found = attention.half()(tokens.half(), context).tokens
    torch.testing.assert_close(found.float(), expected, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("length", [10, 1000])
def test_flow_does_not_shrink_with_the_length(length):
    tokens = torch.randn(1, 10, 8, dtype=torch.float64).repeat(1, length // 10, 1)
    output = build("flow")(tokens, everything(tokens)).tokens
    # The same ten tokens over and over flow as the ten do, but for the allocation, sigmoid of about 1.
    expected = build("flow")(tokens[:, :10], everything(tokens[:, :10])).tokens
    torch.testing.assert_close(output[:, :10], expected, rtol=1e-4, atol=1e-4)


def test_clamp_bounds_the_competition():
    tokens = 20 * torch.randn(1, 30, 8, dtype=torch.float64)
    free, tight = build("flow"), build("flow", clamp=1e-6)
    tight.load_state_dict(free.state_dict())
    mask = torch.ones(1, 1, 30, 1, dtype=torch.bool)
    query, key = (tight.split_heads(f(tokens)).sigmoid() for f in (tight.query, tight.key))
    even = tight._flow(query, key, mask, mask).competition
    torch.testing.assert_close(even, torch.ones_like(even), rtol=1e-5, atol=1e-5)
    assert free._flow(query, key, mask, mask).competition.std() > 0.1


@pytest.mark.parametrize("changes", [{}, {"causal": True}, {"cross": True}], ids=["full", "causal", "cross"])
def test_flow_without_competition_and_allocation_is_linear_attention(changes):
    """The eps of the incoming flow, 1e-6, is all that differs."""
    spec, tokens = replace(SPEC, **changes), torch.randn(1, 9, 8, dtype=torch.float64)
    context = everything(tokens)
    if "cross" in changes:
        memory = torch.randn(1, 5, 8, dtype=torch.float64)
        context = replace(context, memory=memory, memory_mask=torch.ones(1, 5, dtype=torch.bool))
    linear = build("linear", spec)
    flow = build("flow", spec, phi="elu", competition=None, allocation=None)
    flow.load_state_dict(linear.state_dict())
    torch.testing.assert_close(
        flow(tokens, context).tokens, linear(tokens, context).tokens, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("allocation", ["sigmoid", "relu"])
@pytest.mark.parametrize("competition", ["softmax", "sigmoid", "relu", None])
def test_cross_flow_does_not_depend_on_how_often_a_sink_is_there(competition, allocation):
    """Each sink receives the same share of what the sources send, however many there are."""
    attention = build("flow", replace(SPEC, cross=True), competition=competition, allocation=allocation)
    memory = torch.randn(1, 5, 8, dtype=torch.float64)
    tokens, mask = torch.randn(1, 1, 8, dtype=torch.float64), torch.ones(1, 5, dtype=torch.bool)
    once, often = (
        attention(x, replace(everything(x), memory=memory, memory_mask=mask)).tokens[0, 0]
        for x in (tokens, tokens.repeat(1, 40, 1))
    )
    close = (once - often).abs().max() < 1e-4
    assert close == (competition != "softmax")  # the paper's softmax of O' sharpens with the number of sinks


def test_flow_of_relu_in_half_precision_has_channels_without_capacity():
    """phi(Q) / I is a million where no source has capacity for a sink, beyond the range of float16."""
    attention = build("flow", phi="relu")
    with torch.no_grad():
        for part in (attention.query, attention.key):
            part.weight.zero_()
        attention.query.bias.copy_(torch.tensor([3.0, 0, 0, 0] * 2))
        attention.key.bias.copy_(torch.tensor([0, 3.0, 0, 0] * 2))
    tokens = torch.randn(1, 20, 8)
    expected = attention.output.bias.detach().float().expand(1, 20, 8)
    mixed = attention.half()(tokens.half(), everything(tokens)).tokens
    torch.testing.assert_close(mixed.float(), expected, rtol=0.01, atol=0.01)


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        ({"phi": "tanh"}, {}, "invalid phi 'tanh'; choices: sigmoid, elu, relu$"),
        ({"phi": None}, {}, "invalid phi None"),
        ({"competition": "none"}, {}, "invalid competition 'none'; choices: softmax, sigmoid, relu, null"),
        ({"allocation": "elu"}, {}, "invalid allocation 'elu'; choices: softmax, sigmoid, relu, null"),
        ({"phi": "relu"}, {"causal": True}, "phi: relu has no causal form: .* eps; choose phi: elu"),
        ({"clamp": 0.0}, {}, "positive clamp"),
    ],
)
def test_options_of_flow_that_are_refused(options, changes, message):
    with pytest.raises(MolsliceError, match=message):
        build("flow", replace(SPEC, **changes), **options)


@pytest.mark.parametrize("scale", [-300.0, 300.0])
def test_a_large_common_bias_neither_overflows_nor_vanishes(scale):
    tokens = torch.randn(1, 6, 8, dtype=torch.float64)
    bias = torch.randn(1, 2, 6, 6, dtype=torch.float64)
    attention = build("flow", replace(SPEC, pair_bias_mode="logits"))
    found = [attention(tokens, replace(everything(tokens), pair_bias=b)).tokens for b in (bias, bias + scale)]
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-6)


def large_bias(kind, length):
    """One pair, or all pairs, far from the others."""
    if kind == "all":
        return 30.0 * torch.randn(1, 2, length, length, dtype=torch.float64)
    bias = torch.zeros(1, 2, length, length, dtype=torch.float64)
    bias[:, :, 7, 1] = 20.0 if kind == "up" else -20.0
    return bias


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["up", "down", "all"])
def test_flow_of_a_bias_with_a_wide_range_equals_its_formula(kind, causal):
    """The capacity of one pair is a billion times that of the others, which still have their own flow."""
    spec = replace(SPEC, pair_bias_mode="logits", causal=causal)
    tokens = torch.randn(1, 12, 8, dtype=torch.float64)
    attention, bias = build("flow", spec, clamp=5.0), large_bias(kind, 12)
    context = replace(everything(tokens), pair_bias=bias)
    expected = reference_sequence(attention, tokens[0], tokens[0], bias[0], None)[0]
    torch.testing.assert_close(attention(tokens, context).tokens[0], expected, rtol=1e-8, atol=1e-8)
    with torch.no_grad():
        found = attention.float()(tokens.float(), replace(context, pair_bias=bias.float())).tokens[0]
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_flow_of_a_bias_with_a_wide_range_is_finite_in_half_precision(causal):
    spec = replace(SPEC, pair_bias_mode="logits", causal=causal)
    attention = build("flow", spec).float().train()
    tokens = torch.randn(1, 12, 8, requires_grad=True)
    bias = large_bias("all", 12).float().requires_grad_()
    with torch.autocast("cpu", torch.float16):
        attention(
            tokens, replace(everything(tokens), pair_bias=bias)
        ).tokens.float().square().sum().backward()
    for gradient in (tokens.grad, bias.grad, *(each.grad for each in attention.parameters())):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("causal", [False, True])
def test_flow_of_many_equal_tokens_in_half_precision(causal):
    """The sum of the values over all tokens is larger than the largest float16."""
    attention = build("flow", replace(SPEC, causal=causal)).float()
    tokens = torch.randn(1, 1, 8).repeat(1, 150_000, 1)
    with torch.no_grad():
        attention.key.bias.fill_(5.0)
        attention.value.bias.fill_(2.0)
        expected = attention(tokens, everything(tokens)).tokens
        with torch.autocast("cpu", torch.float16):
            found = attention(tokens, everything(tokens)).tokens
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", ["flow", "softmax"])
def test_the_exact_map_of_cross_attention_maps_the_memory(name):
    tokens, memory = torch.randn(2, 5, 8, dtype=torch.float64), torch.randn(2, 7, 8, dtype=torch.float64)
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    context = replace(everything(tokens), memory=memory, memory_mask=mask)
    attention = build(name, replace(SPEC, cross=True))
    found = attention.exact_map(tokens, context)
    assert found is not None
    assert found.weights.shape == (2, 2, 5, 7)
    mixed = found.weights @ attention.split_heads(attention.value(memory))
    expected = attention(tokens, context).tokens
    torch.testing.assert_close(attention.output(attention.merge_heads(mixed)), expected)


def test_singular_with_one_pseudo_token_averages():
    tokens = torch.randn(2, 5, 8, dtype=torch.float64)
    attention = build("singular", rank=1)
    with torch.no_grad():
        attention.fold.weight.zero_()
    found = attention(tokens, everything(tokens)).tokens
    expected = attention.output(attention.value(tokens.mean(1, keepdim=True))).expand_as(found)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("mode", ["none", "logits", "mix"])
def test_four_equal_maps_of_singular_are_one_shared_map(mode):
    spec = replace(SPEC, pair_bias_mode=mode)
    tokens, bias = torch.randn(2, 6, 8, dtype=torch.float64), torch.randn(2, 2, 6, 6, dtype=torch.float64)
    context = replace(everything(tokens), pair_bias=None if mode == "none" else bias)
    shared, separate = build("singular", spec), build("singular", spec, shared_map=False)
    separate.load_state_dict(shared.state_dict(), strict=False)
    for part in (separate.fold_query, separate.fold_key, separate.fold_value):
        part.weight = shared.fold.weight
    mixed, expected = separate(tokens, context), shared(tokens, context)
    torch.testing.assert_close(mixed.tokens, expected.tokens)
    torch.testing.assert_close(mixed.penalty, expected.penalty)
    sizes = [sum(p.numel() for p in x.parameters()) for x in (build("singular", shared_map=False), shared)]
    assert sizes[0] - sizes[1] == 3 * 8 * 4  # D r for each, without a bias


def test_scores_of_singular_without_the_root_of_the_width():
    tokens = torch.randn(1, 6, 8, dtype=torch.float64)
    scaled, plain = build("singular"), build("singular", scaled=False)
    plain.load_state_dict(scaled.state_dict())
    scores, expected = (x(tokens, everything(tokens)).carry for x in (plain, scaled))
    torch.testing.assert_close(scores, 2 * expected)  # sqrt(4)


def test_singular_hands_its_scores_on():
    tokens = torch.randn(2, 5, 8, dtype=torch.float64)
    attention = build("singular")
    context = everything(tokens)
    below = attention(tokens, context).carry
    assert below.shape == (2, 2, 4, 4)
    above = attention(tokens, context.with_carry(below)).carry
    torch.testing.assert_close(above, 2 * below)
    with pytest.raises(MolsliceError, match=r"carry of shape \[2, 2, 4, 4\].*got \[2, 2, 4, 3\]"):
        attention(tokens, context.with_carry(below[..., :3]))


def test_the_penalty_is_zero_for_orthogonal_folds_and_diagonal_scores():
    attention = build("singular", AttentionSpec(4, 1), rank=4)
    with torch.no_grad():
        attention.fold.weight.copy_(100 * torch.eye(4))
        attention.fold.bias.zero_()
    tokens = torch.eye(4, dtype=torch.float64)[None]
    context = everything(tokens).with_carry(1000 * torch.eye(4, dtype=torch.float64)[None, None])
    assert attention(tokens, context).penalty < 1e-30
    assert attention(tokens, context.with_carry(None)).penalty > 1e-5


def test_the_weights_scale_their_parts_of_the_penalty():
    tokens = torch.randn(2, 5, 8, dtype=torch.float64)

    def penalty(orthogonal, diagonal):
        attention = build("singular", orthogonal_weight=orthogonal, diagonal_weight=diagonal)
        return attention(tokens, everything(tokens)).penalty

    torch.testing.assert_close(penalty(0.5, 0.0) + penalty(0.0, 0.2), penalty(0.5, 0.2))
    torch.testing.assert_close(penalty(1.0, 0.0), 2 * penalty(0.5, 0.0))
    assert penalty(0.0, 0.0) is None


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("flow", {"clamp": 0.0}, "positive clamp"),
        ("singular", {"rank": 0}, "rank of at least 1"),
        ("flow", {"clamp": float("nan")}, "positive clamp"),
        ("flow", {"clamp": "1"}, "positive clamp"),
        ("singular", {"diagonal_weight": -1.0}, "diagonal_weight of at least 0, got -1.0"),
        ("singular", {"orthogonal_weight": float("nan")}, "orthogonal_weight of at least 0, got nan"),
        ("nystrom", {"landmarks": 2.5}, "invalid landmarks 2.5; expected an integer"),
        ("nystrom", {"landmarks": "x"}, "invalid landmarks 'x'; expected an integer"),
        ("local", {"window": float("nan")}, "invalid window nan; expected an integer"),
    ],
)
def test_bad_options_are_refused_by_name(name, options, message):
    with pytest.raises(MolsliceError, match=message):
        build_attention(name, SPEC, options)
