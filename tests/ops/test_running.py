"""Tests of running sums without tokens; `test_laplace.py` and the contract compare other sums."""

import torch

from molslice.ops.running import running_product, running_sum


def test_sums_over_no_tokens_are_empty():
    rows, exponent = torch.zeros(2, 3, 0, 4), torch.zeros(2, 3, 0)
    sums, top = running_sum(exponent, rows)
    assert (sums.shape, top.shape) == ((2, 3, 0, 4), (2, 3, 0))
    assert running_product(rows[..., :2], rows[..., :2], rows, exponent).shape == (2, 3, 0, 4)
