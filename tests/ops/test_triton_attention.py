"""The Triton kernels of attention with a bias equal its definition: interpreted on a CPU, compiled on a GPU.

See `triton_devices.py`.
"""

import itertools
import os
import subprocess
import sys

import pytest
import torch

from tests.ops.triton_devices import HAS_CUDA, each_device

# isort: split
from molslice.ops import kernel_choice, triton_attention, triton_flow
from molslice.ops import packed_attention as module
from molslice.ops.packed_attention import has_kernels, packed_attention

KINDS = ["softmax", "flow"]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}  # of the largest entry


@pytest.fixture
def _kernels(monkeypatch):
    """Use the kernels on every device."""
    monkeypatch.setattr(module, "_TRITON", {"softmax": triton_attention, "flow": triton_flow})
    monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda tokens: True)


def draw(shape, dtype, device):
    """Return queries, keys and values in one tensor, and a bias, both with garbage at padding; the mask."""
    batch, heads, length, channels = shape
    mask = torch.ones(batch, length, dtype=torch.bool)
    mask[0, (length + 1) // 2 :] = False
    mask[-1, 0] = length == 1
    packed = torch.randn(batch, length, 3, heads, channels)
    packed[~mask] = torch.nan
    bias = 2 * torch.randn(batch, heads, length, length)
    bias.masked_fill_(~pairs_of(mask), torch.inf)
    return packed.to(device, dtype).requires_grad_(), bias.to(device, dtype).requires_grad_(), mask.to(device)


def pairs_of(mask):
    return (mask[:, None] & mask[:, :, None])[:, None]


def reference(packed, bias, mask, kind="softmax"):
    """Compute the attention in float64 without padding; rows of padding are zero."""
    if kind == "flow":
        return flow_reference(packed, bias, mask)
    query, key, value = packed.double().masked_fill(~mask[:, :, None, None, None], 0.0).unbind(2)
    scores = torch.einsum("bnhc,bmhc->bhnm", query, key) / query.shape[-1] ** 0.5
    scores = scores + bias.double().masked_fill(~pairs_of(mask), 0.0)
    weights = scores.masked_fill(~mask[:, None, None], -1e300).softmax(-1)
    return torch.einsum("bhnm,bmhc->bnhc", weights, value) * mask[:, :, None, None]


def flow_reference(packed, bias, mask):
    """Compute flow attention in float64, one sequence at a time and without padding."""
    results = torch.zeros_like(packed[:, :, 0], dtype=torch.float64)
    for b, real in enumerate(mask):
        if not real.any():
            continue
        query, key, value = packed[b, real].double().permute(1, 2, 0, 3)
        logarithms = bias[b].double()[:, real][:, :, real]
        factors = logarithms.exp()
        capacity = query.sigmoid() @ key.sigmoid().transpose(1, 2) * factors
        # epsilon has the unit of its sum: the largest factor, as a constant
        incoming = capacity.sum(2, keepdim=True) + 1e-6 * factors.detach().amax(2, keepdim=True)
        outgoing = capacity.sum(1, keepdim=True) + 1e-6 * factors.detach().amax(1, keepdim=True)
        sink, source = (capacity / outgoing).sum(2, keepdim=True), (capacity / incoming).sum(1, keepdim=True)
        weights = capacity / incoming * (source.softmax(2) * int(real.sum())) * sink.sigmoid()
        results[b] = results[b].index_put((real,), (weights @ value).transpose(0, 1))
    return results


@each_device
@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "shape", [(2, 2, 5, 3), (2, 4, 21, 24), (2, 1, 17, 16), (2, 1, 40, 8), (1, 8, 1, 4), (3, 4, 16, 24)]
)
def test_values_and_gradients_equal_the_definition(shape, dtype, kind, device):
    packed, bias, mask = draw(shape, dtype, device)
    weight = torch.randn(reference(packed, bias, mask, kind).shape, device=device).to(dtype)
    weight = weight.masked_fill(~mask[:, :, None, None], torch.nan)  # a gradient at padding is not used
    heads, _ = packed_attention(packed, bias, mask, kind=kind)
    expected = reference(packed, bias, mask, kind)
    assert close(heads, expected, dtype)
    gradients = torch.autograd.grad(heads, [packed, bias], weight)
    defined = torch.autograd.grad(expected, [packed, bias], weight.double().nan_to_num(0.0))
    for one, other in zip(gradients, defined, strict=True):
        assert one.dtype == dtype
        assert close(one, other.nan_to_num(0.0), dtype)


