"""The Triton kernels of attention with a bias equal its definition: interpreted on a CPU, compiled on a GPU.

See `triton_devices.py`.
"""

import os
import subprocess
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.ops.triton_devices import HAS_CUDA, each_device

# isort: split
from molslice.ops import biased_attention as module
from molslice.ops import kernels, triton_attention
from molslice.ops.biased_attention import biased_attention
from molslice.ops.masked import masked_pair_bias

TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}  # of the largest entry


@pytest.fixture
def _kernels(monkeypatch):
    """Use the kernels on every device, for every dtype and size."""
    monkeypatch.setattr(module, "_TRITON", triton_attention)
    monkeypatch.setattr(module, "_is_on_gpu", lambda heads: True)
    monkeypatch.setattr(triton_attention, "supports", lambda *tensors: True)


def draw(shape, dtype, device):
    """Return heads in the layout of tokens, and a bias with padding in the first sequence, all leaves."""
    batch, heads, length, channels = shape
    parts = [torch.randn(batch, length, heads, channels).transpose(1, 2) for _ in range(3)]
    parts.append(2 * torch.randn(batch, heads, length, length))
    mask = torch.ones(batch, length, dtype=torch.bool)
    mask[0, (length + 1) // 2 :] = False
    return [part.to(device, dtype).requires_grad_() for part in parts], mask.to(device)


def reference(query, key, value, bias, mask):
    """Compute the attention in float64; rows of padding are zero."""
    query, key, value, bias = (part.double() for part in (query, key, value, bias))
    scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5 + bias
    scores = scores.masked_fill(~mask[:, None, None], -torch.inf)
    return (scores.softmax(-1) @ value) * mask[:, None, :, None]


@each_device
@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(2, 2, 5, 3), (1, 2, 21, 24), (2, 1, 17, 16), (1, 1, 40, 8), (1, 1, 1, 4)])
def test_values_and_gradients_equal_the_definition(shape, dtype, device):
    inputs, mask = draw(shape, dtype, device)
    weight = torch.randn(shape, device=device).to(dtype)
    query, key, value, bias = inputs
    found = biased_attention(query, key, value, masked_pair_bias(bias, mask))
    found = found.masked_fill(~mask[:, None, :, None], 0.0)
    expected = reference(*inputs, mask)
    assert close(found, expected, dtype)
    found = torch.autograd.grad((found * weight).sum(), inputs)
    expected = torch.autograd.grad((expected * weight).sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        assert close(one, other, dtype)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no GPU")
@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(64, 32, 30, 24), (9, 8, 53, 64), (4, 4, 128, 128), (3, 5, 100, 80)])
def test_sizes_of_molecules_on_a_gpu(shape, dtype):
    test_values_and_gradients_equal_the_definition(shape, dtype, "cuda")


