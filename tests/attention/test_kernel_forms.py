"""The kernels of flow and singular equal the torch forms with every option, in float32.

Interpreted on a CPU, compiled on a GPU; see `triton_devices.py`. Dropout is a fixed mask, so that both forms
drop the same entries.
"""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn

from molslice.attention import build_attention
from molslice.types import AttentionSpec, MolsliceError, TokenContext
from tests.ops.triton_devices import each_device

# isort: split
from molslice.ops import (
    folded_attention,
    kernel_choice,
    layer_steps,
    packed_attention,
    triton_attention,
    triton_flow,
    triton_folded,
    triton_layers,
)

HEADS, LENGTH, DIM = 2, 6, 16
MASK = torch.tensor(
    [[True] * 6, [True] * 3 + [False] * 3, [False] * 6, [False, True, True, False, True, False]]
)
WHOLE = torch.ones(4, 6, dtype=torch.bool)
CALLS = [
    (MASK, {}),
    (MASK, {"padding_is_unread": True}),
    (MASK, {"padding_is_unread": True, "num_queries": 1}),
    (WHOLE, {"all_real": True, "num_queries": 2}),
]


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    """Use the kernels on every device and in float32."""
    for module in (triton_attention, triton_flow, triton_folded):
        monkeypatch.setattr(module, "supports", lambda *sizes: True)
    monkeypatch.setattr(packed_attention, "_TRITON", {"softmax": triton_attention, "flow": triton_flow})
    monkeypatch.setattr(folded_attention, "_TRITON", triton_folded)
    monkeypatch.setattr(layer_steps, "_TRITON", triton_layers)
    monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda tokens: True)


class FixedDropout(nn.Module):
    """Drops the same entries of rows of the same size; keeps the weights of pseudo-tokens."""

    def forward(self, values):
        if values.ndim == 4:
            return values
        _, rows, size = values.shape
        kept = torch.rand(64, size, generator=torch.Generator().manual_seed(size))[:rows] > 0.3
        return values * kept.to(values.device) / 0.7


def build(name, device, mode="logits", dropped=False, head_dim=None, qkv_bias=True, **options):
    torch.manual_seed(0)
    rate = 0.3 if dropped else 0.0
    spec = AttentionSpec(
        dim=DIM,
        num_heads=HEADS,
        dropout=rate,
        qkv_bias=qkv_bias,
        channels_per_head=head_dim,
        pair_bias_mode=mode,
    )
    attention = build_attention(name, spec, options)
    attention.reset_parameters()
    for parameter in attention.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, std=0.5)
    if dropped:
        attention.dropout = FixedDropout()
        if name == "singular":  # the kernel draws the dropout of the weights itself
            attention.spec = replace(spec, dropout=0.0)
    return attention.to(device)


