"""Softmax attention with a bias on the scores for short sequences, in one Triton kernel for each direction.

A program computes one head of one sequence in registers: scores, softmax, dropout and the product with the
values. The backward pass computes the weights again, so that the forward pass stores
only its output. The dropped weights are a function of a seed and of the position, and are drawn again too.

Imported only if Triton is installed and the tensors are on a GPU.
"""
# ruff: noqa: ANN001, ANN201, ANN202 (in a kernel an annotation would fix a type)

from typing import no_type_check

# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
# triton is installed only with a GPU; its kernels are launched by subscript
import torch
import triton
import triton.language as tl
from torch import Tensor

from molslice.ops.triton_draws import kept_factor
from molslice.ops.triton_mix import head_settings, product

LONGEST = 64  # maximum number of tokens
WIDEST = 128  # maximum number of channels per head
WARPS = {16: 1, 32: 1, 64: 8}  # of a program, by padded length


def supports(length: int, channels: int, dtype: torch.dtype) -> bool:
    """Return whether the kernels are used for sequences and heads of this size.

    They also compute float32 and longer sequences, for which they have not been timed.
    """
    return dtype in (torch.bfloat16, torch.float16) and 0 < length <= LONGEST and channels <= WIDEST


def attend_into(
    packed: Tensor,
    bias: Tensor,
    token_mask: Tensor,
    seed: Tensor | None,
    dropout: float,
    out: Tensor,
) -> None:
    """Write dropout(softmax(Q K^T / sqrt(C) + bias)) V to a given tensor. All tensors are contiguous.

    Args:
        packed: Queries Q, keys K and values V [B, N, 3, H, C], arbitrary at padding.
        bias: What is added to the scores [B, H, N, N], arbitrary at padding.
        token_mask: True at real tokens [B, N].
        seed: Seed of the dropped weights, int64 [1]; None without dropout.
        dropout: Dropout rate of the weights.
        out: Receives the result [B, N, H, C], zero at padding.
    """
    inputs = (packed, bias, token_mask.view(torch.uint8), seed, out)
    grid, settings = _settings(packed)
    with torch.cuda.device_of(packed):
        _attention_forward[grid](*inputs, packed.shape[1], dropout, **settings)


def gradients_into(
    grad: Tensor,
    packed: Tensor,
    bias: Tensor,
    token_mask: Tensor,
    by_next: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    results: tuple[Tensor, Tensor, Tensor | None],
) -> None:
    """Write the gradients of Q, K, V and the bias to given tensors. All tensors are contiguous.

    Args:
        grad: Gradient of the result [B, N, H, C].
        packed: Queries, keys and values, as in the forward pass.
        bias: What is added to the scores.
        token_mask: True at real tokens [B, N].
        by_next: A gradient of the bias to add [B, H, N, N]; None for zero.
        seed: Seed of the dropped weights.
        dropout: Dropout rate of the weights.
        results: Receive the gradients of `packed` and `bias`, zero at padding, and the sums of the gradients
            of `packed` over each sequence, float32 [B, 3, H, C]; None if unused.
    """
    inputs = (grad, packed, bias, token_mask.view(torch.uint8), by_next, seed, *results)
    grid, settings = _settings(packed)
    with torch.cuda.device_of(packed):
        _attention_backward[grid](*inputs, packed.shape[1], dropout, **settings)


def _settings(packed: Tensor) -> tuple[tuple[int], dict[str, object]]:
    batch, length, _, heads, channels = packed.shape
    grid, settings = head_settings((batch, length, heads, channels), WARPS)
    return grid, {**settings, "SCALE": channels**-0.5}


