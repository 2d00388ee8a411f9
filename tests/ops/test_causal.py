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
