"""Tests specific to `realformer`, `synthesizer` and `sinkhorn`."""

from dataclasses import replace

import pytest
import torch

from molslice.attention import build_attention
from molslice.types import AttentionSpec, MolsliceError, TokenContext

SPEC = AttentionSpec(8, 2, num_layers=3, max_tokens=9)


def build(name, spec=SPEC, **options):
    torch.manual_seed(0)
    return build_attention(name, spec, options).double().eval()


def everything(tokens):
    return TokenContext(torch.ones(tokens.shape[:2], dtype=torch.bool))


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)


@pytest.mark.parametrize("mode", ["none", "logits", "mix"])
@pytest.mark.parametrize("causal", [False, True])
def test_the_first_residual_layer_is_softmax_attention(mode, causal):
    spec = replace(SPEC, pair_bias_mode=mode, causal=causal)
    residual, softmax = build("realformer", spec), build("softmax", spec)
    softmax.load_state_dict(residual.state_dict())
    tokens = draw(2, 6, 8)
    context = replace(everything(tokens), pair_bias=draw(2, 2, 6, 6))
    torch.testing.assert_close(residual(tokens, context).tokens, softmax(tokens, context).tokens)


def test_scores_pile_up_and_the_pair_bias_does_not():
    """In the third of three equal layers, the scores are three times as large, and S + E is added once."""
    spec = replace(SPEC, pair_bias_mode="logits")
    residual, softmax = build("realformer", spec), build("softmax", spec)
    tokens, context = draw(2, 6, 8), None
    context = replace(everything(tokens), pair_bias=draw(2, 2, 6, 6))
    for _ in range(3):
        output = residual(tokens, context)
        context = context.with_carry(output.carry)
    softmax.load_state_dict(residual.state_dict())
    with torch.no_grad():
        softmax.query.weight *= 3
        softmax.query.bias *= 3
    torch.testing.assert_close(output.tokens, softmax(tokens, context.with_carry(None)).tokens)


def test_the_carry_is_zero_at_padding_and_for_the_future_and_in_single_precision():
    attention = build("realformer", replace(SPEC, causal=True))
    tokens = draw(1, 6, 8)
    mask = torch.tensor([[True, False, True, True, True, False]])
    carry = attention(tokens, TokenContext(mask)).carry
    seen = (mask[:, None] & mask[..., None]).tril()[:, None].expand_as(carry)
    assert not carry[~seen].any()
    assert carry[seen].all()
    assert attention.bfloat16()(tokens.bfloat16(), TokenContext(mask)).carry.dtype == torch.float32


def test_a_carry_of_another_shape_is_refused():
    attention, tokens = build("realformer"), draw(2, 6, 8)
    with pytest.raises(MolsliceError, match=r"carry of shape \[2, 2, 6, 6\].*got \[2, 2, 5, 6\]"):
        attention(tokens, everything(tokens).with_carry(draw(2, 2, 5, 6)))


def test_a_random_synthesizer_gives_every_sequence_the_same_weights():
    attention = build("synthesizer", kind="random")
    first, second = draw(1, 7, 8), draw(1, 7, 8)
    one, other, both = (attention(x, everything(x)).tokens for x in (first, second, first + second))
    bias = attention(0 * first, everything(first)).tokens
    torch.testing.assert_close(both, one + other - bias)


def test_factors_make_a_random_synthesizer_of_low_rank():
    low, full = build("synthesizer", kind="factorized", rank=3), build("synthesizer", kind="random")
    full.load_state_dict(low.state_dict(), strict=False)
    with torch.no_grad():
        full.scores.copy_(low.row_factor @ low.column_factor.transpose(1, 2))
    tokens = draw(2, 7, 8)
    found, expected = (each(tokens, everything(tokens)).tokens for each in (low, full))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["dense", "random", "factorized"])
