"""Tests of dropout in every attention, at each place that the formulas name."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from molslice.attention import ATTENTIONS, build_attention
from molslice.testing.subjects import SPEC, Inputs
from molslice.types import AttentionSpec, TokenContext
from tests.attention.subjects import all_subjects

ONE_EACH = {subject.label.split("-")[0]: subject for subject in reversed(all_subjects())}


class Cut(nn.Module):
    """Dropout that drops every tensor of shape `shape`, and no other."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return torch.zeros_like(x) if x.shape == self.shape else x


def spec_of(mode):
    return replace(SPEC, pair_bias_mode=mode)


@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_training_drops(name):
    subject = ONE_EACH[name]
    tokens, context, _ = Inputs.draw(6, 3).batch(subject.spec)
    attention = subject.attention(dropout=0.5)
    evaluated = attention(tokens, context).tokens
    trained = attention.train()(tokens, context).tokens
    # Without a pair bias slice_sort has no weights.
    assert torch.equal(trained, evaluated) == (name == "slice_sort" and subject.spec.pair_bias_mode == "none")


@pytest.mark.parametrize(
    ("options", "changes", "all_real"),
    [
        ({}, {}, True),
        ({}, {}, False),
        ({}, {"causal": True}, True),
        ({}, {"pair_bias_mode": "logits"}, True),
        ({"fused": False}, {}, True),
    ],
)
def test_softmax_drops_its_weights(options, changes, all_real):
    attention = build_attention("softmax", AttentionSpec(8, 8, dropout=0.5, **changes), options)
    with torch.no_grad():
        attention.value.weight.zero_()
        attention.value.bias.fill_(1.0)
        attention.output.weight.copy_(torch.eye(8))
        attention.output.bias.zero_()
    bias = torch.zeros(64, 8, 1, 1) if "pair_bias_mode" in changes else None
    context = TokenContext(torch.ones(64, 1, dtype=torch.bool), bias, all_real=all_real)
    # The one weight of each head is 1: dropped or doubled.
    assert attention(torch.randn(64, 1, 8), context).tokens.unique().tolist() == [0.0, 2.0]


# B = 2 sequences of N = 5 tokens, H = 2 heads, r = 3 pseudo-tokens
@pytest.mark.parametrize("mode", ["none", "logits", "mix"])
@pytest.mark.parametrize("place", ["folding", "weights", "unfolding"])
def test_singular_drops_at_three_places(place, mode):
    attention = build_attention("singular", spec_of(mode), {"rank": 3}).double()
    attention.dropout = Cut(*{"folding": (2, 3, 5), "weights": (2, 2, 3, 3), "unfolding": (2, 5, 3)}[place])
    tokens, context, _ = Inputs.draw(5, 5).batch(spec_of(mode))
    found = attention(tokens, context).tokens
    if place == "unfolding":
        expected = torch.zeros(8, dtype=torch.float64)
    elif place == "folding" and mode != "mix":  # the biases of the values pass the fold
        expected = attention.output(attention.value.bias)
    else:
        expected = attention.output.bias
    torch.testing.assert_close(found, expected.expand_as(found))


# B = 2 sequences of N = 5 tokens, H = 2 heads, C = 4 channels each
@pytest.mark.parametrize(
    ("name", "mode", "shape"),
    [
        ("key_sort", "none", (2, 2, 5, 4)),
        ("key_sort", "logits", (2, 2, 5, 5)),
        ("key_sort", "mix", (2, 2, 5, 4)),
        ("key_weight", "none", (2, 2, 5)),
        ("key_weight", "logits", (2, 2, 5, 5)),
    ],
)
def test_attentions_by_keys_drop_weights_or_what_is_mixed(name, mode, shape):
    attention = build_attention(name, spec_of(mode)).double()
    attention.dropout = Cut(*shape)
    tokens, context, _ = Inputs.draw(5, 5).batch(spec_of(mode))
    found = attention(tokens, context).tokens
    torch.testing.assert_close(found, attention.output.bias.expand_as(found))
