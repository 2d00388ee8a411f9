"""Segment means equal those of a loop over the real tokens."""

import pytest
import torch

from molslice.ops.landmarks import segment_means


@pytest.mark.parametrize("num", [1, 3, 4, 9])
@pytest.mark.parametrize("heads", [(), (2,)])
def test_means_over_segments_of_the_real_tokens(num, heads):
    mask = torch.tensor(
        [[0, 1, 1, 0, 1, 1, 1, 1], [1] * 8, [0] * 8, [1, 0, 0, 0, 0, 0, 0, 1]], dtype=torch.bool
    )
    values = torch.randn(4, *heads, 8, 3, dtype=torch.float64)
    means, is_used = segment_means(values, mask, num)
    for b in range(4):
        real = mask[b].nonzero()[:, 0].tolist()
        for k in range(num):
            inside = [token for rank, token in enumerate(real) if rank * num // len(real) == k]
            assert is_used[b, k] == bool(inside)
            expected = values[b, ..., inside, :].mean(-2) if inside else torch.zeros(*heads, 3).double()
            torch.testing.assert_close(means[b, ..., k, :], expected)


def test_with_enough_tokens_every_segment_is_used():
    for n in range(5, 30):
        assert segment_means(torch.zeros(1, n, 1), torch.ones(1, n, dtype=torch.bool), 5)[1].all()
