"""The Triton kernels between the products of a layer equal torch: interpreted on a CPU, compiled on a GPU.

See `triton_devices.py`.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.ops.triton_devices import each_device

# isort: split
from molslice.ops import kernel_choice, layer_steps, triton_layers

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}  # of the largest entry


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    """Use the kernels on every device."""
    monkeypatch.setattr(layer_steps, "_TRITON", triton_layers)
    monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda tokens: True)


def draw(*shape, dtype, device):
    return torch.randn(shape, device=device).to(dtype).requires_grad_()


def draw_norm(width, dtype, device):
    norm = nn.LayerNorm(width)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm.to(device, dtype)


def close(result, expected, dtype):
    return (result.double() - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max().clamp(min=1)


def gradients(results, leaves):
    """Return gradients of a loss in which no entry has the weight of another."""
    loss = sum((one.double() * (1 + torch.arange(one.numel(), device=one.device).view_as(one) % 7)).sum()
               for one in results)  # fmt: skip
    return torch.autograd.grad(loss, leaves)


@each_device
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(2, 5, 24), (7, 16), (1, 1, 3), (3, 3, 40)])
def test_add_and_norm(shape, has_bias, dtype, device):
    width = shape[-1]
    tokens, change = (draw(*shape, dtype=dtype, device=device) for _ in range(2))
    bias = draw(width, dtype=dtype, device=device) if has_bias else None
    norm = draw_norm(width, dtype, device)
    results = layer_steps.add_and_norm(tokens, change, bias, norm, 0.0, dtype)
    total = tokens.double() + change.double() + (bias.double() if has_bias else 0.0)
    weights = (norm.weight.double(), norm.bias.double())
    expected = total, functional.layer_norm(total, (width,), *weights, norm.eps)
    leaves = [one for one in (tokens, change, bias, norm.weight, norm.bias) if one is not None]
    for one, other in zip(results, expected, strict=True):
        assert one.dtype == dtype
        assert close(one, other, dtype)
    for one, other in zip(gradients(results, leaves), gradients(expected, leaves), strict=True):
        assert one.dtype == dtype
        assert close(one, other.double(), dtype)


@each_device
@pytest.mark.parametrize("used", [0, 1])
def test_one_of_the_two_results_may_be_unused(used, device):
    tokens, change = (draw(4, 12, dtype=torch.float32, device=device) for _ in range(2))
    norm = draw_norm(12, torch.float32, device)
    result = layer_steps.add_and_norm(tokens, change, None, norm, 0.0, torch.float32)[used]
    total = (tokens + change).double()
    expected = [total, functional.layer_norm(total, (12,), norm.weight.double(), norm.bias.double())][used]
    leaves = [tokens, change]
    for one, other in zip(gradients([result], leaves), gradients([expected], leaves), strict=True):
        assert close(one, other, torch.float32)


@each_device
def test_types_of_tokens_and_norm_may_differ(device):
    tokens = draw(4, 12, dtype=torch.float32, device=device)
    change = draw(4, 12, dtype=torch.bfloat16, device=device)
    norm = draw_norm(12, torch.float32, device)
    total, normed = layer_steps.add_and_norm(tokens, change, None, norm, 0.0, torch.bfloat16)
    assert (total.dtype, normed.dtype) == (torch.float32, torch.bfloat16)
    assert close(normed, norm(tokens + change).double(), torch.bfloat16)
    by_tokens, by_change = gradients([total, normed], [tokens, change])
    assert (by_tokens.dtype, by_change.dtype) == (torch.float32, torch.bfloat16)


@each_device
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(2, 5, 24), (7, 16), (1, 1, 3)])
def test_gelu(shape, has_bias, dtype, device):
    hidden = draw(*shape, dtype=dtype, device=device)
    bias = draw(shape[-1], dtype=dtype, device=device) if has_bias else None
    result = layer_steps.gelu_and_drop(hidden, bias, 0.0)
    expected = functional.gelu(hidden.double() + (bias.double() if has_bias else 0.0))
    leaves = [hidden, bias] if has_bias else [hidden]
    assert close(result, expected, dtype)
    for one, other in zip(gradients([result], leaves), gradients([expected], leaves), strict=True):
        assert one.dtype == dtype
        assert close(one, other.double(), dtype)


@each_device
def test_dropped_entries_are_the_same_in_both_directions(device):
    shape, rate = (9, 6, 64), 0.25
    tokens, change = (draw(*shape, dtype=torch.float32, device=device) for _ in range(2))
    bias = draw(64, dtype=torch.float32, device=device)
    norm = draw_norm(64, torch.float32, device)
    torch.manual_seed(3)
    total, normed = layer_steps.add_and_norm(tokens, change, bias, norm, rate, torch.float32)
    kept = ((total - tokens).detach() != 0).float()
    check_draws(kept, rate)
    expected = tokens + (change + bias) * kept / (1 - rate)
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-5)
    leaves = [tokens, change, bias, norm.weight]
    for one, other in zip(
        gradients([total, normed], leaves), gradients([expected, norm(expected)], leaves), strict=True
    ):
        assert close(one, other.double(), torch.float32)
    hidden = draw(*shape, dtype=torch.float32, device=device)
    result = layer_steps.gelu_and_drop(hidden, bias, rate)
    kept = (result.detach() != 0).float()
    check_draws(kept, rate)
    expected = functional.gelu(hidden + bias) * kept / (1 - rate)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(
        gradients([result], [hidden, bias]), gradients([expected], [hidden, bias]), strict=True
    ):
        assert close(one, other.double(), torch.float32)


def check_draws(kept, rate):
    """Check that entries are dropped independently of their row, their column and their neighbors."""
    kept = kept.flatten(0, -2)
    rows, columns = kept.shape
    assert abs(kept.mean() - (1 - rate)) < 0.03
    for axis, count in ((0, rows), (1, columns)):
        assert (kept.mean(axis) - (1 - rate)).abs().max() < 5 * (rate * (1 - rate) / count) ** 0.5
    centered = kept - kept.mean()
    for shift, axis in ((1, 0), (1, 1), (2, 1), (8, 1)):
        correlation = (centered * centered.roll(shift, axis)).mean() / centered.square().mean()
        assert correlation.abs() < 5 / kept.numel() ** 0.5


@each_device
def test_another_seed_drops_other_entries(device):
    hidden = torch.ones(40, 64, device=device)
    kept = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        kept.append((layer_steps.gelu_and_drop(hidden, None, 0.5) != 0).float() - 0.5)
    assert (kept[0] * kept[1]).mean().abs() < 5 * 0.25 / hidden.numel() ** 0.5


@each_device
def test_without_kernels_the_result_is_the_same(device, monkeypatch):
    tokens, change = (draw(4, 12, dtype=torch.float32, device=device) for _ in range(2))
    bias, norm = draw(12, dtype=torch.float32, device=device), draw_norm(12, torch.float32, device)

    def run():
        total, normed = layer_steps.add_and_norm(tokens, change, bias, norm, 0.0, torch.bfloat16)
        return total, normed, layer_steps.gelu_and_drop(change, bias, 0.0)

    results = run()
    monkeypatch.setattr(layer_steps, "_TRITON", None)
    for one, other in zip(results, run(), strict=True):
        torch.testing.assert_close(one, other)
