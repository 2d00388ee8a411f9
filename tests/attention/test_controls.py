"""Tests of the two controls, `identity` and `mean`, against their one-line formulas."""

from dataclasses import replace

import torch

from molslice.attention import build_attention
from molslice.types import AttentionSpec, TokenContext

SPEC = AttentionSpec(8, 2)


def build(name, spec=SPEC):
    torch.manual_seed(0)
    return build_attention(name, spec).double().eval()


def everything(tokens):
    return TokenContext(torch.ones(tokens.shape[:2], dtype=torch.bool))


def test_the_mean_is_softmax_attention_with_equal_scores():
    tokens = torch.randn(2, 7, 8, dtype=torch.float64)
    for spec in (SPEC, replace(SPEC, causal=True)):
        mean, softmax = build("mean", spec), build("softmax", spec)
        softmax.load_state_dict(mean.state_dict(), strict=False)
        with torch.no_grad():
            softmax.query.weight.zero_()
            softmax.query.bias.zero_()
        found, expected = (each(tokens, everything(tokens)).tokens for each in (mean, softmax))
        torch.testing.assert_close(found, expected)


def test_the_mean_gives_all_tokens_the_same():
    tokens = torch.randn(2, 7, 8, dtype=torch.float64)
    found = build("mean")(tokens, everything(tokens)).tokens
    assert torch.equal(found, found[:, :1].expand_as(found))


def test_running_means_of_many_half_precision_tokens_stay_exact():
    tokens = torch.ones(1, 5000, 8, dtype=torch.bfloat16)
    attention = build("mean", replace(SPEC, causal=True)).bfloat16()
    found = attention(tokens, everything(tokens)).tokens
    assert torch.equal(found, found[:, :1].expand_as(found))


def test_with_identity_no_token_sees_another():
    tokens = torch.randn(2, 7, 8, dtype=torch.float64)
    attention = build("identity")
    together = attention(tokens, everything(tokens)).tokens
    for i in range(7):
        alone = attention(tokens[:, i : i + 1], everything(tokens[:, :1])).tokens
        torch.testing.assert_close(together[:, i : i + 1], alone)


def test_the_controls_have_two_maps():
    for name in ("mean", "identity"):
        assert sum(p.numel() for p in build(name).parameters()) == 2 * (8 * 8 + 8)
