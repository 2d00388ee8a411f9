"""Mixes heads of short sequences by pair weights and sorts them, in one Triton kernel for each direction.

A program computes one head of one sequence: dropout of the weights, their product with V, then a sort while
the product is in registers. The forward pass stores where each token's value went, in one byte; the backward
pass fetches the gradients from there.

Up to 32 values of 16 bits are sorted by Batcher's odd-even merge sort, with all tokens of a channel in one
thread: a comparison is one minimum and one maximum. Others are sorted as in `triton_sort.py`, where threads
exchange values.
"""
# ruff: noqa: ANN001, ANN201, ANN202 (in a kernel an annotation would fix a type)

# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
# triton is installed only with a GPU; its kernels are launched by subscript
import math
import os
from collections.abc import Sequence
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from molslice.ops.triton_draws import kept_factor
from molslice.ops.triton_sort import LARGEST, bits_as_integers, bits_of, positions, ranks_of, sort_ranks

LONGEST = 64  # maximum number of tokens
WIDEST = 128  # maximum number of channels per head
FORWARD_WARPS = {16: 1, 32: 4, 64: 4}  # by padded length; 1 if a thread sorts
BACKWARD_WARPS = {16: 1, 32: 1, 64: 4}
MOST_IN_THREAD = 32  # tokens that a thread sorts
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # the interpreter has no bfloat16 product


def supports(length: int, channels: int, dtype: torch.dtype) -> bool:
    """Return whether the kernels are used for sequences and heads of this size."""
    return (
        0 < length <= LONGEST
        and channels <= WIDEST
        and dtype in (torch.bfloat16, torch.float16, torch.float32)
    )


def mix_and_sort_into(
    values: Tensor,
    weights: Tensor,
    token_mask: Tensor,
    descending: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    exchanges: bool,
    results: tuple[Tensor, Tensor],
) -> None:
    """Write the sorted columns of `dropout(weights) @ values`, and where each value went.

    All tensors are contiguous.

    Args:
        values: Heads by token [B, N, H, C], arbitrary at padding.
        weights: Pair weights [B, H, N, N], arbitrary at padding.
        token_mask: True at real tokens [B, N].
        descending: True for columns in descending order [H, C]; None sorts all ascending.
        seed: Seed of the dropped weights, int64 [1]; None without dropout.
        dropout: Dropout rate of the weights.
        exchanges: Whether the largest value of a column, of equal ones the first, and the value of the first
            real token change places, instead of a sort.
        results: Receive the sorted columns and the places, uint8, both [B, N, H, C]. The value of a token
            goes to its place. Padding is zero and keeps its place.
    """
    sorted_values, places = results
    flags = None if descending is None else descending.view(torch.uint8)
    width = values.element_size()
    inputs = (
        values,
        weights,
        token_mask.view(torch.uint8),
        flags,
        seed,
        bits_as_integers(sorted_values),
        places,
    )
    grid, settings = head_settings(values.shape, FORWARD_WARPS)
    length = values.shape[1]
    in_thread = 0
    if not exchanges and sorts_in_thread(length, width):
        in_thread, settings["num_warps"] = 8 * triton.cdiv(length, 8), 1
    sizes = {
        "LARGEST_RANK": LARGEST[width],
        "SHIFT": 8 * width,
        "IN_THREAD": in_thread,
        "EXCHANGES": exchanges,
    }
    with torch.cuda.device_of(values):
        _mix_forward[grid](*inputs, length, dropout, **settings, **sizes)


def gradients_into(
    grad: Tensor,
    places: Tensor,
    values: Tensor,
    weights: Tensor,
    token_mask: Tensor,
    by_next: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    results: tuple[Tensor, Tensor, Tensor | None],
) -> None:
    """Write the gradients of values and weights, zero at padding. All tensors are contiguous.

    Args:
        grad: Gradient of the sorted columns [B, N, H, C].
        places: The places, from the forward pass.
        values: Heads by token, as in the forward pass.
        weights: Pair weights.
        token_mask: True at real tokens [B, N].
        by_next: A gradient of the weights to add [B, H, N, N]; None for zero.
        seed: Seed of the dropped weights.
        dropout: Dropout rate of the weights.
        results: Receive the gradients, and the sums of the gradients of the values over each sequence,
            float32 [B, H, C]; None if unused.
    """
    inputs = (grad, places, values, weights, token_mask.view(torch.uint8), by_next, seed, *results)
    grid, settings = head_settings(values.shape, BACKWARD_WARPS)
    with torch.cuda.device_of(values):
        _mix_backward[grid](*inputs, values.shape[1], dropout, **settings)


