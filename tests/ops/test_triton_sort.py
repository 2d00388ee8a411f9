"""Triton kernels equal the PyTorch operations: interpreted on a CPU, compiled on a GPU.

See `triton_devices.py`.
"""

import pytest
import torch

from tests.ops.triton_devices import HAS_CUDA, each_device

# isort: split
from molslice.ops import column_ops, kernels, triton_mix, triton_sort
from molslice.ops.masked import pair_softmax
from molslice.ops.mixed_sort import mix_and_sort
from molslice.ops.sorting import sort_columns, sorted_columns

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def some_columns(shape, dtype, layout, device):
    """Return columns with ties, zeros and infinities, and masks with padding nowhere, at the end, between."""
    batch, length = shape[0], shape[3]
    drawn = torch.randn(shape).mul(3).round().div(3).to(dtype)
    drawn[..., :1] = torch.inf
    values = column_ops.empty_columns(drawn.to(device), layout, dtype)
    values.copy_(drawn)
    mask = torch.rand(batch, length) > 0.3
    mask[0] = True
    mask[-1] = torch.arange(length) < (length + 1) // 2
    return values, mask.to(device)


# Small: interpreted, a sort takes seconds.
@each_device
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "layout"), [((3, 2, 3, 5), "BNGC"), ((2, 1, 3, 1), "BGCN"), ((2, 1, 3, 17), "BGNC")]
)
@pytest.mark.parametrize(("is_descending", "to_front"), [(False, False), (True, True), (True, False)])
def test_sorts_equal_the_torch_form(shape, layout, is_descending, to_front, dtype, device):
    values, mask = some_columns(shape, dtype, layout, device)
    flags = (torch.arange(shape[1] * shape[2], device=device) % 3 == 1).view(1, *shape[1:3])
    compare_sorts(values, mask, flags if is_descending else None, to_front)


@each_device
def test_indices_of_two_bytes(device):
    compare_sorts(*some_columns((1, 1, 1, 260), torch.float32, "BNGC", device), None, False)


def compare_sorts(values, mask, flags, to_front):
    expected, expected_order = column_ops.sort_by_torch(values, mask, flags, to_front)
    ranked = column_ops.empty_columns(values, "BNGC", values.dtype)
    order = column_ops.empty_columns(values, "BGCN", column_ops.index_dtype(values.shape[3]))
    triton_sort.sort_into(values, mask, flags, to_front, ranked, order)
    assert torch.equal(order, expected_order)
    assert torch.equal(ranked, expected)
    if values.shape[3] < 20:
        alone = torch.zeros_like(ranked)
        triton_sort.sort_into(values, mask, flags, to_front, alone, None)
        assert torch.equal(alone, expected)


@each_device
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["BNGC", "BGNC", "BGCN"])
def test_permutations_equal_the_torch_form(layout, dtype, device):
    values, mask = some_columns((2, 2, 20, 300), dtype, layout, device)
    order = column_ops.sort_by_torch(values, mask)[1]
    for inverse in (False, True):
        for index in (order, order[:, :1, :1]):
            out = column_ops.empty_columns(values, layout, dtype)
            triton_sort.permute_into(values, index, inverse, out)
            assert torch.equal(out, column_ops.permute_by_torch(values, index, inverse))


