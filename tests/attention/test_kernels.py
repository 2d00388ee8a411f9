"""Tests specific to attentions with feature maps."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from molslice.attention import build_attention
from molslice.types import AttentionSpec, MolsliceError, TokenContext

SPEC = AttentionSpec(8, 2, max_tokens=300)


def build(name, spec=SPEC, **options):
    torch.manual_seed(0)
    return build_attention(name, spec, options).double().eval()


def everything(tokens):
    return TokenContext(torch.ones(tokens.shape[:2], dtype=torch.bool))


def apply(attention, tokens):
    return attention(tokens, everything(tokens)).tokens


@pytest.mark.parametrize("name", ["linear", "efficient", "performer", "cosformer"])
def test_weights_sum_to_one(name):
    attention = build(name)
    with torch.no_grad():
        attention.value.weight.zero_()
        attention.query.bias.fill_(2.0)  # no query without a channel above zero
    found = apply(attention, torch.randn(2, 7, 8, dtype=torch.float64))
    torch.testing.assert_close(found, attention.output(attention.value.bias).expand_as(found))


@pytest.mark.parametrize("name", ["linear", "performer", "random_feature"])
@pytest.mark.parametrize("length", [1, 64, 150])
def test_causal_gives_what_the_full_form_gives_to_the_last_of_each_prefix(name, length):
    tokens = torch.randn(2, 150, 8, dtype=torch.float64)
    past = apply(build(name, replace(SPEC, causal=True)), tokens)
    full = apply(build(name), tokens[:, :length])
    torch.testing.assert_close(past[:, length - 1], full[:, -1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["linear", "performer", "random_feature", "cosformer"])
def test_the_future_does_not_reach_the_last_digit(name):
    attention = build(name, replace(SPEC, causal=True)).float()
    tokens = torch.randn(2, 150, 8)
    other = tokens.clone()
    other[:, 100:] *= 40
    assert torch.equal(apply(attention, tokens)[:, :100], apply(attention, other)[:, :100])


@pytest.mark.parametrize("half", [False, True])
def test_the_future_does_not_reach_the_last_digit_of_flash_linear(half):
    attention = build("flash_linear", replace(SPEC, causal=True), chunk_size=16).float()
    tokens = torch.randn(2, 150, 8)
    other = tokens.clone()
    other[:, 100:] *= 1e4
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        assert torch.equal(apply(attention, tokens)[:, :100], apply(attention, other)[:, :100])


@pytest.mark.parametrize("name", ["random_feature", "reformer", "yoso", "softmax"])
def test_a_token_of_zeros_has_an_ordinary_gradient(name):
    attention, tokens = build(name).float(), torch.randn(2, 20, 8)
    tokens[:, 3] = 0.0
    apply(attention, tokens).square().sum().backward()
    for parameter in attention.parameters():
        assert parameter.grad is None or parameter.grad.abs().max() < 1e3


@pytest.mark.parametrize("causal", [False, True])
def test_random_feature_is_bounded_however_many_tokens_are_alike(causal):
    attention = build("random_feature", AttentionSpec(32, 4, max_tokens=3000, causal=causal))
    tokens = functional.layer_norm(torch.randn(32) + 0.3 * torch.randn(1, 2000, 32), (32,)).double()
    largest = attention.value(tokens).abs().max()
    with torch.no_grad():
        attention.output.weight.copy_(torch.eye(32))
        attention.output.bias.zero_()
    assert apply(attention, tokens).abs().max() <= 10.0 * largest


def test_performer_approaches_softmax_with_the_number_of_features():
    tokens = torch.randn(4, 12, 8, dtype=torch.float64)
    softmax = build("softmax")
    expected, errors = apply(softmax, tokens), []
    for features in (4, 64, 1024):
        squares = []
        for seed in range(5):
            performer = build("performer", num_features=features, seed=seed)
            performer.load_state_dict(softmax.state_dict() | {"projection": performer.projection})
            squares.append((apply(performer, tokens) - expected).square().mean())
        errors.append(torch.stack(squares).mean().sqrt().item())
    assert errors[2] < 0.5 * errors[1] < 0.25 * errors[0]
    assert errors[2] < 0.1 * expected.std()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [1e-3, 10.0, 100.0])
def test_performer_is_finite_for_large_queries_and_keys(causal, scale):
    attention = build("performer", replace(SPEC, causal=causal)).float()
    tokens = (scale * torch.randn(2, 9, 8)).requires_grad_()
    output = apply(attention, tokens)
    gradients = torch.autograd.grad(output.sum(), [tokens, *attention.parameters()])
    assert all(torch.isfinite(x).all() for x in (output, *gradients))


@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_performer_in_single_precision_is_near_double(scale):
    tokens = scale * torch.randn(2, 9, 8, dtype=torch.float64)
    for causal in (False, True):
        attention = build("performer", replace(SPEC, causal=causal))
        expected = apply(attention, tokens)
        found = apply(attention.float(), tokens.float())
        torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3 * scale)


@pytest.mark.parametrize(("width", "factor"), [(256, 1.0), (64, 5.0), (64, 8.0)])
def test_causal_performer_mixes_wide_heads_and_large_keys(width, factor):
    attention = build("performer", AttentionSpec(width, 1, max_tokens=300, causal=True))
    full = build("performer", AttentionSpec(width, 1, max_tokens=300))
    with torch.no_grad():
        for each in (attention.query, attention.key):
            each.weight *= factor
    full.load_state_dict(attention.state_dict())
    tokens = torch.randn(1, 150, width, dtype=torch.float64)
    found = apply(attention.float(), tokens.float())
    for length in (1, 64, 65, 150):
        expected = apply(full, tokens[:, :length])[:, -1]
        error = (found[:, length - 1].double() - expected).norm() / expected.norm()
        assert error < 1e-3


@pytest.mark.parametrize("key", ["far from all features", "equal to one of them"])
def test_causal_performer_has_head_room_for_its_keys(key):
    """Equal keys have equal weights. Small features must not underflow, nor the sum of 2,000 overflow."""
    attention = build("performer", replace(SPEC, causal=True, max_tokens=2000)).float()
    far = torch.tensor([14.0, 0.0, 0.0, 0.0])  # a float32 without head room ends at about e^-88
    features = (far if key.startswith("far") else attention.projection[0]).repeat(2) * 4**0.25
    with torch.no_grad():
        attention.query.weight.zero_()
        attention.query.bias.copy_(torch.zeros(8) if key.startswith("far") else features)
        attention.key.weight.zero_()
        attention.key.bias.copy_(features)
    tokens = torch.randn(1, 2000, 8)
    means = attention.value(tokens).cumsum(1) / torch.arange(1, 2001)[:, None]
    torch.testing.assert_close(apply(attention, tokens), attention.output(means), rtol=1e-4, atol=1e-4)


def test_performer_has_as_many_features_as_the_paper_needs():
    counts = {dim: build("performer", AttentionSpec(dim, 1)).num_features for dim in (1, 2, 4, 64)}
    assert counts == {1: 1, 2: 2, 4: 8, 64: 320}


def test_random_feature_approaches_the_softmax_of_unit_vectors():
    tokens = torch.randn(3, 12, 8, dtype=torch.float64)
    attention = build("random_feature", num_features=20_000)
    units = [
        torch.nn.functional.normalize(attention.split_heads(f(tokens)), dim=-1)
        for f in (attention.query, attention.key)
    ]
    weights = (units[0] @ units[1].transpose(2, 3)).softmax(-1)
    value = attention.split_heads(attention.value(tokens))
    expected = attention.output(attention.merge_heads(weights @ value))
    torch.testing.assert_close(apply(attention, tokens), expected, rtol=0, atol=0.03)


def test_scale_of_random_feature_is_learned_or_fixed_at_one():
    learned, fixed = build("random_feature"), build("random_feature", learned_scale=False)
    assert set(learned.state_dict()) - set(fixed.state_dict()) == {"scale"}
    tokens = torch.randn(2, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(apply(learned, tokens), apply(fixed, tokens), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["performer", "random_feature"])
def test_projections_come_from_seed_and_layer_and_travel_with_the_weights(name):
    deep = AttentionSpec(8, 2, layer=1, num_layers=2)
    builds = [build(name), build(name, seed=1), build(name, deep)]
    first, second, third = (attention.state_dict()["projection"] for attention in builds)
    assert torch.equal(first, build(name).projection)
    assert not torch.equal(first, second)
    assert not torch.equal(first, third)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [1.0, 0.01])  # weights far below one count as well
def test_cosformer_weighs_equal_features_by_the_cosine_of_the_distance(size, causal):
    attention = build("cosformer", AttentionSpec(4, 1, causal=causal, max_tokens=6))
    with torch.no_grad():
        for name in ("query", "key"):
            getattr(attention, name).weight.zero_()
            getattr(attention, name).bias.fill_(size)
        for name in ("value", "output"):
            getattr(attention, name).weight.copy_(torch.eye(4))
            getattr(attention, name).bias.zero_()
    place = torch.arange(6)
    weights = torch.cos(torch.pi / 2 * (place[:, None] - place) / 6).double()
    weights = weights.tril() if causal else weights
    tokens = torch.randn(1, 6, 4, dtype=torch.float64)
    expected = weights @ tokens / weights.sum(1, keepdim=True)
    torch.testing.assert_close(apply(attention, tokens), expected, rtol=1e-6, atol=1e-6)


def test_causal_cosformer_of_full_length_gives_its_last_token_what_the_full_form_gives():
    spec = AttentionSpec(8, 2, max_tokens=9)
    tokens = torch.randn(2, 9, 8, dtype=torch.float64)
    causal, full = (
        apply(build("cosformer", replace(spec, causal=True)), tokens),
        apply(build("cosformer"), tokens),
    )
    torch.testing.assert_close(causal[:, -1], full[:, -1])


def test_a_query_without_a_channel_above_zero_gets_zero_from_cosformer():
    attention = build("cosformer")
    with torch.no_grad():
        attention.query.weight.zero_()
        attention.query.bias.fill_(-1.0)
    tokens = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    found = apply(attention, tokens)
    torch.testing.assert_close(found, attention.output.bias.expand_as(found))
    assert torch.isfinite(torch.autograd.grad(found.sum(), tokens)[0]).all()


def test_causal_cosformer_without_a_bound_is_refused():
    with pytest.raises(MolsliceError, match="cosformer needs max_tokens"):
        build("cosformer", AttentionSpec(8, 2, causal=True))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("performer", {"num_features": 0}, "num_features of at least 1, got 0"),
        ("performer", {"seed": -1}, "seed of at least 0, got -1"),
        ("random_feature", {"num_features": 0}, "num_features of at least 1, got 0"),
        ("random_feature", {"seed": -1}, "seed of at least 0, got -1"),
    ],
)
def test_bad_options_are_refused_by_name(name, options, message):
    with pytest.raises(MolsliceError, match=message):
        build_attention(name, SPEC, options)


def test_the_gate_of_random_feature_needs_the_causal_form():
    with pytest.raises(
        MolsliceError, match="gate: true forgets earlier tokens, which only the causal form has"
    ):
        build("random_feature", gate=True)


@pytest.mark.parametrize(("bias", "last"), [(-30.0, 1), (40.0, 200)])
def test_the_gate_of_random_feature_forgets_or_remembers(bias, last):
    """A closed gate leaves the token itself, an open one an even average, as without a gate."""
    spec = AttentionSpec(8, 2, causal=True)
    attention, plain = build("random_feature", spec, gate=True), build("random_feature", spec)
    plain.load_state_dict(attention.state_dict(), strict=False)
    tokens = torch.randn(1, 200, 8, dtype=torch.float64)
    with torch.no_grad():
        attention.gate.weight.zero_()
        attention.gate.bias.fill_(bias)
        outputs = attention(tokens, everything(tokens)).tokens[:, -1]
        expected = plain(tokens[:, -last:], everything(tokens[:, -last:])).tokens[:, -1]
    torch.testing.assert_close(outputs, expected, rtol=1e-8, atol=1e-8)


def test_the_gate_of_random_feature_remembers_at_the_start():
    attention = build("random_feature", AttentionSpec(8, 2, causal=True), gate=True)
    attention.reset_parameters()
    assert attention.gate.bias.sigmoid().tolist() == pytest.approx([0.9526] * 2, abs=1e-4)