def draw(mask, mode, device, scale=2.0):
    """Return tokens and a pair bias, with large numbers at padding."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randn(4, LENGTH, DIM, generator=generator).masked_fill(~mask[..., None], 1e4)
    pairs = (mask[:, None] & mask[:, :, None])[:, None]
    bias = scale * torch.randn(4, HEADS, LENGTH, LENGTH, generator=generator)
    return tokens.to(device), None if mode == "none" else bias.masked_fill(~pairs, 1e30).to(device)


def run(attention, tokens, mask, bias, carry, kernel, **options):
    """Return all results and gradients by name."""
    attention.zero_grad()
    leaves = {"tokens": tokens, "bias": bias, "carry": carry}
    leaves = {name: None if one is None else one.clone().requires_grad_() for name, one in leaves.items()}
    context = TokenContext(mask, leaves["bias"], carry=leaves["carry"], **options)
    with nullcontext() if kernel else kernel_choice.torch_forms():
        assert attention.ignores_padding(leaves["tokens"], context) == kernel
        output = attention(leaves["tokens"], context)
    mixed = output.tokens if output.output_bias is None else output.tokens + output.output_bias
    assert mixed.isfinite().all()
    mixed = mixed.masked_fill(~context.first(mask)[..., None], 0.0)
    results = {"mixed": mixed}
    if output.penalty is not None:
        results["penalty"] = output.penalty
    if attention.name == "singular":
        results["scores"] = output.carry[mask.any(1)]
    loss = sum(
        (100 * one * torch.sin(1 + torch.arange(one.numel(), device=one.device)).view(one.shape)).sum()
        for one in results.values()
    )
    loss.backward()
    leaves |= dict(attention.named_parameters())
    for name, one in leaves.items():
        if one is not None:
            results[f"gradient of {name}"] = torch.zeros_like(one) if one.grad is None else one.grad
    return {name: one.detach() for name, one in results.items()}


def compare(attention, mask, device, mode="logits", carry=None, scale=2.0, **options):
    tokens, bias = draw(mask, mode, device, scale)
    inputs = attention, tokens, mask.to(device), bias, carry
    results = run(*inputs, kernel=True, **options)
    expected = run(*inputs, kernel=False, **{**options, "padding_is_unread": False})
    assert results.keys() == expected.keys()
    for name, one in expected.items():
        error, size = (results[name] - one).abs().max(), one.abs().max()
        assert error <= 2e-4 * size + 2e-4, name


@each_device
@pytest.mark.parametrize(("mask", "options"), CALLS)
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize(("head_dim", "qkv_bias"), [(None, True), (5, False)])
def test_flow(mask, options, dropped, head_dim, qkv_bias, device):
    attention = build("flow", device, dropped=dropped, head_dim=head_dim, qkv_bias=qkv_bias)
    compare(attention, mask, device, **options)


@each_device
@pytest.mark.parametrize(("scale", "shift"), [(300.0, 0.0), (2.0, -15.0)])
def test_flow_with_a_large_bias_and_small_capacities(scale, shift, device):
    attention = build("flow", device)
    with torch.no_grad():
        attention.key.bias.add_(shift)
        attention.query.bias.add_(shift / 2)
    compare(attention, MASK, device, scale=scale)


@each_device
@pytest.mark.parametrize(("mask", "options"), CALLS)
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize(
    ("mode", "shape", "choices"),
    [
        ("logits", {}, {}),
        ("logits", {"head_dim": 5, "qkv_bias": False}, {"rank": 3, "scaled": False}),
        ("none", {}, {"orthogonal_weight": 0}),
        ("logits", {}, {"diagonal_weight": 0}),
        ("logits", {}, {"diagonal_weight": 0, "orthogonal_weight": 0}),
    ],
)
@pytest.mark.parametrize("has_carry", [False, True])
def test_singular(mask, options, dropped, mode, shape, choices, has_carry, device):
    attention = build("singular", device, mode, dropped, **shape, **choices)
    carry = torch.randn(4, HEADS, attention.rank, attention.rank, device=device) if has_carry else None
    compare(attention, mask, device, mode, carry, **options)


@each_device
@pytest.mark.parametrize(("name", "size"), [("softmax", LENGTH), ("flow", LENGTH), ("singular", 8)])
def test_a_carry_of_another_shape_is_refused(name, size, device):
    attention, (tokens, bias) = build(name, device), draw(WHOLE, "logits", device)
    context = TokenContext(WHOLE.to(device), bias, carry=torch.zeros(4, HEADS, 3, 3, device=device))
    with pytest.raises(MolsliceError, match=rf"{name} takes a carry of shape \[4, 2, {size}, {size}\]"):
        attention(tokens, context)


@each_device
@pytest.mark.parametrize("name", ["flow", "singular"])
def test_large_numbers_at_padding_change_no_gradient(name, device):
    attention = build(name, device).half()
    tokens, bias = draw(MASK, "logits", device)
    tokens = tokens.masked_fill(~MASK.to(device)[..., None], 6e4).half().requires_grad_()
    context = TokenContext(MASK.to(device), bias.half(), padding_is_unread=True)
    output = attention(tokens, context).tokens
    output.masked_fill(~MASK.to(device)[..., None], 0.0).float().sum().backward()
    for parameter in (tokens, *attention.parameters()):
        assert parameter.grad is None or parameter.grad.isfinite().all()