@each_device
@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_the_bias_are_added_along_the_layers(kind, device):
    packed, bias, mask = draw((2, 4, 6, 4), torch.float32, device)
    handed_on, heads, defined = bias, [], []
    for factor in (1.0, 0.5, -1.0):
        result, handed_on = packed_attention(packed * factor, handed_on, mask, kind=kind)
        heads.append(result)
        defined.append(reference(packed * factor, bias, mask, kind))
    weights = [torch.randn_like(one) for one in heads]
    (by_bias,) = torch.autograd.grad(heads, [bias], weights, retain_graph=True)
    (expected,) = torch.autograd.grad(defined, [bias], [weight.double() for weight in weights])
    assert close(by_bias, expected, torch.float32)
    # and in whatever order they are used
    (by_bias,) = torch.autograd.grad(
        [packed_attention(packed, handed_on, mask, kind=kind)[0]], [bias], weights[:1]
    )
    (expected,) = torch.autograd.grad([reference(packed, bias, mask, kind)], [bias], [weights[0].double()])
    assert close(by_bias, expected, torch.float32)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no GPU")
@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        *itertools.product([(64, 32, 30, 24), (9, 8, 53, 64)], KINDS),
        ((4, 4, 128, 128), "softmax"),
        ((3, 5, 100, 80), "softmax"),
    ],
)
def test_sizes_of_molecules_on_a_gpu(shape, kind, dtype):
    test_values_and_gradients_equal_the_definition(shape, dtype, kind, "cuda")


def close(result, expected, dtype):
    return (result.double() - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max().clamp(min=1)


@each_device
@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("length", [13, 16])
def test_dropped_weights_are_the_same_in_both_directions(length, device):
    packed, bias, mask = draw((2, 4, length, length), torch.float32, device)
    mask = torch.ones_like(mask)
    with torch.no_grad():
        packed.nan_to_num_(0.5)
        packed[:, :, 2] = torch.eye(length, device=device)[:, None]
        bias.masked_fill_(bias == torch.inf, 1.0)

    def run():
        torch.manual_seed(3)
        return packed_attention(packed, bias, mask, 0.25)[0]

    dropped, full = run(), reference(packed, bias, mask).float()
    kept = dropped != 0
    assert 0.65 < kept.float().mean() < 0.85
    heads = kept.transpose(1, 2).flatten(0, 1)
    assert not any(torch.equal(heads[i], heads[j]) for i in range(8) for j in range(i))
    torch.testing.assert_close(dropped, full * kept / 0.75, rtol=1e-4, atol=1e-5)
    assert torch.equal(dropped, run())
    torch.manual_seed(4)
    assert not torch.equal(dropped, packed_attention(packed, bias, mask, 0.25)[0])
    weight = torch.randn(dropped.shape, device=device)
    gradients = torch.autograd.grad((dropped * weight).sum(), [packed, bias])
    query, key, value = packed.unbind(2)
    scores = torch.einsum("bnhc,bmhc->bhnm", query, key) / length**0.5 + bias
    weights = scores.softmax(-1) * kept.transpose(1, 2) / 0.75
    defined = torch.einsum("bhnm,bmhc->bnhc", weights, value)
    for one, other in zip(
        gradients, torch.autograd.grad((defined * weight).sum(), [packed, bias]), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("_kernels")
def test_what_the_kernels_serve():
    def serves(length, channels, dtype=torch.bfloat16):
        return has_kernels(torch.zeros(1, length, 2 * channels), channels, dtype)

    assert serves(64, 128)
    assert serves(1, 1, torch.float16)
    assert not serves(65, 8)
    assert not serves(8, 129)
    assert not serves(8, 8, torch.float32)
    assert not serves(0, 8)
    with kernel_choice.torch_forms():
        assert not serves(8, 8)


@pytest.mark.usefixtures("_kernels")
def test_transforms_are_left_to_torch():
    results = []

    def serves(tokens):
        results.append(has_kernels(tokens, 4, torch.bfloat16))
        return tokens

    torch.func.vmap(serves)(torch.zeros(3, 2, 5, 8))
    torch.func.jvp(serves, (torch.zeros(2, 5, 8),), (torch.zeros(2, 5, 8),))
    assert results == [False, False]


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no GPU")
def test_compiled_without_a_break_on_a_gpu():
    """Runs in a separate process, because the shape checks of the tests cannot be compiled."""
    program = """
import torch
from molslice.ops.packed_attention import packed_attention
packed = torch.randn(2, 9, 3, 4, 8, device="cuda", dtype=torch.bfloat16, requires_grad=True)
bias = torch.randn(2, 4, 9, 9, device="cuda", dtype=torch.bfloat16, requires_grad=True)
mask = torch.ones(2, 9, dtype=torch.bool, device="cuda")
compiled = torch.compile(packed_attention, fullgraph=True, dynamic=True)
results = []
for attend in (compiled, packed_attention):
    heads, _ = attend(packed, bias, mask)
    results.append([heads, *torch.autograd.grad(heads.sum(), [packed, bias])])
for one, other in zip(*results):
    torch.testing.assert_close(one, other)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
