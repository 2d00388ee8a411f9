"""Triton kernels equal the PyTorch operations: interpreted on a CPU, compiled on a GPU.

See `triton_devices.py`.
"""

import pytest
import torch

from tests.ops.triton_devices import HAS_CUDA, each_device

# isort: split
from molslice.ops import column_ops, kernel_choice, triton_sort
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
    assert torch.equal(order.long(), expected_order)
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
    order = column_ops.sort_by_torch(values, mask)[1].to(torch.int16)
    for inverse in (False, True):
        for index in (order, order[:, :1, :1]):
            out = column_ops.empty_columns(values, layout, dtype)
            triton_sort.permute_into(values, index, inverse, out)
            assert torch.equal(out, column_ops.permute_by_torch(values, index, inverse))


def test_what_the_kernels_serve():
    columns = torch.zeros(1, 1, 1, 512)
    assert triton_sort.supports(columns)
    assert not triton_sort.supports(columns.double())
    assert not triton_sort.supports(torch.zeros(1, 1, 1, 513))
    assert not triton_sort.supports(columns[:0])


@pytest.fixture
def everywhere(monkeypatch):
    """Use the Triton kernels for all columns, also on the CPU."""
    monkeypatch.setattr(column_ops, "_triton_for", lambda columns: triton_sort)
    monkeypatch.setattr(column_ops, "_NUMPY_SORTS", ())


@each_device
def test_gradients_behind_the_same_functions(device, everywhere, monkeypatch):
    values, mask = some_columns((2, 2, 3, 7), torch.float32, "BNGC", device)
    values = torch.randn_like(values).requires_grad_()

    def run():
        ranked = [sort_columns(values, mask)[0], sorted_columns(values, mask)]
        loss = sum(
            (x * torch.linspace(-1, 1, 7, device=device)).masked_fill(~mask[:, None, None], 0).sum()
            for x in ranked
        )
        return [*ranked, *torch.autograd.grad(loss, [values])]

    found = run()
    monkeypatch.setattr(kernel_choice, "ENABLED", False)
    monkeypatch.setattr(column_ops, "_triton_for", lambda columns: None)
    for one, other in zip(found, run(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no GPU")
@pytest.mark.parametrize("length", [100, 250, 512, 4000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_long_columns_on_a_gpu(length, dtype):
    values, mask = some_columns((2, 1, 40, length), dtype, "BNGC", "cuda")
    (ranked, order), expected = sort_columns(values, mask), column_ops.sort_by_torch(values, mask)
    assert torch.equal(ranked, expected[0])
    assert torch.equal(order.long(), expected[1])