def sorts_in_thread(length: int, width: int) -> bool:
    """Return whether a thread sorts all tokens of a channel, of values of so many bytes."""
    return width == 2 and length <= MOST_IN_THREAD  # noqa: PLR2004


def head_settings(shape: Sequence[int], warps: dict[int, int]) -> tuple[tuple[int], dict[str, object]]:
    """Return the grid and the settings of a kernel whose program computes one head of one sequence.

    Args:
        shape: Numbers of sequences, tokens, heads and channels per head.
        warps: Warps of a program by padded length.
    """
    batch, length, heads, channels = shape
    padded = max(16, triton.next_power_of_2(length))
    settings = {
        "HEADS": heads,
        "WIDTH": channels,
        "IN_FLOAT32": INTERPRETED,
        "MULTIPLE": math.gcd(length, 8),
        "LENGTH": padded,
        "CHANNELS": max(16, triton.next_power_of_2(channels)),
        "num_warps": warps.get(padded, 8),
    }
    return (batch * heads,), settings


@triton.jit
@no_type_check
def product(one, other, IN_FLOAT32: tl.constexpr):
    """Multiply two matrices, in float32 if the interpreter has no product of their type."""
    if IN_FLOAT32:
        one, other = one.to(tl.float32), other.to(tl.float32)
    return tl.dot(one, other, input_precision="ieee")


