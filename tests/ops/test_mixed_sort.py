"""Mixing and sorting in one operation, with PyTorch in the place of the Triton kernel."""

from types import SimpleNamespace

import pytest
import torch

from molslice.ops import kernels, mixed_sort
from molslice.ops.column_ops import sort_by_torch
from molslice.ops.masked import pair_softmax


def mix_and_sort_into(values, pairs, token_mask, descending, is_bias, ranked, order):
    weights = pair_softmax(pairs, token_mask) if is_bias else pairs
    mixed = (weights.to(values.dtype) @ values).transpose(2, 3)
    for target, result in zip((ranked, order), sort_by_torch(mixed, token_mask, descending), strict=True):
        target.copy_(result)


@pytest.fixture
def fused(monkeypatch):
    fake = SimpleNamespace(mix_and_sort_into=mix_and_sort_into)
    monkeypatch.setattr(mixed_sort, "_TRITON", fake)
    monkeypatch.setattr(mixed_sort, "_is_fused", lambda values, pairs: True)


@pytest.mark.parametrize("is_bias", [True, False])
@pytest.mark.parametrize("flags", [None, [[True, False, True], [False, True, True]]])
def test_the_fused_operation_equals_two_steps(is_bias, flags, fused, monkeypatch):
    mask = torch.tensor([[True] * 5, [True, False, True, True, False]])
    values = torch.randn(2, 2, 5, 3, dtype=torch.float64, requires_grad=True)
    pairs = torch.randn(2, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    flags = None if flags is None else torch.tensor(flags)
    real = mask[:, None, :, None] & mask[:, None, None, :]

    def run():
        given = pairs if is_bias else pairs.masked_fill(~real, 0.0)
        ranked = mixed_sort.mix_and_sort(values, given, mask, flags, is_bias)
        loss = (ranked * torch.linspace(-1, 1, 5)).masked_fill(~mask[:, None, None], 0.0).sum()
        by_values, by_pairs = torch.autograd.grad(loss, [values, pairs])
        return ranked.masked_fill(~mask[:, None, None], 0.0), by_values, by_pairs.masked_fill(~real, 0.0)

    found = run()
    monkeypatch.setattr(mixed_sort, "_is_fused", lambda values, pairs: False)
    for one, other in zip(found, run(), strict=True):
        torch.testing.assert_close(one, other)


def test_the_order_is_not_differentiable(fused):
    values, pairs = (torch.randn(1, 1, 3, size, requires_grad=True) for size in (2, 3))
    mask = torch.ones(1, 3, dtype=torch.bool)
    ranked, order = mixed_sort._MixAndSort.apply(values, pairs, mask, None, True)
    assert ranked.requires_grad
    assert not order.requires_grad


def test_kernels_are_off_within_torch_forms():
    before = kernels.ENABLED
    with kernels.torch_forms():
        assert not kernels.ENABLED
    assert kernels.ENABLED is before