def test_rows_and_columns_belong_to_ranks_among_the_real_tokens(kind):
    attention, tokens = build("synthesizer", kind=kind), draw(1, 9, 8)
    mask = torch.tensor([[False, True, True, False, True, True, False, True, False]])
    found = attention(tokens, TokenContext(mask)).tokens[mask]
    packed = tokens[mask][None]
    torch.testing.assert_close(found, attention(packed, everything(packed)).tokens[0])


def test_synthesizers_have_the_parameters_of_the_paper():
    def count(**options):
        attention = build_attention("synthesizer", AttentionSpec(64, 8, max_tokens=30), options)
        return sum(p.numel() for p in attention.parameters()) - 2 * (64**2 + 64)

    assert count(kind="dense") == 64**2 + 64 * 30 + 64 + 8 * 30  # d^2 + d l and the biases
    assert count(kind="random") == 8 * 30 * 30
    assert count(kind="factorized") == 8 * 2 * 30 * 8


def test_scores_of_a_new_synthesizer_are_small():
    for kind in ("dense", "random", "factorized"):
        attention = build_attention("synthesizer", AttentionSpec(64, 4, max_tokens=100), {"kind": kind})
        scores = attention._scores(torch.randn(1, 100, 64))
        assert 0.01 < scores.std() < 0.3, kind


def test_one_iteration_of_sinkhorn_is_softmax():
    for spec in (SPEC, replace(SPEC, pair_bias_mode="logits")):
        sinkhorn, softmax = build("sinkhorn", spec, iterations=1), build("softmax", spec)
        softmax.load_state_dict(sinkhorn.state_dict())
        tokens = draw(2, 6, 8)
        context = replace(everything(tokens), pair_bias=draw(2, 2, 6, 6))
        found, expected = (each(tokens, context).tokens for each in (sinkhorn, softmax))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("iterations", "tolerance"), [(3, 0.4), (9, 0.03), (21, 1e-3)])
def test_weights_are_doubly_stochastic_over_the_real_tokens(iterations, tolerance):
    attention = build("sinkhorn", AttentionSpec(48, 2), iterations=iterations)
    with torch.no_grad():
        for linear in (attention.query, attention.key):
            linear.weight.copy_(torch.linalg.qr(draw(48, 48)).Q)
            linear.bias.zero_()
    tokens, mask = draw(8, 30, 48), torch.rand(8, 30) < 0.8
    query, key, _, _ = attention.project_heads(tokens * mask[..., None], TokenContext(mask))
    weights = attention.weights(query, key, mask, TokenContext(mask))
    expected = mask[:, None].double().expand(8, 2, 30)
    torch.testing.assert_close(weights.sum(3), expected, rtol=1e-12, atol=1e-12)
    assert (weights.sum(2) - expected).abs().max() < tolerance
    assert not weights.sum(2)[~mask[:, None].expand(8, 2, 30)].any()


def test_large_scores_stay_finite_in_log_space():
    attention, tokens = build("sinkhorn", iterations=21).float(), 1e3 * torch.randn(2, 6, 8)
    tokens.requires_grad_()
    found = attention(tokens, everything(tokens)).tokens
    found.sum().backward()
    assert found.isfinite().all()
    assert tokens.grad.isfinite().all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("synthesizer", {"kind": "sparse"}, "'sparse'; choices: dense, random, factorized"),
        ("synthesizer", {"rank": 0}, "rank of at least 1, got 0"),
        ("sinkhorn", {"iterations": 0}, "odd number.*got 0"),
        ("sinkhorn", {"iterations": 4}, "odd number.*got 4"),
    ],
)
def test_bad_options_are_refused_by_name(name, options, message):
    with pytest.raises(MolsliceError, match=message):
        build_attention(name, SPEC, options)


def test_a_synthesizer_must_know_how_many_tokens_may_come():
    with pytest.raises(MolsliceError, match="max_tokens"):
        build_attention("synthesizer", AttentionSpec(8, 2))