@triton.jit
@no_type_check
def _tokens_of(keys, CHANNELS: tl.constexpr, LENGTH: tl.constexpr):
    """Return the keys [CHANNELS, LENGTH] of each token, so that a thread has all tokens of its channel."""
    if LENGTH == 1:
        return (tl.reshape(keys, [CHANNELS]),)
    else:  # noqa: RET505 - the compiler evaluates one of both
        split = tl.permute(tl.reshape(keys, [CHANNELS, 2, LENGTH // 2]), 0, 2, 1)
        first, second = tl.split(split)
        return _tokens_of(first, CHANNELS, LENGTH // 2) + _tokens_of(second, CHANNELS, LENGTH // 2)


@triton.jit
@no_type_check
def _compare(keys, COUNT: tl.constexpr, MERGED: tl.constexpr, STEP: tl.constexpr):
    """Compare keys `STEP` apart, to merge sorted runs of `MERGED` keys each."""
    for x in tl.static_range(COUNT - STEP):
        is_first = x >= STEP % MERGED and (x - STEP % MERGED) // STEP % 2 == 0
        if is_first and x // (2 * MERGED) == (x + STEP) // (2 * MERGED):
            low, high = tl.minimum(keys[x], keys[x + STEP]), tl.maximum(keys[x], keys[x + STEP])
            keys = keys[:x] + (low,) + keys[x + 1 : x + STEP] + (high,) + keys[x + STEP + 1 :]
    return keys


@triton.jit
@no_type_check
def sort_in_thread(keys, COUNT: tl.constexpr, ROUNDS: tl.constexpr):
    """Sort a tuple of `COUNT` keys, at most 2^ROUNDS.

    Source: Batcher 1968, "Sorting networks and their applications", as in Knuth, volume 3, algorithm M. It
    sorts fewer keys than a power of two without the comparisons with those that are missing.
    """
    for i in tl.static_range(ROUNDS):
        for s in tl.static_range(i + 1):
            keys = _compare(keys, COUNT, 1 << i, 1 << (i - s))
    return keys


@triton.jit
@no_type_check
def _lowest(bits):
    """Return the lowest bit that is set in an unsigned integer, and its number."""
    bit = bits & (0 - bits)
    return bit, (bit.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127


# A length is not specialized: each would be compiled again. It is a multiple of `MULTIPLE`.
@triton.jit(do_not_specialize=["length"])
@no_type_check
def _mix_forward(
    values,
    weights,
    token_mask,
    flags,
    seed,
    out,
    places,
    length,
    dropout,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    MULTIPLE: tl.constexpr,
    LENGTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    LARGEST_RANK: tl.constexpr,
    SHIFT: tl.constexpr,
    IN_THREAD: tl.constexpr,
    EXCHANGES: tl.constexpr,
):
    length = length // MULTIPLE * MULTIPLE  # the compiler then knows that neighbors can be moved together
    b, h = (tl.program_id(0) // HEADS).to(tl.int64), tl.program_id(0) % HEADS
    n, c = tl.arange(0, LENGTH), tl.arange(0, CHANNELS)
    exists, is_channel = n < length, c < WIDTH
    is_real = tl.load(token_mask + b * length + n, mask=exists, other=0) != 0
    count = tl.sum(is_real.to(tl.int32))
    is_pair = is_real[:, None] & is_real[None, :]
    pairs_exist = exists[:, None] & exists[None, :]
    is_inside = is_channel[:, None] & exists[None, :]
    row = b * length * (HEADS * WIDTH)
    place = row + n[:, None] * (HEADS * WIDTH) + (h * WIDTH + c)[None, :]
    pair = (b * HEADS + h) * length * length + (n * length)[:, None] + n[None, :]
    value = tl.load(values + place, mask=is_real[:, None] & is_channel[None, :], other=0)
    mixing = tl.load(weights + pair, mask=pairs_exist, other=0.0).to(tl.float32)
    mixing = tl.where(is_pair, mixing, 0.0)
    if seed is not None:
        mixing *= kept_factor(tl.load(seed), pair, dropout)
    mixed = product(mixing.to(value.dtype), value, IN_FLOAT32)
    bits = mixed.to(value.dtype).to(out.dtype.element_ty, bitcast=True)
    ranks = tl.trans(ranks_of(bits, LARGEST_RANK))
    channel = h * WIDTH + c[:, None]
    if flags is not None:
        is_descending = tl.load(flags + channel, mask=is_channel[:, None], other=0)
        ranks = tl.where(is_descending != 0, -ranks, ranks)
    if EXCHANGES:
        ranks = tl.where(is_real[None, :], ranks, -LARGEST_RANK - 1)
        is_largest = ranks == tl.max(ranks, 1)[:, None]
        largest = tl.min(tl.where(is_largest, n[None, :], LENGTH), 1)[:, None]
        first = tl.min(tl.where(is_real, n, LENGTH), 0)
        went = tl.where(n[None, :] == first, largest, n[None, :])
        went = tl.where(n[None, :] == largest, first, went)
        went = tl.where(is_real[None, :], went, n[None, :])
        bits = tl.where(is_real[None, :], tl.trans(bits), 0)
        tl.store(out + row + went * (HEADS * WIDTH) + channel, bits.to(out.dtype.element_ty), mask=is_inside)
        target = places + row + n[None, :] * (HEADS * WIDTH) + channel
        tl.store(target, went.to(tl.uint8), mask=is_inside)
    elif IN_THREAD > 0:
        ranks = tl.where(is_real[None, :], ranks, LARGEST_RANK)
        keys = _tokens_of((ranks << 16) | n[None, :], CHANNELS, LENGTH)
        keys = sort_in_thread(keys[:IN_THREAD], IN_THREAD, 4 if IN_THREAD <= 16 else 5)
        channel = h * WIDTH + c
        if flags is not None:
            is_descending = tl.load(flags + channel, mask=is_channel, other=0) != 0
        left = tl.sum(is_real.to(tl.uint32) << n.to(tl.uint32))
        padding = tl.sum((exists & (is_real == 0)).to(tl.uint32) << n.to(tl.uint32))
        for r in tl.static_range(IN_THREAD):
            bit, where = _lowest(tl.where(r < count, left, padding))
            left = tl.where(r < count, left ^ bit, left)
            padding = tl.where(r < count, padding, padding ^ bit)
            rank, taken = keys[r] >> 16, keys[r] & 0xFFFF
            if flags is not None:
                rank = tl.where(is_descending, -rank, rank)
            bits = tl.where(r < count, bits_of(rank, LARGEST_RANK), 0)
            # a vector, because the interpreter of Triton 3.9 makes no mask of a scalar comparison
            is_stored = is_channel & (tl.zeros_like(c) + r < length)
            target = out + row + where * (HEADS * WIDTH) + channel
            tl.store(target, bits.to(out.dtype.element_ty), mask=is_stored)
            target = places + row + taken * (HEADS * WIDTH) + channel
            tl.store(target, tl.full([CHANNELS], 0, tl.uint8) + where.to(tl.uint8), mask=is_stored)
    else:
        where = positions(is_real, length, False, LENGTH)[None, :]
        ranks = tl.where(is_real[None, :], ranks, LARGEST_RANK)
        ranks, taken = sort_ranks(ranks, SHIFT, CHANNELS, LENGTH, LENGTH)
        if flags is not None:
            ranks = tl.where(is_descending != 0, -ranks, ranks)
        bits = tl.where(n[None, :] < count, bits_of(ranks, LARGEST_RANK), 0)
        tl.store(out + row + where * (HEADS * WIDTH) + channel, bits.to(out.dtype.element_ty), mask=is_inside)
        target = places + row + taken * (HEADS * WIDTH) + channel
        tl.store(target, (where + tl.zeros_like(taken)).to(tl.uint8), mask=is_inside)


@triton.jit(do_not_specialize=["length"])
@no_type_check
def _mix_backward(
    grad,
    places,
    values,
    weights,
    token_mask,
    by_next,
    seed,
    by_values,
    by_weights,
    sums,
    length,
    dropout,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    MULTIPLE: tl.constexpr,
    LENGTH: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    length = length // MULTIPLE * MULTIPLE  # the compiler then knows that neighbors can be moved together
    b, h = (tl.program_id(0) // HEADS).to(tl.int64), tl.program_id(0) % HEADS
    n, c = tl.arange(0, LENGTH), tl.arange(0, CHANNELS)
    exists, is_channel = n < length, c < WIDTH
    is_real = tl.load(token_mask + b * length + n, mask=exists, other=0) != 0
    is_pair = is_real[:, None] & is_real[None, :]
    pairs_exist = exists[:, None] & exists[None, :]
    is_entry = is_real[:, None] & is_channel[None, :]
    row = b * length * (HEADS * WIDTH)
    channel = (h * WIDTH + c)[None, :]
    place = row + n[:, None] * (HEADS * WIDTH) + channel
    pair = (b * HEADS + h) * length * length + (n * length)[:, None] + n[None, :]
    value = tl.load(values + place, mask=is_entry, other=0.0)
    went = tl.load(places + place, mask=is_entry, other=0).to(tl.int32)
    by_mixed = tl.load(grad + row + went * (HEADS * WIDTH) + channel, mask=is_entry, other=0.0)
    mixing = tl.load(weights + pair, mask=pairs_exist, other=0.0).to(tl.float32)
    mixing = tl.where(is_pair, mixing, 0.0)
    by_mixing = product(by_mixed, tl.trans(value), IN_FLOAT32)
    if seed is not None:
        factor = kept_factor(tl.load(seed), pair, dropout)
        mixing, by_mixing = mixing * factor, by_mixing * factor
    result = product(tl.trans(mixing.to(value.dtype)), by_mixed, IN_FLOAT32)
    tl.store(by_values + place, result.to(value.dtype), mask=exists[:, None] & is_channel[None, :])
    if sums is not None:
        target = sums + (b * HEADS + h) * WIDTH + c
        tl.store(target, tl.sum(result, 0), mask=is_channel)
    by_mixing = tl.where(is_pair, by_mixing, 0.0)
    if by_next is not None:
        by_mixing += tl.load(by_next + pair, mask=pairs_exist, other=0.0).to(tl.float32)
    tl.store(by_weights + pair, by_mixing.to(by_weights.dtype.element_ty), mask=pairs_exist)
