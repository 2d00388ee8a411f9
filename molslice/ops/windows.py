"""Blocks of packed sequences and the keys of each block of queries: windows, selected blocks, pairs.

A sparse attention cuts a packed sequence (`packing.py`) into G blocks of S positions, gathers for each block
of queries its K keys, and attends densely within: N K scores instead of N x N. Positions count the tokens of
the packed sequence from 0. Scores and what is added to them are [B, H, G, S, K]. Positions outside of the
sequence are allowed; a mask hides them.
"""

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional

_WORD = 0xFFFFFFFF


def split_blocks(values: Shaped[Tensor, "B N *rest"], size: int) -> Shaped[Tensor, "B G S *rest"]:
    """Cut sequences [B, N, ...] into blocks of `size` positions [B, G, S, ...].

    The last block is filled with zeros.
    """
    missing = -values.shape[1] % size
    padded = functional.pad(values, (0, 0) * (values.ndim - 2) + (0, missing))
    return padded.unflatten(1, (-1, size))


def merge_blocks(blocks: Shaped[Tensor, "B G S *rest"], length: int) -> Shaped[Tensor, "B N *rest"]:
    """Invert `split_blocks` for sequences of `length` positions: [B, G, S, ...] to [B, N, ...]."""
    return blocks.flatten(1, 2)[:, :length]


def with_neighbors(
    blocks: Shaped[Tensor, "B G S *rest"], before: int, after: int
) -> Shaped[Tensor, "B G K *rest"]:
    """Extend each block by up to S positions of each neighbor, with zeros beyond the ends of the sequence.

    K = before + S + after.
    """
    size = blocks.shape[2]
    padded = functional.pad(blocks, (0, 0) * (blocks.ndim - 2) + (1, 1))
    return torch.cat([padded[:, :-2, size - before :], blocks, padded[:, 2:, :after]], 2)


def window_reach(length: int, window: int) -> tuple[int, int]:
    """Return the block size for a window, and the number of positions needed from each neighboring block.

    A sequence within the window is one block without neighbors.
    """
    return (window, window) if length > window else (max(length, 1), 0)


def window_positions(
    count: int, size: int, before: int, after: int, device: torch.device
) -> tuple[Int[Tensor, "1 1 G S 1"], Int[Tensor, "1 1 G 1 K"]]:
    """Return the positions of the S queries of each of G blocks, and of their keys from `with_neighbors`.

    Keys beyond the ends of the sequence have negative positions or positions of at least N.
    """
    starts = torch.arange(count, device=device)[:, None] * size
    queries = starts + torch.arange(size, device=device)
    keys = starts + torch.arange(-before, size + after, device=device)
    return queries[None, None, :, :, None], keys[None, None, :, None]


def gather_blocks(
    blocks: Shaped[Tensor, "B J S H C"], index: Int[Tensor, "B H G R"]
) -> Shaped[Tensor, "B G K H C"]:
    """Concatenate the R of J blocks that each head and each of G blocks of queries has selected: K = R S."""
    size, channels = blocks.shape[2], blocks.shape[4]
    picked = index.movedim(1, 3).flatten(1, 2)[:, :, None, :, None].expand(-1, -1, size, -1, channels)
    return blocks.gather(1, picked).unflatten(1, index.shape[2:]).flatten(2, 3)


def gather_pairs(
    pair_bias: Float[Tensor, "B H N N"],
    order: Int[Tensor, "B N"],
    count: Int[Tensor, " B"],
    rows: Int[Tensor, "#B #H #G #S 1"],
    columns: Int[Tensor, "#B #H #G #S #K"],
) -> Float[Tensor, "B H G S K"]:
    """Gather entries of a pair bias at positions of the packed sequence.

    Args:
        pair_bias: S + E in the order of the padded sequence.
        order: Result of `packing_order`.
        count: Number of real tokens of each sequence.
        rows: Positions of the queries.
        columns: Positions of the keys.

    Returns:
        The entries, zero where the query or the key is not a real token.
    """
    batch, heads, length, _ = pair_bias.shape

    def tokens_at(positions: Tensor) -> Tensor:
        positions = positions.clamp(0, length - 1).expand(batch, *positions.shape[1:])
        return order.gather(1, positions.flatten(1)).view(positions.shape)

    entries = tokens_at(rows) * length + tokens_at(columns)
    entries = entries.expand(-1, heads, -1, -1, -1)
    gathered = pair_bias.flatten(2).gather(2, entries.flatten(2)).view(entries.shape)
    real = count[:, None, None, None, None]
    return gathered.masked_fill(~((rows < real) & (columns >= 0) & (columns < real)), 0.0)


def attend_blocks(
    query: Float[Tensor, "B G S D"],
    key: Float[Tensor, "B G K D"],
    value: Float[Tensor, "B G K D"],
    seen: Bool[Tensor, "#B #H #G #S K"],
    bias: Float[Tensor, "B H G S K"] | None,
    num_heads: int,
    dropout: float,
) -> Float[Tensor, "B G S D"]:
    """Compute softmax(Q K^T / sqrt(C) + bias) V in each block and head, over the visible keys.

    `seen` is True for visible keys; each query needs one, also at padding. `dropout` is of the weights.
    """
    batch, count = query.shape[:2]

    def heads(blocks: Tensor) -> Tensor:
        return blocks.unflatten(-1, (num_heads, -1)).transpose(2, 3).flatten(0, 1)

    if bias is not None:
        # Half of the lowest finite value: kernels multiply scores by log2(e), which must not overflow.
        mask = bias.to(query.dtype).masked_fill(~seen, torch.finfo(query.dtype).min / 2)
    else:
        mask = seen
    mask = mask.transpose(1, 2).expand(batch, count, -1, -1, -1).flatten(0, 1)
    mixed = functional.scaled_dot_product_attention(
        heads(query), heads(key), heads(value), attn_mask=mask, dropout_p=dropout
    )
    return mixed.unflatten(0, (batch, count)).transpose(2, 3).flatten(-2)


def hash_words(*words: int | Tensor) -> Tensor:
    """Return a fixed pseudo-random integer below 2^32 for each combination of integers.

    It depends only on the words: not on a generator, device or batch.

    Returns:
        Integers in the common shape, int64.
    """
    state = torch.zeros((), dtype=torch.long)
    for word in words:
        # Factors have at most 31 bits, so int64 does not overflow.
        state = (state + (word & _WORD) + 0x9E3779B1) & _WORD
        for _ in range(2):
            state = ((state >> 16) ^ state) * 0x45D9F3B & _WORD
        state = (state >> 16) ^ state
    return state
