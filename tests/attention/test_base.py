"""Tests of the errors that the base class raises."""

import pytest
import torch

from molslice.attention import ATTENTIONS, Attention, build_attention
from molslice.attention.base import Traits
from molslice.types import AttentionSpec, MolsliceError, TokenContext

SPEC = AttentionSpec(8, 2)
BOUNDED = AttentionSpec(8, 2, max_tokens=16)  # for those whose parameters depend on the length
MASK = torch.ones(2, 5, dtype=torch.bool)
TOKENS = torch.randn(2, 5, 8)


class Bounded(Attention):
    traits = Traits(source="a test", cost="linear", symmetry="ordered", fixed_length=True)

    def mix(self, tokens, context):
        raise NotImplementedError


def test_the_four_of_the_mission_are_registered():
    assert {"softmax", "slice_sort", "flow", "singular"} <= set(ATTENTIONS.names())
    for name in ATTENTIONS.names():
        assert build_attention(name, BOUNDED).name == name


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        (
            "slice_sort",
            AttentionSpec(8, 2, causal=True),
            "'slice_sort' cannot be built: it has no causal form",
        ),
        ("slice_sort", AttentionSpec(8, 2, pair_bias_mode="logits"), r"'logits' \(choices: none, mix\)"),
        (
            "flash_quad",
            AttentionSpec(8, 2, channels_per_head=8),
            "'flash_quad' cannot be built: its width follows dim, so head_dim must be null",
        ),
        ("slice_srt", SPEC, "unknown attention 'slice_srt'; did you mean 'slice_sort'"),
    ],
)
def test_a_spec_that_cannot_be_served_is_refused_when_it_is_built(name, spec, message):
    with pytest.raises(MolsliceError, match=message):
        build_attention(name, spec)


def test_the_width_of_heads():
    assert (AttentionSpec(128, 8).head_dim, AttentionSpec(128, 8).inner_dim) == (16, 128)
    wide = AttentionSpec(128, 8, channels_per_head=64)
    assert (wide.head_dim, wide.inner_dim) == (64, 512)
    assert AttentionSpec(10, 4, channels_per_head=3).inner_dim == 12
    with pytest.raises(
        MolsliceError, match="dim=10 must be a positive multiple of num_heads=4, unless head_dim"
    ):
        AttentionSpec(10, 4)
    with pytest.raises(MolsliceError, match="head_dim must be at least 1, got 0"):
        AttentionSpec(8, 2, channels_per_head=0)


def test_parameters_that_depend_on_the_length_need_a_length():
    with pytest.raises(MolsliceError, match="max_tokens must be set"):
        Bounded(SPEC)
    bounded = Bounded(AttentionSpec(8, 2, max_tokens=4))
    with pytest.raises(MolsliceError, match="built for 4 tokens, got 5"):
        bounded(TOKENS, TokenContext(MASK))


@pytest.mark.parametrize(
    ("tokens", "context", "message"),
    [
        (TOKENS[..., :6], TokenContext(MASK), r"shape \[B, N, 8\], got \[2, 5, 6\]"),
        (TOKENS, TokenContext(MASK[:, :4]), r"token_mask of shape \[2, 5\], got torch.bool \[2, 4\]"),
        (TOKENS, TokenContext(MASK, torch.zeros(2, 3, 5, 5)), r"shape \[2, 2, 5, 5\], got \[2, 3, 5, 5\]"),
    ],
)
def test_shapes_that_do_not_fit_are_named(tokens, context, message):
    with pytest.raises(MolsliceError, match=message):
        build_attention("softmax", SPEC)(tokens, context)


def test_heads_take_neighboring_channels_and_come_back():
    attention = build_attention("softmax", SPEC)
    heads = attention.split_heads(TOKENS)
    assert torch.equal(heads[:, 1], TOKENS[..., 4:])
    assert torch.equal(attention.merge_heads(heads), TOKENS)


@pytest.mark.parametrize("name", ["softmax", "singular", "flow"])
def test_dropout_acts_in_training_only(name):
    attention = build_attention(name, AttentionSpec(8, 2, dropout=0.5))
    first, second = (attention(TOKENS, TokenContext(MASK)).tokens for _ in range(2))
    assert not torch.equal(first, second)


def test_dropout_of_pair_weights_acts_in_training_only():
    attention = build_attention("slice_sort", AttentionSpec(8, 2, dropout=0.5, pair_bias_mode="mix"))
    context = TokenContext(MASK, torch.randn(2, 2, 5, 5))
    assert not torch.equal(attention(TOKENS, context).tokens, attention(TOKENS, context).tokens)
    attention.eval()
    assert torch.equal(attention(TOKENS, context).tokens, attention(TOKENS, context).tokens)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_sequences_without_places_are_returned(name, causal):
    if causal and not ATTENTIONS.find(name).traits.causal:
        return
    attention = build_attention(name, AttentionSpec(dim=16, num_heads=4, causal=causal, max_tokens=8))
    tokens = torch.zeros(2, 0, 16, requires_grad=True)
    output = attention(tokens, TokenContext(torch.zeros(2, 0, dtype=torch.bool))).tokens
    assert output.shape == (2, 0, 16)
    output.sum().backward()
