"""Tests of blocks of packed sequences and of their gathered neighbors."""

import pytest
import torch

from molslice.ops.packing import packing_order
from molslice.ops.windows import (
    attend_blocks,
    gather_blocks,
    gather_pairs,
    hash_words,
    merge_blocks,
    split_blocks,
    window_positions,
    window_reach,
    with_neighbors,
)

PLACES = torch.arange(1, 8)[None]  # seven positions, zero being none of them


@pytest.mark.parametrize(("length", "size"), [(7, 3), (6, 3), (2, 5), (5, 1)])
def test_merging_is_the_inverse_of_splitting(length, size):
    values = torch.randn(2, length, 3, 2)
    blocks = split_blocks(values, size)
    assert blocks.shape == (2, -(-length // size), size, 3, 2)
    assert not blocks.flatten(1, 2)[:, length:].any()
    assert torch.equal(merge_blocks(blocks, length), values)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (3, 3, [[0, 0, 0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7, 0, 0], [4, 5, 6, 7, 0, 0, 0, 0, 0]]),
        (2, 0, [[0, 0, 1, 2, 3], [2, 3, 4, 5, 6], [5, 6, 7, 0, 0]]),
        (0, 1, [[1, 2, 3, 4], [4, 5, 6, 7], [7, 0, 0, 0]]),
        (0, 0, [[1, 2, 3], [4, 5, 6], [7, 0, 0]]),
    ],
)
def test_neighbors_are_around_their_block_with_their_positions(before, after, expected):
    found = with_neighbors(split_blocks(PLACES, 3), before, after)
    assert found[0].tolist() == expected
    queries, keys = window_positions(3, 3, before, after, PLACES.device)
    assert queries.flatten().tolist() == list(range(9))
    named = [
        [position + 1 if 0 <= position < 7 else 0 for position in row] for row in keys[0, 0, :, 0].tolist()
    ]
    assert named == expected


@pytest.mark.parametrize(("length", "window", "expected"), [(9, 4, (4, 4)), (4, 4, (4, 0)), (0, 4, (1, 0))])
def test_a_short_sequence_is_one_block_without_neighbors(length, window, expected):
    assert window_reach(length, window) == expected


def test_blocks_are_gathered_head_by_head():
    blocks = torch.randn(2, 4, 3, 2, 5)  # B J S H C
    index = torch.randint(4, (2, 2, 6, 3))  # B H G R
    found = gather_blocks(blocks, index).unflatten(2, (3, 3))
    for b, h, g, r in [(0, 0, 0, 0), (1, 1, 5, 2), (0, 1, 3, 1), (1, 0, 2, 2)]:
        assert torch.equal(found[b, g, r, :, h], blocks[b, index[b, h, g, r], :, h])


def test_pairs_are_those_of_the_real_tokens_and_garbage_is_not_read():
    mask = torch.tensor([[False, True, True, False, True], [True] * 5])
    bias = torch.randn(2, 3, 5, 5)
    bias[0, :, 0] = bias[0, :, :, 3] = torch.nan
    bias.requires_grad_()
    rows, columns = window_positions(2, 3, 3, 3, mask.device)
    found = gather_pairs(bias, packing_order(mask), mask.sum(1), rows, columns)
    assert found.shape == (2, 3, 2, 3, 9)
    for b, real in enumerate(row.nonzero()[:, 0].tolist() for row in mask):
        for g, s, k in [(g, s, k) for g in range(2) for s in range(3) for k in range(9)]:
            i, j = 3 * g + s, 3 * g - 3 + k
            is_real = i < len(real) and 0 <= j < len(real)
            expected = bias[b, :, real[i], real[j]] if is_real else torch.zeros(3)
            assert torch.equal(found[b, :, g, s, k], expected)
    found.sum().backward()
    pairs = mask[:, None, :, None] & mask[:, None, None]
    assert not bias.grad.masked_fill(pairs, 0.0).any()
    assert torch.isfinite(bias.grad).all()


@pytest.mark.parametrize("is_biased", [False, True])
def test_blocks_attend_by_softmax_over_what_they_see(is_biased):
    query, key, value = torch.randn(2, 3, 4, 6), *torch.randn(2, 2, 3, 5, 6)
    seen = torch.rand(2, 1, 3, 4, 5) < 0.5
    seen[..., 0] = True
    bias = torch.randn(2, 2, 3, 4, 5) if is_biased else None
    found = attend_blocks(query, key, value, seen, bias, 2, 0.0)
    for h in range(2):
        part = slice(3 * h, 3 * h + 3)
        scores = query[..., part] @ key[..., part].transpose(-1, -2) / 3**0.5
        scores = scores if bias is None else scores + bias[:, h]
        weights = scores.masked_fill(~seen[:, 0], -torch.inf).softmax(-1)
        torch.testing.assert_close(found[..., part], weights @ value[..., part])


def test_hashed_words_are_fixed_and_spread():
    numbers = hash_words(1, torch.arange(50)[:, None], torch.arange(40))
    assert torch.equal(numbers[7, 9], hash_words(1, 7, 9))
    assert hash_words(-1, 2).item() == 1512561745
    assert numbers.unique().numel() == 2000
    assert not torch.equal(numbers, hash_words(2, torch.arange(50)[:, None], torch.arange(40)))
    share = torch.bincount((numbers % 5).flatten(), minlength=5) / 2000
    assert (share - 0.2).abs().max() < 0.04