@each_device
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 2, 7, 5), (1, 1, 24, 20)])
def test_mixing_and_sorting_equals_the_torch_form(shape, dtype, device):
    batch, heads, length, channels = shape
    values = torch.randn(batch, length, heads, channels).to(device, dtype).transpose(1, 2)
    _, mask = some_columns((batch, heads, channels, length), dtype, "BNGC", device)
    bias = torch.randn(batch, heads, length, length, device=device)
    bias[~(mask[:, None, :, None] & mask[:, None, None, :]).expand_as(bias)] = torch.nan
    descending = (torch.arange(heads * channels, device=device) % 2 == 0).view(1, heads, channels)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    weights = pair_softmax(bias, mask)
    for pairs, is_bias, flags in [(bias, True, None), (weights, False, descending)]:
        ranked = torch.zeros(batch, length, heads, channels, dtype=dtype, device=device).permute(0, 2, 3, 1)
        order = torch.zeros(batch, heads, channels, length, dtype=torch.uint8, device=device)
        triton_mix.mix_and_sort_into(values, pairs, mask, flags, is_bias, ranked, order)
        mixed = (weights.to(dtype) @ values).transpose(2, 3)
        expected, _ = column_ops.sort_by_torch(mixed, mask, flags)
        torch.testing.assert_close(ranked, expected, rtol=tolerance, atol=tolerance)
        found = mixed.gather(-1, order.long())  # another order only where values are equal up to rounding
        torch.testing.assert_close(found, expected, rtol=2 * tolerance, atol=2 * tolerance)
        assert torch.equal(order.long().sort(-1).values, torch.arange(length, device=device).expand_as(order))


def test_what_the_kernels_serve():
    columns = torch.zeros(1, 1, 1, 512)
    assert triton_sort.supports(columns)
    assert not triton_sort.supports(columns.double())
    assert not triton_sort.supports(torch.zeros(1, 1, 1, 513))
    assert not triton_sort.supports(columns[:0])
    pairs = torch.zeros(1, 1, 64, 64)
    assert triton_mix.supports(torch.zeros(1, 1, 64, 128), pairs)
    assert not triton_mix.supports(torch.zeros(1, 1, 65, 8), torch.zeros(1, 1, 65, 65))
    assert not triton_mix.supports(torch.zeros(1, 1, 64, 129), pairs)


@pytest.fixture
def everywhere(monkeypatch):
    """Use the Triton kernels for all columns, also on the CPU."""
    monkeypatch.setattr(column_ops, "_triton_for", lambda columns: triton_sort)
    monkeypatch.setattr(column_ops, "_NUMPY_SORTS", ())
    monkeypatch.setattr("molslice.ops.mixed_sort._TRITON", triton_mix)
    monkeypatch.setattr("molslice.ops.mixed_sort._is_fused", lambda values, pairs: True)


@each_device
def test_gradients_behind_the_same_functions(device, everywhere, monkeypatch):
    values, mask = some_columns((2, 2, 3, 7), torch.float32, "BNGC", device)
    values = torch.randn_like(values).requires_grad_()
    heads = torch.randn(2, 2, 7, 3, device=device, requires_grad=True)
    bias = torch.randn(2, 2, 7, 7, device=device, requires_grad=True)
    weights = pair_softmax(bias, mask).detach().requires_grad_()

    def run():
        ranked = [sort_columns(values, mask)[0], sorted_columns(values, mask)]
        ranked += [mix_and_sort(heads, bias, mask, is_bias=True), mix_and_sort(heads, weights, mask)]
        loss = sum(
            (x * torch.linspace(-1, 1, 7, device=device)).masked_fill(~mask[:, None, None], 0).sum()
            for x in ranked
        )
        return [*ranked, *torch.autograd.grad(loss, [values, heads, bias, weights])]

    found = run()
    monkeypatch.setattr(kernels, "ENABLED", False)
    monkeypatch.setattr(column_ops, "_triton_for", lambda columns: None)
    monkeypatch.setattr("molslice.ops.mixed_sort._is_fused", lambda values, pairs: False)
    expected = run()
    expected[-1] = expected[-1].masked_fill(~(mask[:, None, :, None] & mask[:, None, None, :]), 0)
    found[-1] = found[-1].masked_fill(~(mask[:, None, :, None] & mask[:, None, None, :]), 0)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no GPU")
@pytest.mark.parametrize("length", [100, 250, 512, 4000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_long_columns_on_a_gpu(length, dtype):
    values, mask = some_columns((2, 1, 40, length), dtype, "BNGC", "cuda")
    for result, expected in zip(
        sort_columns(values, mask), column_ops.sort_by_torch(values, mask), strict=True
    ):
        assert torch.equal(result, expected)
