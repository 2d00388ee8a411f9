"""The Triton kernels of attention with a bias equal its definition: interpreted on a CPU, compiled on a GPU.

Skipped if Triton is not installed. For the interpreter, run `pip install triton`, then this file.
"""

import os

import pytest
import torch

HAS_CUDA = torch.cuda.is_available()
if not HAS_CUDA:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read where Triton is imported
pytest.importorskip("triton")

from molslice.ops import biased_attention as module  # noqa: E402
from molslice.ops import triton_attention  # noqa: E402
from molslice.ops.biased_attention import biased_attention  # noqa: E402
from molslice.ops.masked import masked_pair_bias  # noqa: E402

INTERPRETED = pytest.param("cpu", marks=pytest.mark.skipif(HAS_CUDA, reason="compiled, not interpreted"))
COMPILED = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not HAS_CUDA, reason="no GPU")])
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}  # of the largest entry
each_device = pytest.mark.parametrize("device", [INTERPRETED, COMPILED])


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    """Use the kernels on every device."""
    monkeypatch.setattr(
        module,
        "_kernels_for",
        lambda query, key, bias: triton_attention,
    )


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
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(64, 32, 30, 24), (9, 8, 53, 64), (4, 4, 128, 128), (3, 5, 100, 80)])
def test_sizes_of_molecules_on_a_gpu(shape, dtype):
    test_values_and_gradients_equal_the_definition(shape, dtype, "cuda")


def close(found, expected, dtype):
    return (found.double() - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max().clamp(min=1)


@each_device
def test_dropped_weights_are_the_same_in_both_directions(device):
    (query, key, _, bias), mask = draw((2, 2, 16, 16), torch.float32, device)
    mask = torch.ones_like(mask)
    identity = torch.eye(16, device=device).expand(2, 2, 16, 16).clone().requires_grad_()

    def run():
        torch.manual_seed(3)
        return biased_attention(query, key, identity, bias, dropout=0.25)

    dropped, full = run(), reference(query, key, identity, bias, mask).float()
    kept = dropped != 0
    assert 0.65 < kept.float().mean() < 0.85
    torch.testing.assert_close(dropped, full * kept / 0.75, rtol=1e-4, atol=1e-5)
    assert torch.equal(dropped, run())
    torch.manual_seed(4)
    assert not torch.equal(dropped, biased_attention(query, key, identity, bias, dropout=0.25))
    weight = torch.randn(dropped.shape, device=device)
    leaves = (query, key, identity, bias)
    found = torch.autograd.grad((dropped * weight).sum(), leaves)
    scores = query @ key.transpose(2, 3) / 4 + bias
    defined = (scores.softmax(-1) * kept / 0.75) @ identity
    for one, other in zip(found, torch.autograd.grad((defined * weight).sum(), leaves), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@each_device
def test_an_extra_axis_under_vmap(device):
    inputs, _ = draw((6, 2, 5, 4), torch.float32, device)
    inputs = [part.detach().unflatten(0, (3, 2)) for part in inputs]
    found = torch.func.vmap(biased_attention)(*inputs)
    expected = torch.stack([biased_attention(*parts) for parts in zip(*inputs, strict=True)])
    torch.testing.assert_close(found, expected)


def test_what_the_kernels_serve():
    heads, bias = (torch.zeros(shape, dtype=torch.bfloat16) for shape in [(1, 64, 1, 128), (1, 1, 64, 64)])
    assert triton_attention.supports(heads, heads, bias)
    assert not triton_attention.supports(heads.float(), heads.float(), bias.float())
    assert not triton_attention.supports(heads, heads, bias.float())
    assert not triton_attention.supports(heads, heads, bias[:, :, :1])
    assert not triton_attention.supports(heads[:0], heads[:0], bias[:0])
    for shape in [(1, 65, 1, 8), (1, 8, 1, 129)]:
        larger = torch.zeros(shape, dtype=torch.bfloat16)
        bias = torch.zeros(1, 1, shape[1], shape[1], dtype=torch.bfloat16)
        assert not triton_attention.supports(larger, larger, bias)
