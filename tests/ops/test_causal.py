"""Tests of the chunked causal product."""

import pytest
import torch

from molslice.ops.causal import causal_product


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def testcausal_product_by_chunks_equals_the_triangle(length):
    query, key = torch.randn(2, 2, 2, length, 4, dtype=torch.float64)
    value = torch.randn(2, 2, length, 3, dtype=torch.float64)
    expected = (query @ key.transpose(-1, -2)).tril() @ value
    torch.testing.assert_close(causal_product(query, key, value), expected)


def test_causal_product_loses_nothing_to_a_large_future():
    query, key = torch.rand(2, 1, 1, 100, 4)
    value = torch.rand(1, 1, 100, 3)
    expected = causal_product(query, key, value)[:, :, :90]
    key[:, :, 90:] *= 1e12
    assert torch.equal(causal_product(query, key, value)[:, :, :90], expected)


@pytest.mark.parametrize("length", [1, 64, 65, 200])
def test_decayed_product_by_chunks_equals_the_triangle(length):
    query, key = torch.randn(2, 2, 2, length, 4, dtype=torch.float64)
    value = torch.randn(2, 2, length, 3, dtype=torch.float64)
    log_decay = -torch.rand(2, 2, length, 1, dtype=torch.float64).requires_grad_()
    total = log_decay.cumsum(2)
    factors = (total - total.transpose(-1, -2)).tril().exp()
    expected = (query @ key.transpose(-1, -2) * factors).tril() @ value
    product = causal_product(query, key, value, log_decay)
    torch.testing.assert_close(product, expected)
    gradients = [
        torch.autograd.grad(x.square().sum(), log_decay, retain_graph=True)[0] for x in (product, expected)
    ]
    torch.testing.assert_close(*gradients)


def test_a_decay_to_nothing_cuts_the_past_off():
    query, key = torch.rand(2, 1, 1, 200, 4)
    value = torch.rand(1, 1, 200, 3)
    log_decay = torch.zeros(1, 1, 200, 1)
    log_decay[:, :, 100] = -1e4
    expected = causal_product(query[:, :, 100:], key[:, :, 100:], value[:, :, 100:])
    product = causal_product(query, key, value, log_decay)
    torch.testing.assert_close(product[:, :, 100:], expected)
    torch.testing.assert_close(product[:, :, :100], causal_product(query, key, value)[:, :, :100])
