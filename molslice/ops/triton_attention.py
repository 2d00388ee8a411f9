"""Softmax attention with a bias on the scores for short sequences, in one Triton kernel for each direction.

A program computes one head of one sequence in registers: scores, softmax, dropout and the product with the
values. The backward pass computes the weights again, so that the forward pass stores only its output. The
dropped weights are a function of a seed and of the position, and are drawn again too.

Imported only if Triton is installed and the tensors are on a GPU.
"""
# ruff: noqa: ANN001, ANN201, ANN202 (in a kernel an annotation would fix a type)

from typing import no_type_check

# pyright: reportMissingImports=false, reportIndexIssue=false
# triton is installed only with a GPU; its kernels are launched by subscript
import torch
import triton
import triton.language as tl
from torch import Tensor

from molslice.ops.triton_mix import INTERPRETED, product

LONGEST = 64  # maximum number of tokens
WIDEST = 128  # maximum number of channels per head


def supports(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> bool:
    """Return whether the kernels are used for heads [B, N, H, C] and a bias [B, H, N, N] like these.

    They also compute float32 and longer sequences, for which they have not been timed.
    """
    batch, length, heads, channels = query.shape
    return (
        query.dtype in (torch.bfloat16, torch.float16)
        and query.dtype == key.dtype == value.dtype == bias.dtype
        and query.shape == key.shape == value.shape
        and bias.shape == (batch, heads, length, length)
        and length <= LONGEST
        and channels <= WIDEST
        and query.numel() > 0
    )


def attend_into(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, seed: Tensor | None, dropout: float, out: Tensor
) -> None:
    """Write dropout(softmax(Q K^T / sqrt(C) + bias)) V to a given tensor. All tensors are contiguous.

    Args:
        query: Queries Q [B, N, H, C].
        key: Keys K.
        value: Values V.
        bias: What is added to the scores [B, H, N, N], finite.
        seed: Seed of the dropped weights, int64 [1]; None without dropout.
        dropout: Dropout rate of the weights.
        out: Receives the result [B, N, H, C].
    """
    with torch.cuda.device_of(query):
        _attention_forward[(query.shape[0] * query.shape[2],)](
            query, key, value, bias, seed, out, query.shape[1], dropout, **_settings(query)
        )


def gradients_into(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    seed: Tensor | None,
    dropout: float,
    results: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    """Write the gradients of Q, K, V and the bias to given tensors. All tensors are contiguous.

    Args:
        grad: Gradient of the result [B, N, H, C].
        query: Queries Q, as in the forward pass.
        key: Keys K.
        value: Values V.
        bias: What is added to the scores.
        seed: Seed of the dropped weights.
        dropout: Dropout rate of the weights.
        results: Receive the four gradients.
    """
    inputs = (grad, query, key, value, bias, seed, *results)
    with torch.cuda.device_of(query):
        _attention_backward[(query.shape[0] * query.shape[2],)](
            *inputs, query.shape[1], dropout, **_settings(query)
        )


def _settings(query: Tensor) -> dict[str, object]:
    _, length, heads, channels = query.shape
    padded = max(16, triton.next_power_of_2(length))
    return {
        "HEADS": heads,
        "WIDTH": channels,
        "SCALE": channels**-0.5,
        "IN_FLOAT32": INTERPRETED,
        "LENGTH": padded,
        "CHANNELS": max(16, triton.next_power_of_2(channels)),
        "num_warps": {16: 1, 32: 1, 64: 4}.get(padded, 8),
    }


@triton.jit
@no_type_check
def load_head(
    query,
    key,
    value,
    bias,
    length,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    LENGTH: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Load Q, K and V of this program's head and compute softmax(Q K^T SCALE + bias).

    Returns:
        Q, K, V and the weights, which are zero outside of the sequence. Then the places of the entries of a
        head and of the pairs, and masks of those inside.
    """
    program = tl.program_id(0)
    b, h = (program // HEADS).to(tl.int64), program % HEADS
    n, c = tl.arange(0, LENGTH)[:, None], tl.arange(0, CHANNELS)[None, :]
    k = tl.arange(0, LENGTH)[None, :]
    is_head, is_pair = (n < length) & (c < WIDTH), (n < length) & (k < length)
    head = b * length * HEADS * WIDTH + n * (HEADS * WIDTH) + h * WIDTH + c
    pair = (b * HEADS + h) * length * length + n * length + k
    q = tl.load(query + head, mask=is_head, other=0.0)
    keys = tl.load(key + head, mask=is_head, other=0.0)
    v = tl.load(value + head, mask=is_head, other=0.0)
    s = tl.load(bias + pair, mask=is_pair, other=0.0)
    scores = product(q, tl.trans(keys), IN_FLOAT32) * SCALE + s.to(tl.float32)
    scores = tl.where(k < length, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    weights = tl.where(is_pair, weights / tl.sum(weights, 1)[:, None], 0.0)
    return q, keys, v, weights, head, pair, is_head, is_pair


@triton.jit
@no_type_check
def kept_factor(seed, dropout, LENGTH: tl.constexpr):
    """Return 1 / (1 - dropout) at the weights of this program's head that are kept, else zero."""
    n, k = tl.arange(0, LENGTH)[:, None], tl.arange(0, LENGTH)[None, :]
    place = tl.program_id(0).to(tl.int64) * LENGTH * LENGTH + n * LENGTH + k
    return tl.where(tl.rand(tl.load(seed), place) >= dropout, 1.0 / (1.0 - dropout), 0.0)


# A length is not specialized: a multiple of 16 would be compiled again.
@triton.jit(do_not_specialize=["length"])
@no_type_check
def _attention_forward(
    query,
    key,
    value,
    bias,
    seed,
    out,
    length,
    dropout,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    LENGTH: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    _, _, v, weights, head, _, is_head, _ = load_head(
        query, key, value, bias, length, HEADS, WIDTH, SCALE, IN_FLOAT32, LENGTH, CHANNELS
    )
    if seed is not None:
        weights *= kept_factor(seed, dropout, LENGTH)
    found = product(weights.to(v.dtype), v, IN_FLOAT32)
    tl.store(out + head, found.to(v.dtype), mask=is_head)


@triton.jit(do_not_specialize=["length"])
@no_type_check
def _attention_backward(
    grad,
    query,
    key,
    value,
    bias,
    seed,
    by_query,
    by_key,
    by_value,
    by_bias,
    length,
    dropout,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    LENGTH: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    q, keys, v, weights, head, pair, is_head, is_pair = load_head(
        query, key, value, bias, length, HEADS, WIDTH, SCALE, IN_FLOAT32, LENGTH, CHANNELS
    )
    upstream = tl.load(grad + head, mask=is_head, other=0.0)
    by_weights = product(upstream, tl.trans(v), IN_FLOAT32)
    used = weights
    if seed is not None:
        factor = kept_factor(seed, dropout, LENGTH)
        used, by_weights = weights * factor, by_weights * factor
    by_scores = weights * (by_weights - tl.sum(weights * by_weights, 1)[:, None])
    rounded = by_scores.to(q.dtype)
    found = product(rounded, keys, IN_FLOAT32) * SCALE
    tl.store(by_query + head, found.to(q.dtype), mask=is_head)
    found = product(tl.trans(rounded), q, IN_FLOAT32) * SCALE
    tl.store(by_key + head, found.to(q.dtype), mask=is_head)
    found = product(tl.trans(used.to(v.dtype)), upstream, IN_FLOAT32)
    tl.store(by_value + head, found.to(q.dtype), mask=is_head)
    tl.store(by_bias + pair, rounded, mask=is_pair)
