"""Sums of rows of a table equal their definition: by torch, and by kernels, interpreted or on a GPU."""

import pytest
import torch

from tests.ops.triton_devices import each_device

# isort: split
from molslice.ops import kernel_choice, table_sums, triton_table_sums
from molslice.ops.table_sums import NO_SLOT


@pytest.fixture(params=["torch", "kernels"])
def form(request, monkeypatch):
    if request.param == "kernels":
        monkeypatch.setattr(table_sums, "_TRITON", triton_table_sums)
        monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda table: True)
    return request.param


def draw(size, width, shape, device):
    table = torch.randn(size, width, device=device).requires_grad_()
    slots = torch.randint(0, size, shape, device=device)
    slots[torch.rand(shape, device=device) < 0.2] = NO_SLOT
    slots[0, 0] = slots[0, 0, 0]  # one row several times
    return table, slots.to(torch.uint8)


@each_device
@pytest.mark.parametrize(
    ("size", "width", "shape"), [(188, 24, (3, 5, 10)), (254, 80, (2, 70, 3)), (1, 3, (1, 1, 1))]
)
def test_values_and_gradients(size, width, shape, device, form):
    table, slots = draw(size, width, shape, device)
    counts = (slots[..., None] == torch.arange(size, device=device)).sum(-2).double()
    expected = counts @ table.double()
    sums = table_sums.table_sums(table, slots)
    torch.testing.assert_close(sums.double(), expected, rtol=0, atol=1e-5)
    slope = torch.randn_like(sums)
    (by_table,) = torch.autograd.grad(sums, [table], slope)
    (defined,) = torch.autograd.grad(expected, [table], slope.double())
    bound = 2e-4 * max(1.0, float(defined.abs().max()))
    torch.testing.assert_close(by_table.double(), defined.double(), rtol=0, atol=bound)
    sums = table_sums.table_sums(table, slots)
    assert torch.equal(torch.autograd.grad(sums, [table], slope)[0], by_table)


def test_what_the_kernels_serve():
    assert triton_table_sums.supports(torch.zeros(255, 8))
    assert not triton_table_sums.supports(torch.zeros(256, 8))
    assert not triton_table_sums.supports(torch.zeros(8, 8, dtype=torch.float64))


def test_float64_is_summed_by_torch(monkeypatch):
    monkeypatch.setattr(table_sums, "_TRITON", triton_table_sums)
    monkeypatch.setattr(kernel_choice, "is_on_gpu", lambda table: True)
    table, slots = draw(9, 4, (2, 3, 5), "cpu")
    with kernel_choice.torch_forms():
        expected = table_sums.table_sums(table.double(), slots)
    assert torch.equal(table_sums.table_sums(table.double(), slots), expected)
