"""Mixes heads by pair weights and sorts the result, in one Triton kernel for short sequences.

A program processes one head of one sequence: softmax(S + E), or given weights, times V, then the sort of
`triton_sort.py` while the product is in registers.
"""
# ruff: noqa: ANN001, ANN201, ANN202 (in a kernel an annotation would fix a type)

# pyright: reportMissingImports=false, reportIndexIssue=false
# triton is installed only with a GPU; its kernels are launched by subscript
import os
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from molslice.ops import triton_sort
from molslice.ops.triton_sort import (
    LARGEST,
    bits_as_integers,
    bits_of,
    positions,
    ranks_of,
    sort_ranks,
    zero_strides,
)

LONGEST = 64  # maximum number of tokens
WIDEST = 128  # maximum number of channels per head
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # the interpreter has no bfloat16 product


def supports(values: Tensor, pairs: Tensor) -> bool:
    """Return whether the kernel supports heads [B, H, N, C] and pairs [B, H, N, N] of this size and dtype."""
    is_short = values.shape[2] <= LONGEST and values.shape[3] <= WIDEST
    return is_short and triton_sort.supports(values) and pairs.is_floating_point()


def mix_and_sort_into(
    values: Tensor,
    pairs: Tensor,
    token_mask: Tensor,
    descending: Tensor | None,
    is_bias: bool,
    ranked: Tensor,
    order: Tensor,
) -> None:
    """Write the sorted columns of `pairs @ values` and their order to given tensors.

    Args:
        values: Heads [B, H, N, C].
        pairs: Weights, or a bias [B, H, N, N].
        token_mask: True at real tokens [B, N].
        descending: True for columns in descending order [B or 1, H, C]; None sorts all ascending.
        is_bias: Whether to apply softmax to `pairs`.
        ranked: Receives the sorted columns [B, H, C, N].
        order: Receives the token of each rank [B, H, C, N].
    """
    batch, heads, length, columns = values.shape
    width = values.element_size()
    out = bits_as_integers(ranked)
    flags = None if descending is None else descending.expand(batch, heads, columns).view(torch.uint8)
    with torch.cuda.device_of(values):
        _mix_kernel[(batch * heads,)](
            values,
            pairs,
            token_mask.view(torch.uint8),
            flags,
            out,
            order,
            heads,
            columns,
            length,
            *values.stride(),
            *pairs.stride(),
            *token_mask.stride(),
            *(zero_strides(3) if flags is None else flags.stride()),
            *out.stride(),
            *order.stride(),
            IS_BIAS=is_bias,
            IN_FLOAT32=INTERPRETED,
            LARGEST_RANK=LARGEST[width],
            SHIFT=8 * width,
            COLUMNS=max(16, triton.next_power_of_2(columns)),
            LENGTH=max(16, triton.next_power_of_2(length)),
        )


@triton.jit
@no_type_check
def product(one, other, IN_FLOAT32: tl.constexpr):
    """Multiply two matrices, in float32 if the interpreter has no product of their type."""
    if IN_FLOAT32:
        one, other = one.to(tl.float32), other.to(tl.float32)
    return tl.dot(one, other, input_precision="ieee")


# What depends on the number of tokens is not specialized: a multiple of 16 would be compiled again.
@triton.jit(
    do_not_specialize=[
        "length",
        "value_b",
        "pair_b",
        "pair_h",
        "pair_row",
        "mask_b",
        "ranked_b",
        "order_b",
        "order_h",
        "order_c",
    ]
)
@no_type_check
def _mix_kernel(
    values,
    pairs,
    token_mask,
    flags,
    ranked,
    order,
    heads,
    columns,
    length,
    value_b,
    value_h,
    value_n,
    value_c,
    pair_b,
    pair_h,
    pair_row,
    pair_column,
    mask_b,
    mask_n,
    flag_b,
    flag_h,
    flag_c,
    ranked_b,
    ranked_h,
    ranked_c,
    ranked_n,
    order_b,
    order_h,
    order_c,
    order_n,
    IS_BIAS: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    LARGEST_RANK: tl.constexpr,
    SHIFT: tl.constexpr,
    COLUMNS: tl.constexpr,
    LENGTH: tl.constexpr,
):
    b = (tl.program_id(0) // heads).to(tl.int64)
    h = tl.program_id(0) % heads
    n = tl.arange(0, LENGTH)
    c = tl.arange(0, COLUMNS)
    is_real = tl.load(token_mask + b * mask_b + n * mask_n, mask=n < length, other=0) != 0
    count = tl.sum(is_real.to(tl.int32))
    are_real = is_real[:, None] & is_real[None, :]
    pairs += b * pair_b + h * pair_h + n[:, None] * pair_row + n[None, :] * pair_column
    weights = tl.load(pairs, mask=are_real, other=0).to(tl.float32)
    if IS_BIAS:
        weights = tl.where(are_real, weights, -float("inf"))
        largest = tl.max(weights, axis=1)[:, None]
        weights = tl.where(are_real, tl.exp(weights - tl.where(is_real[:, None], largest, 0.0)), 0.0)
        weights /= tl.maximum(tl.sum(weights, axis=1), 1e-30)[:, None]
    values += b * value_b + h * value_h + n[:, None] * value_n + c[None, :] * value_c
    value = tl.load(values, mask=is_real[:, None] & (c[None, :] < columns), other=0)
    weights = weights.to(value.dtype)
    mixed = product(weights, value, IN_FLOAT32)
    bits = mixed.to(value.dtype).to(ranked.dtype.element_ty, bitcast=True)
    ranks = tl.trans(ranks_of(bits, LARGEST_RANK))
    c = c[:, None]
    if flags is not None:
        is_descending = tl.load(flags + b * flag_b + h * flag_h + c * flag_c, mask=c < columns, other=0)
        ranks = tl.where(is_descending != 0, -ranks, ranks)
    ranks, taken = sort_ranks(tl.where(is_real[None, :], ranks, LARGEST_RANK), SHIFT, COLUMNS, LENGTH, LENGTH)
    if flags is not None:
        ranks = tl.where(is_descending != 0, -ranks, ranks)
    where = positions(is_real, length, False, LENGTH)[None, :]
    is_inside = (c < columns) & (n[None, :] < length)
    # Rows of padding are zero.
    bits = tl.where(n[None, :] < count, bits_of(ranks, LARGEST_RANK), 0)
    ranked += b * ranked_b + h * ranked_h + c * ranked_c + where * ranked_n
    tl.store(ranked, bits.to(ranked.dtype.element_ty), mask=is_inside)
    order += b * order_b + h * order_h + c * order_c + where * order_n
    tl.store(order, taken.to(order.dtype.element_ty), mask=is_inside)
