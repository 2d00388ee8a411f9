"""Tests specific to `linformer` and `nystrom`."""

from dataclasses import replace

import pytest
import torch

from molslice.attention import build_attention
from molslice.testing import CHECKS
from molslice.testing.subjects import SPEC, Subject
from molslice.types import AttentionSpec, MolsliceError, TokenContext
from tests.attention.references import find_reference

BOUNDED = AttentionSpec(8, 2, max_tokens=12)


def build(name, spec=BOUNDED, **options):
    torch.manual_seed(0)
    return build_attention(name, spec, options).double().eval()


def everything(tokens):
    return TokenContext(torch.ones(tokens.shape[:2], dtype=torch.bool))


def apply(attention, tokens):
    return attention(tokens, everything(tokens)).tokens


def random_tokens(length, batch=3):
    return torch.randn(batch, length, 8, dtype=torch.float64)


@pytest.mark.parametrize("share", ["none", "heads", "kv"])
@pytest.mark.parametrize("cross", [False, True])
def test_linformer_with_identity_projections_is_softmax(share, cross):
    spec = replace(BOUNDED, cross=cross)
    linformer, softmax = build("linformer", spec, rank=12, share=share), build("softmax", spec)
    linformer.load_state_dict(softmax.state_dict(), strict=False)
    with torch.no_grad():
        for name, parameter in linformer.named_parameters():
            if name.startswith("project"):
                parameter.copy_(torch.eye(12))
    context = everything(random_tokens(12))
    if cross:
        context = replace(context, memory=random_tokens(12), memory_mask=torch.ones(3, 12, dtype=torch.bool))
    tokens = random_tokens(12)
    torch.testing.assert_close(linformer(tokens, context).tokens, softmax(tokens, context).tokens)


def test_a_short_sequence_uses_the_first_columns():
    attention, tokens = build("linformer", rank=4), random_tokens(5)
    before = apply(attention, tokens)
    with torch.no_grad():
        attention.project_key[..., 5:] += 1
        attention.project_value[..., 5:] += 1
    assert torch.equal(apply(attention, tokens), before)
    with torch.no_grad():
        attention.project_key[..., 4] += 1
    assert not torch.equal(apply(attention, tokens), before)


@pytest.mark.parametrize(("share", "matrices"), [("none", 4), ("heads", 2), ("kv", 1)])
def test_parameters_of_linformer(share, matrices):
    attention = build("linformer", rank=3, share=share)
    count = sum(parameter.numel() for parameter in attention.parameters())
    assert count == 4 * (8 * 8 + 8) + matrices * 3 * 12


def test_rank_of_linformer_is_128_or_what_the_bound_leaves():
    assert build("linformer").rank == 12
    assert build("linformer", replace(BOUNDED, max_tokens=1000)).rank == 128


def test_linformer_without_a_bound_is_refused():
    with pytest.raises(MolsliceError, match="max_tokens must be set"):
        build("linformer", AttentionSpec(8, 2))


@pytest.mark.parametrize("landmarks", [7, 10, 64])
def test_nystrom_with_a_landmark_for_every_token_is_softmax(landmarks):
    softmax = build("softmax")
    tokens = random_tokens(7)
    errors = []
    for iterations in (6, 30):
        nystrom = build("nystrom", landmarks=landmarks, iterations=iterations)
        nystrom.load_state_dict(softmax.state_dict())
        errors.append((apply(nystrom, tokens) - apply(softmax, tokens)).abs().max())
    assert errors[1] < 1e-6
    assert errors[1] < errors[0]


def test_autocast_does_not_round_what_the_inverse_of_nystrom_magnifies():
    attention, tokens = build("nystrom", landmarks=8, iterations=20).float(), random_tokens(8).float() / 2
    expected = apply(attention, tokens)
    with torch.autocast("cpu", torch.bfloat16):
        found = apply(attention, tokens)
    error = (found.float() - expected).abs().median() / expected.std()
    assert error < 0.01, "the values alone are rounded, to about 0.001 of the spread"


def test_nystrom_is_exact_for_segments_of_equal_tokens():
    softmax, nystrom = build("softmax"), build("nystrom", landmarks=3, iterations=40)
    nystrom.load_state_dict(softmax.state_dict())
    tokens = random_tokens(3).repeat_interleave(4, 1)
    torch.testing.assert_close(apply(nystrom, tokens), apply(softmax, tokens), rtol=1e-6, atol=1e-6)


def test_the_residual_is_a_convolution_along_the_tokens():
    plain, residual = build("nystrom", landmarks=3), build("nystrom", landmarks=3, conv_kernel=3)
    residual.load_state_dict(plain.state_dict(), strict=False)
    tokens = random_tokens(9)
    value = torch.nn.functional.pad(plain.value(tokens), (0, 0, 1, 1))
    kernel = residual.conv.weight[:, 0, :, 0].repeat_interleave(4, 0)
    expected = sum(kernel[:, k] * value[:, k : k + 9] for k in range(3)) @ plain.output.weight.T
    torch.testing.assert_close(apply(residual, tokens) - apply(plain, tokens), expected)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("mode", ["none", "mix"])
def test_contract_of_the_residual(check, mode):
    check(
        Subject(
            "nystrom-residual",
            lambda spec: build_attention("nystrom", spec, {"landmarks": 3, "conv_kernel": 3}),
            replace(SPEC, pair_bias_mode=mode),
            frozenset({"key.bias"}),
            find_reference("nystrom"),
        )
    )


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("linformer", {"rank": 0}, "rank of at least 1, got 0"),
        ("linformer", {"share": "layers"}, "invalid share 'layers'; choices: none, heads, kv"),
        ("nystrom", {"landmarks": 0}, "landmarks of at least 1, got 0"),
        ("nystrom", {"iterations": 0}, "iterations of at least 1, got 0"),
        ("nystrom", {"conv_kernel": 4}, "odd conv_kernel or null, got 4"),
    ],
)
def test_bad_options_are_refused_by_name(name, options, message):
    with pytest.raises(MolsliceError, match=message):
        build_attention(name, BOUNDED, options)
