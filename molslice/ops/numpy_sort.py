"""Sorts columns on the CPU by numpy's vectorized integer sort, block by block.

torch sorts (value, index) pairs one comparison at a time. numpy sorts plain integers with vector
instructions, 5 to 10 times as fast. Value and token are therefore packed into one integer: the bits of the
value, made monotone, in the upper half and the token in the lower. All keys differ, so the sort is stable.
The sorted integers contain the sorted values and their tokens, without a gather. A value of 16 bits needs an
integer of 32, one of 32 bits needs 64 (32 bits do not hold a float32 and a token, and dropping bits of the
value would change the order). `benchmarks/results/sort_methods.json` compares this with other methods.

All functions take columns [B, G, C, N] in any memory layout: N tokens, G times C columns. A block is copied
so that N is contiguous, processed, and copied back. Blocks are distributed over as many threads as torch
uses; the result does not depend on their number.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch
from torch import Tensor

BLOCK = 1 << 15  # entries per block: their 64-bit keys fit in the second-level cache
NARROWEST = 8  # minimum columns per block, to use whole cache lines
TILE = 64  # tokens copied at a time: as many cache lines as the first-level cache holds
SERIAL = 2 * BLOCK  # up to this number of entries one thread is as fast as several

Block = tuple[slice, slice, slice]


def as_numpy(tensor: Tensor) -> np.ndarray:
    """Return the memory of a tensor as integers of the same width, because numpy has no bfloat16."""
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().view(integers[tensor.element_size()]).numpy()


def sort_blocks(
    values: Tensor,
    token_mask: Tensor,
    descending: Tensor | None,
    to_front: bool,
    ranked: Tensor,
    order: Tensor | None,
) -> None:
    """Write `column_ops.sort_op` of columns [B, G, C, N] to given tensors; no order if it is None.

    Values are float32, bfloat16 or float16.
    """
    sorter = _Sorter(values, token_mask, descending, to_front, ranked, order)
    if values.numel():
        _run(sorter.start, _cut(*values.shape))


class _Sorter:
    """The data shared by all blocks of one sort."""

    def __init__(
        self,
        values: Tensor,
        token_mask: Tensor,
        descending: Tensor | None,
        to_front: bool,
        ranked: Tensor,
        order: Tensor | None,
    ) -> None:
        self.values = as_numpy(values)
        self.bits = 8 * self.values.itemsize
        # Sorts after infinity, and is the key of no value.
        self.largest = np.int32((1 << (self.bits - 1)) - 1)
        length = values.shape[-1]
        # 16 bits of value and up to 16 of token fit one integer of 32.
        self.key_dtype = np.int32 if self.bits == 16 and length <= 1 << 16 else np.int64
        self.tokens = np.arange(length, dtype=self.key_dtype)
        mask = token_mask.numpy()
        self.mask = None if mask.all() else mask
        self.is_packed = not (mask[:, 1:] > mask[:, :-1]).any()  # padding is after the tokens
        self.keeps_ranks = to_front or self.is_packed
        self.counts = mask.sum(1).tolist()
        self.sign = None
        if descending is not None and bool(descending.any()):
            sign = np.where(descending.numpy(), np.int32(-1), np.int32(1))[..., None]
            self.sign = np.broadcast_to(sign, (*values.shape[:3], 1))
        self.ranked = as_numpy(ranked)
        self.order = None if order is None else order.numpy()

    def start(self, entries: int) -> Callable[[Block], None]:
        """Return a worker with its own buffers, for blocks of at most `entries`."""
        first, second = np.empty(entries, np.int32), np.empty(entries, np.int32)
        keys = np.empty(entries if self.order is not None else 0, self.key_dtype)
        narrow = np.empty(entries, self.order.dtype if self.order is not None else np.uint8)

        def work(block: Block) -> None:
            source = self.values[block]
            ranks, spare = _shaped(first, source.shape), _shaped(second, source.shape)
            self._rank(block, source, ranks, spare)
            if self.order is None:
                ranks.sort(axis=-1)
            else:
                tokens = _shaped(narrow, source.shape)
                self._sort_with_tokens(ranks, _shaped(keys, source.shape), tokens)
                self._place(block, tokens, self.order, None)
            self._restore(block, ranks, spare)
            self._place(block, ranks, self.ranked, source)

        return work

    def _rank(self, block: Block, source: np.ndarray, ranks: np.ndarray, spare: np.ndarray) -> None:
        """Map bits of floats to integers of the same order: minus the magnitude if the sign bit is set."""
        _copy(ranks, source)
        np.right_shift(ranks, 31, out=spare)
        np.bitwise_and(ranks, self.largest, out=ranks)
        np.bitwise_xor(ranks, spare, out=ranks)
        np.subtract(ranks, spare, out=ranks)
        if self.sign is not None:
            np.multiply(ranks, self.sign[block], out=ranks)
        if self.mask is not None:
            np.copyto(ranks, self.largest, where=~self.mask[block[0], None, None])

    def _restore(self, block: Block, ranks: np.ndarray, spare: np.ndarray) -> None:
        """Invert `_rank`, in place."""
        if self.sign is not None:
            np.multiply(ranks, self.sign[block], out=ranks)
        np.bitwise_and(ranks, ~self.largest, out=spare)
        np.absolute(ranks, out=ranks)
        np.bitwise_or(ranks, spare, out=ranks)

    def _sort_with_tokens(self, ranks: np.ndarray, keys: np.ndarray, tokens: np.ndarray) -> None:
        """Sort `ranks` along the last axis, in place, and write the token of each to `tokens`."""
        half = keys.dtype.type(8 * keys.itemsize // 2)
        np.copyto(keys, ranks)
        np.left_shift(keys, half, out=keys)
        np.bitwise_or(keys, self.tokens, out=keys)
        keys.sort(axis=-1)
        if 8 * tokens.itemsize > half:
            np.bitwise_and(keys, (1 << half) - 1, out=tokens, casting="unsafe")
        else:
            np.copyto(tokens, keys, casting="unsafe")
        np.right_shift(keys, half, out=keys)
        np.copyto(ranks, keys, casting="unsafe")

    def _place(self, block: Block, ranks: np.ndarray, out: np.ndarray, source: np.ndarray | None) -> None:
        """Move ranks to positions; padding keeps its value from `source`, or its own index."""
        out = out[block]
        if self.keeps_ranks:
            _copy(out, ranks)
        if self.mask is None or (self.keeps_ranks and source is None):
            return
        for b, sequence in enumerate(range(block[0].start, block[0].start + len(out))):
            count, mask = self.counts[sequence], self.mask[sequence]
            if self.is_packed:
                assert source is not None
                out[b][..., count:] = source[b][..., count:]
                continue
            (padding,) = np.nonzero(~mask)
            kept = padding if source is None else source[b][..., padding]
            if self.keeps_ranks:
                out[b][..., count:] = kept
            else:
                out[b][..., padding] = kept
                out[b][..., mask] = ranks[b, ..., :count]


def _shaped(memory: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return memory[: np.prod(shape)].reshape(shape)


def _copy(target: np.ndarray, source: np.ndarray) -> None:
    """Copy `source` to `target` in tiles, so that neighboring values are read while they are in the cache."""
    for start in range(0, target.shape[-1], TILE):
        tile = (..., slice(start, start + TILE))
        np.copyto(target[tile], source[tile], casting="unsafe")


def _cut(batch: int, groups: int, columns: int, length: int) -> tuple[int, list[Block]]:
    """Return the largest number of entries in a block, and the blocks."""
    fit = max(NARROWEST if length <= 1 << 13 else 1, BLOCK // length)  # columns per block
    by_column = min(columns, fit)
    by_group = min(groups, max(1, fit // columns))
    by_batch = min(batch, max(1, fit // (columns * groups)))
    blocks = [
        (slice(b, b + by_batch), slice(g, g + by_group), slice(c, c + by_column))
        for b in range(0, batch, by_batch)
        for g in range(0, groups, by_group)
        for c in range(0, columns, by_column)
    ]
    return by_batch * by_group * by_column * length, blocks


def _run(start: Callable[[int], Callable[[Block], None]], cut: tuple[int, list[Block]]) -> None:
    """Process the blocks, with torch's number of threads if there is enough work."""
    entries, blocks = cut
    threads = min(torch.get_num_threads(), len(blocks)) if entries * len(blocks) > SERIAL else 1
    pending: Iterator[Block] = iter(blocks)  # `next` of a list's iterator is atomic

    def loop() -> None:
        work = start(entries)
        for block in pending:
            work(block)

    pending_workers = [_pool(os.getpid()).submit(loop) for _ in range(threads - 1)]
    loop()
    for worker in pending_workers:
        worker.result()


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """Return the thread pool of this process; a fork creates a new one, as threads are not inherited."""
    return ThreadPoolExecutor(max_workers=256, thread_name_prefix="molslice-sort")
