"""The Triton kernels among pseudo-tokens equal their definition: interpreted on a CPU, compiled on a GPU.

See `triton_devices.py`.
"""

import pytest
import torch

from tests.ops.triton_devices import HAS_CUDA, each_device

# isort: split
from molslice.ops import folded_attention as module
from molslice.ops import kernel_choice, layer_steps, triton_folded, triton_layers
from molslice.ops.folded_attention import FoldingMaps, folded_attention, has_kernels

TOLERANCE = {torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}  # of the largest entry
NAMES = ("packed", "added", "folding", "dropped", "unfolding", "bias", "carry")


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    """Use the kernels on every device."""
    monkeypatch.setattr(module, "_TRITON", triton_folded)
    monkeypatch.setattr(layer_steps, "_TRITON", triton_layers)
    monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda tokens: True)


def draw(shape, dtype, device):
    """Return the inputs by name, with garbage at padding of those that may be arbitrary there; the mask."""
    batch, heads, length, channels, rank = shape
    mask = torch.ones(batch, length, dtype=torch.bool)
    mask[0, (length + 1) // 2 :] = False
    mask[-1, 0] = length == 1
    pairs = (mask[:, None] & mask[:, :, None])[:, None]
    packed = torch.randn(batch, length, 3, heads, channels)
    packed[~mask] = torch.nan
    shares = [torch.rand(batch, rank, length) * mask[:, None] for _ in range(3)]
    folding, dropped, unfolding = (share / share.sum(2, keepdim=True).clamp(min=1e-3) for share in shares)
    inputs = {
        "packed": packed,
        "added": torch.randn(3 * heads * channels),
        "folding": folding,
        "dropped": 2 * dropped,  # need not sum to one
        "unfolding": unfolding.transpose(1, 2).contiguous(),
        "bias": torch.randn(batch, heads, length, length).masked_fill(~pairs, torch.inf),
        "carry": torch.randn(batch, heads, rank, rank),
    }
    return {name: one.to(device, dtype).requires_grad_() for name, one in inputs.items()}, mask.to(device)


def without(inputs, names):
    return {name: None if name in names else one for name, one in inputs.items()}


def attend(inputs, mask, dropout=0.0, scale=0.5):
    packed, added, *maps, bias, carry = (inputs[name] for name in NAMES)
    return folded_attention(packed, added, FoldingMaps(*maps), bias, carry, mask, dropout, scale)


def reference(inputs, mask, scale=0.5, factors=1.0):
    """Compute the attention in float64."""
    wide = {name: None if one is None else one.double() for name, one in inputs.items()}
    packed = wide["packed"].masked_fill(~mask[:, :, None, None, None], 0.0)
    folded = torch.einsum("brn,bnphc->bprhc", wide["dropped"], packed)
    if wide["added"] is not None:
        folded = folded + wide["added"].view(3, 1, *packed.shape[3:])
    query, key, value = folded.unbind(1)
    scores = torch.einsum("brhc,bshc->bhrs", query, key) * scale
    if wide["bias"] is not None:
        pairs = (mask[:, None] & mask[:, :, None])[:, None]
        bias = wide["bias"].masked_fill(~pairs, 0.0)
        scores = scores + torch.einsum("brn,bhnm,bsm->bhrs", wide["folding"], bias, wide["folding"])
    if wide["carry"] is not None:
        scores = scores + wide["carry"]
    weights = scores.softmax(-1)
    off = 1 - torch.eye(weights.shape[-1], dtype=torch.float64, device=weights.device)
    heads = torch.einsum("bhrs,bshc->brhc", weights * factors, value)
    mixed = torch.einsum("bnr,brhc->bnhc", wide["unfolding"], heads)
    return mixed, scores, ((weights * off) ** 2).sum((2, 3))


def close(result, expected, dtype):
    return (result.double() - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max().clamp(min=1)


@each_device
@pytest.mark.parametrize("missing", [(), ("carry",), ("bias", "carry"), ("added",)])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "shape", [(2, 2, 5, 3, 3), (2, 3, 21, 24, 24), (2, 9, 17, 16, 4), (1, 1, 40, 8, 32), (1, 8, 1, 4, 5)]
)
def test_values_and_gradients_equal_the_definition(shape, dtype, missing, device):
    torch.manual_seed(0)
    inputs, mask = draw(shape, dtype, device)
    inputs = without(inputs, missing)
    results, expected = attend(inputs, mask), reference(inputs, mask)
    for result, other in zip(results, expected, strict=True):
        assert close(result, other, dtype)
    assert not results[0][~mask].any()
    upstream = [torch.randn(one.shape, dtype=torch.float64, device=device) for one in expected]
    # a gradient at padding is not used
    given = [one.to(result.dtype) for one, result in zip(upstream, results, strict=True)]
    given[0] = given[0].masked_fill(~mask[:, :, None, None], torch.nan)
    leaves = [one for one in inputs.values() if one is not None]
    gradients = torch.autograd.grad(results, leaves, given)
    defined = torch.autograd.grad(expected, leaves, upstream, materialize_grads=True)
    for leaf, gradient, other in zip(leaves, gradients, defined, strict=True):
        name = next(name for name, one in inputs.items() if one is leaf)
        assert gradient.dtype == dtype
        # at padding the maps are constants
        if name in ("folding", "dropped", "unfolding"):
            real = mask[..., None] if name == "unfolding" else mask[:, None]
            gradient, other = gradient * real, other * real  # noqa: PLW2901
        assert close(gradient, other.nan_to_num(0.0), dtype), name


@each_device
@pytest.mark.parametrize("used", range(3))
def test_one_of_the_results_may_be_used_alone(used, device):
    inputs, mask = draw((2, 3, 6, 4, 4), torch.float32, device)
    leaves = [inputs["packed"], inputs["bias"], inputs["carry"]]
    result, expected = attend(inputs, mask)[used], reference(inputs, mask)[used]
    weight = torch.randn(result.shape, device=device)
    gradients = torch.autograd.grad(result, leaves, weight)
    defined = torch.autograd.grad(expected, leaves, weight.double())
    for gradient, other in zip(gradients, defined, strict=True):
        assert close(gradient, other.nan_to_num(0.0), torch.float32)


@each_device
def test_dropped_weights_are_the_same_in_both_directions(device):
    inputs, mask = draw((2, 4, 8, 12, 12), torch.float32, device)
    mask = torch.ones_like(mask)
    with torch.no_grad():
        for one in inputs.values():
            one.nan_to_num_(0.5, posinf=0.5)
        # the value of pseudo-token r is e_r
        inputs["dropped"].copy_(torch.eye(12, 8, device=device))
        inputs["packed"][:, :, 2] = torch.eye(8, 12, device=device)[:, None]
        inputs["unfolding"].copy_(torch.eye(8, 12, device=device))
        inputs["added"].zero_()

    def run():
        torch.manual_seed(3)
        return attend(inputs, mask, 0.25)[0]

    dropped, full = run(), reference(inputs, mask)[0].float()
    kept = dropped[..., :8] != 0
    assert 0.65 < kept.float().mean() < 0.85
    torch.testing.assert_close(dropped[..., :8], full[..., :8] * kept / 0.75, rtol=1e-4, atol=1e-5)
    assert torch.equal(dropped, run())
    torch.manual_seed(4)
    assert not torch.equal(dropped, attend(inputs, mask, 0.25)[0])
    # the weights of the first 8 pseudo-tokens for the first 8 are seen; others have no values
    factors = torch.ones(2, 4, 12, 12, dtype=torch.float64, device=device)
    factors[:, :, :8, :8] = kept.transpose(1, 2) / 0.75
    weight = torch.randn(dropped.shape, device=device)
    weight[..., 8:] = 0.0
    leaves = [inputs[name] for name in ("packed", "bias", "carry", "unfolding")]
    gradients = torch.autograd.grad((dropped * weight).sum(), leaves)
    expected = (reference(inputs, mask, factors=factors)[0] * weight).sum()
    defined = torch.autograd.grad(expected, leaves)
    for name, gradient, other in zip(
        ("packed", "bias", "carry", "unfolding"), gradients, defined, strict=True
    ):
        if name == "unfolding":  # it sees the weights of all pseudo-tokens
            gradient, other = gradient[..., :8], other[..., :8]  # noqa: PLW2901
        torch.testing.assert_close(gradient.double(), other.double(), rtol=1e-3, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no GPU")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(64, 32, 30, 24, 24), (9, 8, 53, 64, 32), (3, 5, 64, 16, 16)])
def test_sizes_of_molecules_on_a_gpu(shape, dtype):
    test_values_and_gradients_equal_the_definition(shape, dtype, (), "cuda")


def test_what_the_kernels_serve():
    def serves(length, channels, rank, dtype=torch.bfloat16):
        return has_kernels(torch.zeros(1, length, 2 * channels), channels, rank, dtype)

    assert serves(64, 64, 32)
    assert serves(1, 1, 1, torch.float16)
    assert not serves(65, 8, 8)
    assert not serves(8, 65, 8)
    assert not serves(8, 8, 33)
    assert not serves(8, 8, 8, torch.float32)
    assert not serves(0, 8, 8)