def close(found, expected, dtype):
    return (found.double() - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max().clamp(min=1)


@each_device
@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("length", [13, 16])
def test_dropped_weights_are_the_same_in_both_directions(length, device):
    (query, key, _, bias), mask = draw((2, 2, length, length), torch.float32, device)
    mask = torch.ones_like(mask)
    identity = torch.eye(length, device=device).expand(2, 2, -1, -1).clone().requires_grad_()

    def run():
        torch.manual_seed(3)
        return biased_attention(query, key, identity, bias, dropout=0.25)

    dropped, full = run(), reference(query, key, identity, bias, mask).float()
    kept = dropped != 0
    assert 0.65 < kept.float().mean() < 0.85
    heads = kept.flatten(0, 1)
    assert not any(torch.equal(heads[i], heads[j]) for i in range(4) for j in range(i))
    torch.testing.assert_close(dropped, full * kept / 0.75, rtol=1e-4, atol=1e-5)
    assert torch.equal(dropped, run())
    torch.manual_seed(4)
    assert not torch.equal(dropped, biased_attention(query, key, identity, bias, dropout=0.25))
    weight = torch.randn(dropped.shape, device=device)
    leaves = (query, key, identity, bias)
    found = torch.autograd.grad((dropped * weight).sum(), leaves)
    scores = query @ key.transpose(2, 3) / length**0.5 + bias
    defined = (scores.softmax(-1) * kept / 0.75) @ identity
    for one, other in zip(found, torch.autograd.grad((defined * weight).sum(), leaves), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@each_device
@pytest.mark.usefixtures("_kernels")
def test_tensors_of_any_strides(device):
    (query, key, value, bias), mask = draw((2, 3, 6, 4), torch.float32, device)
    padded = [torch.nn.functional.pad(part, (0, 3, 0, 2))[:, :, :6, : part.shape[3]] for part in (key, value)]
    found = biased_attention(query.contiguous(), *padded, bias.transpose(2, 3))
    mask = torch.ones_like(mask)
    assert close(found, reference(query, key, value, bias.transpose(2, 3), mask), torch.float32)


@each_device
@pytest.mark.usefixtures("_kernels")
def test_transforms_are_left_to_torch(device):
    inputs, _ = draw((6, 2, 5, 4), torch.float32, device)
    inputs = [part.detach().unflatten(0, (3, 2)) for part in inputs]
    with sdpa_kernel(SDPBackend.MATH):
        found = torch.func.vmap(biased_attention)(*inputs)
        first = [part[0] for part in inputs]
        tangents = tuple(torch.randn_like(part) for part in first)
        _, slope = torch.func.jvp(biased_attention, tuple(first), tangents)
    expected = torch.stack([biased_attention(*parts) for parts in zip(*inputs, strict=True)])
    torch.testing.assert_close(found, expected)
    step = [1e-3 * tangent for tangent in tangents]
    ends = [
        biased_attention(*(part + sign * one for part, one in zip(first, step, strict=True)))
        for sign in (1, -1)
    ]
    torch.testing.assert_close((ends[0] - ends[1]) / 2e-3, slope, rtol=1e-2, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no GPU")
def test_the_kernels_are_used_on_a_gpu(monkeypatch):
    calls = []
    monkeypatch.setattr(triton_attention, "attend_into", lambda *tensors: calls.append(tensors))

    def count(length, dtype):
        calls.clear()
        biased_attention(*draw((1, 2, length, 8), dtype, "cuda")[0])
        return len(calls)

    assert count(64, torch.bfloat16) == count(30, torch.float16) == 1
    assert count(65, torch.bfloat16) == count(30, torch.float32) == 0
    with kernels.torch_forms():
        assert count(30, torch.bfloat16) == 0


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no GPU")
def test_compiled_without_a_break_on_a_gpu():
    """Runs in a separate process, because the shape checks of the tests cannot be compiled."""
    program = """
import torch
from molslice.ops.biased_attention import biased_attention
parts = [torch.randn(2, 4, 9, 8, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
parts.append(torch.randn(2, 4, 9, 9, device="cuda", dtype=torch.bfloat16, requires_grad=True))
compiled = torch.compile(biased_attention, fullgraph=True, dynamic=True)
results = []
for attend in (compiled, biased_attention):
    found = attend(*parts)
    results.append([found, *torch.autograd.grad(found.sum(), parts)])
for one, other in zip(*results):
    torch.testing.assert_close(one, other)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_the_kernels_serve():
    heads, bias = (torch.zeros(shape, dtype=torch.bfloat16) for shape in [(1, 64, 1, 128), (1, 1, 64, 64)])
    supports = triton_attention.supports
    assert supports(heads, heads, heads, bias)
    assert not supports(*[heads.float()] * 3, bias.float())
    assert not supports(heads, heads, heads, bias.float())
    assert not supports(heads, heads, heads, bias[:, :, :1])
    assert not supports(heads, heads, heads[..., :64], bias)
    assert not supports(*[heads[:0]] * 3, bias[:0])
    for shape in [(1, 65, 1, 8), (1, 8, 1, 129)]:
        larger = torch.zeros(shape, dtype=torch.bfloat16)
        bias = torch.zeros(1, 1, shape[1], shape[1], dtype=torch.bfloat16)
        assert not supports(larger, larger, larger, bias)