@triton.jit
@no_type_check
def head_places(
    token_mask,
    length,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Find the head of this program.

    Returns:
        The places of its entries in Q and in a result [B, N, H, C], and of its pairs; which tokens, entries
        and pairs are real; which entries and pairs exist. Masks of the latter kind do not depend on the
        contents of a tensor, so that neighbors are moved together.
    """
    b, h = (tl.program_id(0) // HEADS).to(tl.int64), tl.program_id(0) % HEADS
    n, c = tl.arange(0, LENGTH), tl.arange(0, CHANNELS)
    exists = n < length
    is_real = tl.load(token_mask + b * length + n, mask=exists, other=0) != 0
    row = b * length + n
    in_packed = (row * (3 * HEADS * WIDTH))[:, None] + (h * WIDTH + c)[None, :]
    in_result = (row * (HEADS * WIDTH))[:, None] + (h * WIDTH + c)[None, :]
    pair = (b * HEADS + h) * length * length + (n * length)[:, None] + n[None, :]
    is_channel = (c < WIDTH)[None, :]
    is_entry = is_real[:, None] & is_channel
    is_pair = is_real[:, None] & is_real[None, :]
    exist = exists[:, None] & is_channel
    pairs_exist = exists[:, None] & exists[None, :]
    return in_packed, in_result, pair, is_real, is_entry, is_pair, exist, pairs_exist


@triton.jit
@no_type_check
def load_head(entries, is_entry, HEADS: tl.constexpr, WIDTH: tl.constexpr):
    """Return Q, K and V of a head from pointers to Q in a tensor [B, N, 3, H, C], zero at padding."""
    q = tl.load(entries, mask=is_entry, other=0.0)
    k = tl.load(entries + HEADS * WIDTH, mask=is_entry, other=0.0)
    return q, k, tl.load(entries + 2 * HEADS * WIDTH, mask=is_entry, other=0.0)


@triton.jit
@no_type_check
def _weights(q, keys, bias, pair, is_pair, pairs_exist, SCALE: tl.constexpr, IN_FLOAT32: tl.constexpr):
    """Return softmax(Q K^T SCALE + bias) over the real tokens, zero elsewhere."""
    s = tl.load(bias + pair, mask=pairs_exist, other=0.0).to(tl.float32)
    scores = tl.where(is_pair, product(q, tl.trans(keys), IN_FLOAT32) * SCALE + s, -1e30)
    weights = tl.where(is_pair, tl.exp(scores - tl.max(scores, 1)[:, None]), 0.0)
    return weights / tl.maximum(tl.sum(weights, 1), 1e-30)[:, None]


# A length is not specialized: each would be compiled again. It is a multiple of `MULTIPLE`.
@triton.jit(do_not_specialize=["length"])
@no_type_check
def _attention_forward(
    packed,
    bias,
    token_mask,
    seed,
    out,
    length,
    dropout,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    MULTIPLE: tl.constexpr,
    LENGTH: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    length = length // MULTIPLE * MULTIPLE  # the compiler then knows that neighbors can be moved together
    place, in_result, pair, _, is_entry, is_pair, exist, pairs_exist = head_places(
        token_mask, length, HEADS, WIDTH, LENGTH, CHANNELS
    )
    q, keys, v = load_head(packed + place, is_entry, HEADS, WIDTH)
    weights = _weights(q, keys, bias, pair, is_pair, pairs_exist, SCALE, IN_FLOAT32)
    if seed is not None:
        weights *= kept_factor(tl.load(seed), pair, dropout)
    mixed = product(weights.to(v.dtype), v, IN_FLOAT32)
    tl.store(out + in_result, mixed.to(v.dtype), mask=exist)


@triton.jit
@no_type_check
def store_with_sum(
    by_packed,
    sums,
    result,
    place,
    exist,
    PART: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Store the gradient of Q, K or V, and its sum over the tokens."""
    tl.store(by_packed + place + PART * HEADS * WIDTH, result.to(by_packed.dtype.element_ty), mask=exist)
    if sums is not None:
        b, h = (tl.program_id(0) // HEADS).to(tl.int64), tl.program_id(0) % HEADS
        c = tl.arange(0, CHANNELS)
        target = (b * 3 + PART) * HEADS * WIDTH + h * WIDTH + c
        tl.store(sums + target, tl.sum(result, 0), mask=c < WIDTH)


@triton.jit(do_not_specialize=["length"])
@no_type_check
def _attention_backward(
    grad,
    packed,
    bias,
    token_mask,
    by_next,
    seed,
    by_packed,
    by_bias,
    sums,
    length,
    dropout,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    MULTIPLE: tl.constexpr,
    LENGTH: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    length = length // MULTIPLE * MULTIPLE  # the compiler then knows that neighbors can be moved together
    place, in_result, pair, _, is_entry, is_pair, exist, pairs_exist = head_places(
        token_mask, length, HEADS, WIDTH, LENGTH, CHANNELS
    )
    q, keys, v = load_head(packed + place, is_entry, HEADS, WIDTH)
    upstream = tl.load(grad + in_result, mask=is_entry, other=0.0)
    weights = _weights(q, keys, bias, pair, is_pair, pairs_exist, SCALE, IN_FLOAT32)
    by_weights = product(upstream, tl.trans(v), IN_FLOAT32)
    used = weights
    if seed is not None:
        factor = kept_factor(tl.load(seed), pair, dropout)
        used, by_weights = weights * factor, by_weights * factor
    by_scores = weights * (by_weights - tl.sum(weights * by_weights, 1)[:, None])
    rounded = by_scores.to(q.dtype)
    result = product(rounded, keys, IN_FLOAT32) * SCALE
    store_with_sum(by_packed, sums, result, place, exist, 0, HEADS, WIDTH, CHANNELS)
    result = product(tl.trans(rounded), q, IN_FLOAT32) * SCALE
    store_with_sum(by_packed, sums, result, place, exist, 1, HEADS, WIDTH, CHANNELS)
    result = product(tl.trans(used.to(v.dtype)), upstream, IN_FLOAT32)
    store_with_sum(by_packed, sums, result, place, exist, 2, HEADS, WIDTH, CHANNELS)
    if by_next is not None:
        by_scores += tl.load(by_next + pair, mask=pairs_exist, other=0.0).to(tl.float32)
    tl.store(by_bias + pair, by_scores.to(by_bias.dtype.element_ty), mask=pairs_exist)
