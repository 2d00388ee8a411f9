"""Tests specific to `flash_quad` and `flash_linear`."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import silu

from molslice.attention import build_attention
from molslice.types import AttentionSpec, MolsliceError, TokenContext

SPEC = AttentionSpec(8, 2)


def build(name, spec=SPEC, **options):
    torch.manual_seed(0)
    return build_attention(name, spec, options).double().eval()


def everything(tokens):
    return TokenContext(torch.ones(tokens.shape[:2], dtype=torch.bool))


def without_linear_part(attention, quad):
    """Return `flash_linear` with the parameters of `flash_quad` and without its linear part."""
    attention.load_state_dict(
        {name: value for name, value in quad.state_dict().items() if name not in ("scale", "shift")},
        strict=False,
    )
    with torch.no_grad():
        for name in ("scale", "shift"):
            getattr(attention, name)[:2] = getattr(quad, name)
            getattr(attention, name)[2:] = 0
    return attention


@pytest.mark.parametrize("causal", [False, True])
def test_one_chunk_without_its_linear_part_is_the_quadratic_form(causal):
    spec = replace(SPEC, causal=causal)
    quad = build("flash_quad", spec, key_dim=6)
    tokens = torch.randn(2, 11, 8, dtype=torch.float64)
    expected = quad(tokens, everything(tokens)).tokens
    for size in (11, 256):
        chunked = without_linear_part(build("flash_linear", spec, key_dim=6, chunk_size=size), quad)
        torch.testing.assert_close(chunked(tokens, everything(tokens)).tokens, expected)


def test_without_its_linear_part_chunks_do_not_see_each_other():
    quad = build("flash_quad", key_dim=6)
    chunked = without_linear_part(build("flash_linear", key_dim=6, chunk_size=4), quad)
    tokens = torch.randn(2, 11, 8, dtype=torch.float64)
    found = chunked(tokens, everything(tokens)).tokens.split(4, 1)
    for part, expected in zip(tokens.split(4, 1), found, strict=True):
        torch.testing.assert_close(quad(part, everything(part)).tokens, expected)


def test_across_chunks_attention_is_linear_in_the_values_and_sees_every_token():
    """Without the quadratic part, the output is U * Q (K^T V) / n."""
    attention = build("flash_linear", key_dim=6, chunk_size=4)
    with torch.no_grad():
        attention.scale[:2] = 0
        attention.shift[:2] = 0
    tokens = torch.randn(2, 11, 8, dtype=torch.float64)
    gate, value, shared = (silu(f(tokens)) for f in (attention.gate, attention.value, attention.shared))
    query, key = (shared * attention.scale[i] + attention.shift[i] for i in (2, 3))
    expected = attention.output(gate * (query @ key.transpose(1, 2) @ value / 11))
    torch.testing.assert_close(attention(tokens, everything(tokens)).tokens, expected)


@pytest.mark.parametrize("name", ["flash_quad", "flash_linear"])
def test_the_output_does_not_shrink_with_the_length(name):
    attention = build(name, key_dim=6)
    tokens = torch.randn(1, 10, 8, dtype=torch.float64)
    few, many = (attention(x, everything(x)).tokens[:, :10] for x in (tokens, tokens.repeat(1, 20, 1)))
    torch.testing.assert_close(many, few)


@pytest.mark.parametrize("name", ["flash_quad", "flash_linear"])
def test_a_causal_result_does_not_depend_on_the_length_to_come(name):
    attention = build(
        name, replace(SPEC, causal=True), key_dim=6, **({"chunk_size": 4} if "lin" in name else {})
    )
    tokens = torch.randn(1, 30, 8, dtype=torch.float64)
    whole = attention(tokens, everything(tokens)).tokens
    for length in (1, 4, 13):
        part = attention(tokens[:, :length], everything(tokens[:, :length])).tokens
        torch.testing.assert_close(whole[:, :length], part)


def test_a_pair_bias_enters_under_the_square():
    """A bias far below all scores removes a pair."""
    attention = build("flash_quad", replace(SPEC, pair_bias_mode="logits"), key_dim=6)
    tokens = torch.randn(1, 5, 8, dtype=torch.float64)
    bias = torch.full((1, 2, 5, 5), -1e6, dtype=torch.float64)
    bias[..., range(5), range(5)] = 0
    found = attention(tokens, replace(everything(tokens), pair_bias=bias)).tokens
    for i in range(5):
        one = tokens[:, i : i + 1]
        alone = attention(one, replace(everything(one), pair_bias=bias[:, :, :1, :1])).tokens
        back = attention.output.bias
        torch.testing.assert_close(5 * (found[:, i : i + 1] - back), alone - back)


def test_parameters_are_those_of_the_gated_attention_unit():
    def count(name, **options):
        attention = build_attention(name, AttentionSpec(64, 8), options)
        return sum(parameter.numel() for parameter in attention.parameters())

    unit = 2 * (64 * 128 + 128) + 64 * 128 + 128 + 128 * 64 + 64
    assert count("flash_quad") == unit + 2 * 2 * 128
    assert count("flash_linear") == unit + 4 * 2 * 128
    assert count("flash_quad", expansion=1, key_dim=16) == 3 * (64 * 64 + 64) + 64 * 16 + 16 + 4 * 16


@pytest.mark.parametrize("name", ["flash_quad", "flash_linear"])
def test_a_new_unit_attends(name):
    """With scales initialized near zero, both values would be a million times smaller."""
    attention = build(name, AttentionSpec(64, 8))
    tokens = torch.randn(2, 20, 64, dtype=torch.float64, requires_grad=True)
    output = attention(tokens, everything(tokens)).tokens - attention.output.bias
    output.square().sum().backward()
    assert output.std() > 0.003
    assert attention.shared.weight.grad.norm() > 0.01


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("flash_quad", {"key_dim": 0}, "key_dim of at least 1, got 0"),
        ("flash_quad", {"expansion": 0}, "expansion of at least 1, got 0"),
        ("flash_linear", {"chunk_size": 0}, "chunk_size of at least 1, got 0"),
        ("flash_linear", {"chunks": 2}, "no option 'chunks'; did you mean 'chunk_size'"),
    ],
)
def test_bad_options_are_refused_by_name(name, options, message):
    with pytest.raises(MolsliceError, match=message):
        build_attention(name, SPEC, options)
