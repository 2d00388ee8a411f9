"""Attention among pseudo-tokens for short sequences, in one Triton kernel for each direction.

The forward pass computes one head of one sequence in a program: folding of Q, K and V, scores, softmax,
dropout, and unfolding. The backward pass computes several heads of a sequence in a program, and adds the
gradients of the maps that the heads share.

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

from molslice.ops.triton_attention import load_head
from molslice.ops.triton_draws import kept_factor
from molslice.ops.triton_mix import head_settings, product

LONGEST = 64  # maximum number of tokens
WIDEST = 64  # maximum number of channels per head
MOST_RANKS = 32  # maximum number of pseudo-tokens
FORWARD_WARPS = {16: 1, 32: 2, 64: 4}  # of a program, by padded length
BACKWARD_WARPS = {16: 1, 32: 2, 64: 8}
GROUP = 8  # heads of a program of the backward pass


def supports(length: int, channels: int, rank: int, dtype: torch.dtype) -> bool:
    """Return whether the kernels are used for sequences, heads and numbers of pseudo-tokens like these."""
    sizes = 0 < length <= LONGEST and channels <= WIDEST and rank <= MOST_RANKS
    return sizes and dtype in (torch.bfloat16, torch.float16)


def attend_into(
    packed: Tensor,
    added: Tensor | None,
    maps: tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None,
    carry: Tensor | None,
    token_mask: Tensor,
    seed: Tensor | None,
    dropout: float,
    scale: float,
    results: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Write the attention of `folded_attention` to given tensors. All tensors are contiguous.

    Args:
        packed: Queries, keys and values without their bias [B, N, 3, H, C], arbitrary at padding.
        added: Bias of queries, keys and values [3, H, C]; None without one.
        maps: Folding, dropped folding, both [B, R, N], and dropped unfolding [B, N, R], zero at padding.
        bias: Pair bias [B, H, N, N], arbitrary at padding; None without one.
        carry: What is added to the scores [B, H, R, R]; None for zero.
        token_mask: True at real tokens [B, N].
        seed: Seed of the dropped weights, int64 [1]; None without dropout.
        dropout: Dropout rate of the weights.
        scale: Factor of the product of queries and keys.
        results: Receive the result [B, N, H, C], zero at padding, the scores [B, H, R, R], and the sums of
            the squared weights beside the diagonal, float32 [B, H].
    """
    grid, settings = _settings(packed, maps, FORWARD_WARPS, scale)
    inputs = (packed, added, *maps, bias, carry, token_mask.view(torch.uint8), seed, *results)
    with torch.cuda.device_of(packed):
        _folded_forward[grid](*inputs, packed.shape[1], dropout, **settings)


def gradients_into(
    grads: tuple[Tensor, Tensor | None, Tensor | None],
    packed: Tensor,
    added: Tensor | None,
    maps: tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None,
    scores: Tensor,
    token_mask: Tensor,
    seed: Tensor | None,
    dropout: float,
    scale: float,
    results: tuple[Tensor | None, ...],
) -> None:
    """Write all gradients to given tensors. All tensors are contiguous.

    Args:
        grads: Gradients of the result, of the scores and of the sums of squares; None for zero.
        packed: Queries, keys and values, as in the forward pass.
        added: Their bias.
        maps: The maps, as in the forward pass.
        bias: Pair bias.
        scores: The scores, from the forward pass.
        token_mask: True at real tokens [B, N].
        seed: Seed of the dropped weights.
        dropout: Dropout rate of the weights.
        scale: Factor of the product of queries and keys.
        results: Receive, in this order, the gradients of `packed`, the pair bias and the carry, the latter
            None without one; the gradients of the three maps by groups of heads, float32 [B, G, ...]; the
            sums of the gradients of folded queries, keys and values over the pseudo-tokens, float32 [B, 3, H,
            C].
    """
    (batch_heads,), settings = _settings(packed, maps, BACKWARD_WARPS, scale)
    grid = (batch_heads // settings["HEADS"] * num_groups(settings["HEADS"]),)
    inputs = (*grads, packed, added, *maps, bias, scores, token_mask.view(torch.uint8), seed, *results)
    with torch.cuda.device_of(packed):
        _folded_backward[grid](*inputs, packed.shape[1], dropout, GROUP=GROUP, **settings)


def num_groups(heads: int) -> int:
    """Return the number G of groups of heads, each the work of one program of the backward pass."""
    return triton.cdiv(heads, GROUP)


def _settings(
    packed: Tensor, maps: tuple[Tensor, Tensor, Tensor], warps: dict[int, int], scale: float
) -> tuple[tuple[int], dict]:
    batch, length, _, heads, channels = packed.shape
    rank = maps[0].shape[1]
    grid, settings = head_settings((batch, length, heads, channels), warps)
    ranks = max(16, triton.next_power_of_2(rank))
    return grid, {**settings, "RANK": rank, "RANKS": ranks, "SCALE": scale}


@triton.jit
@no_type_check
def _load_maps(
    folding,
    dropped,
    unfolding,
    b,
    is_real,
    length,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    LENGTH: tl.constexpr,
):
    """Return the maps of a sequence: folding and dropped folding [R, N], dropped unfolding [N, R]."""
    n, r = tl.arange(0, LENGTH), tl.arange(0, RANKS)
    is_kept = (r < RANK)[:, None] & is_real[None, :]
    place = (b * RANK + r[:, None]) * length + n[None, :]
    folding_map = tl.load(folding + place, mask=is_kept, other=0.0)
    dropped_map = tl.load(dropped + place, mask=is_kept, other=0.0)
    place = (b * length + n[:, None]) * RANK + r[None, :]
    unfolding_map = tl.load(unfolding + place, mask=is_real[:, None] & (r < RANK)[None, :], other=0.0)
    return folding_map, dropped_map, unfolding_map


@triton.jit
@no_type_check
def _fold(
    dropped_map,
    x,
    added,
    h,
    PART: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """Return folded queries, keys or values [R, C] with their bias, zero beyond the last pseudo-token."""
    folded = product(dropped_map, x, IN_FLOAT32)
    if added is not None:
        c = tl.arange(0, CHANNELS)
        shift = tl.load(added + (PART * HEADS + h) * WIDTH + c, mask=c < WIDTH, other=0.0)
        folded += tl.where(tl.arange(0, RANKS)[:, None] < RANK, shift.to(tl.float32)[None, :], 0.0)
    return folded.to(x.dtype)


@triton.jit
@no_type_check
def _softmax(scores, RANK: tl.constexpr, RANKS: tl.constexpr):
    """Return the softmax of each row [R, R] in float32, zero beyond the last pseudo-token."""
    r = tl.arange(0, RANKS)
    exists = (r < RANK)[:, None] & (r < RANK)[None, :]
    highest = tl.max(tl.where(exists, scores, -1e30), 1)
    weights = tl.exp(tl.where(exists, scores - highest[:, None], float("-inf")))
    return weights / tl.maximum(tl.sum(weights, 1), 1e-30)[:, None]


# A length is not specialized: each would be compiled again. It is a multiple of `MULTIPLE`.
@triton.jit(do_not_specialize=["length"])
@no_type_check
def _folded_forward(
    packed,
    added,
    folding,
    dropped,
    unfolding,
    bias,
    carry,
    token_mask,
    seed,
    out,
    scores,
    squares,
    length,
    dropout,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    RANK: tl.constexpr,
    SCALE: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    MULTIPLE: tl.constexpr,
    LENGTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    RANKS: tl.constexpr,
):
    length = length // MULTIPLE * MULTIPLE  # the compiler then knows that neighbors can be moved together
    b, h = (tl.program_id(0) // HEADS).to(tl.int64), tl.program_id(0) % HEADS
    n, c, r = tl.arange(0, LENGTH), tl.arange(0, CHANNELS), tl.arange(0, RANKS)
    exists, is_channel = n < length, (c < WIDTH)[None, :]
    is_real = tl.load(token_mask + b * length + n, mask=exists, other=0) != 0
    is_entry = is_real[:, None] & is_channel
    folding_map, dropped_map, unfolding_map = _load_maps(
        folding, dropped, unfolding, b, is_real, length, RANK, RANKS, LENGTH
    )
    in_packed = ((b * length + n) * (3 * HEADS * WIDTH))[:, None] + (h * WIDTH + c)[None, :]
    q, k, v = load_head(packed + in_packed, is_entry, HEADS, WIDTH)
    queries = _fold(dropped_map, q, added, h, 0, HEADS, WIDTH, CHANNELS, RANK, RANKS, IN_FLOAT32)
    keys = _fold(dropped_map, k, added, h, 1, HEADS, WIDTH, CHANNELS, RANK, RANKS, IN_FLOAT32)
    values = _fold(dropped_map, v, added, h, 2, HEADS, WIDTH, CHANNELS, RANK, RANKS, IN_FLOAT32)
    total = product(queries, tl.trans(keys), IN_FLOAT32) * SCALE
    if bias is not None:
        pair = (b * HEADS + h) * length * length + (n * length)[:, None] + n[None, :]
        pair_bias = tl.load(bias + pair, mask=exists[:, None] & exists[None, :], other=0.0)
        pair_bias = tl.where(is_real[:, None] & is_real[None, :], pair_bias, 0.0).to(folding_map.dtype)
        total += product(
            product(folding_map, pair_bias, IN_FLOAT32).to(folding_map.dtype),
            tl.trans(folding_map),
            IN_FLOAT32,
        )
    in_scores = (b * HEADS + h) * (RANK * RANK) + r[:, None] * RANK + r[None, :]
    is_score = (r < RANK)[:, None] & (r < RANK)[None, :]
    if carry is not None:
        total += tl.load(carry + in_scores, mask=is_score, other=0.0).to(tl.float32)
    rounded = total.to(scores.dtype.element_ty)
    tl.store(scores + in_scores, rounded, mask=is_score)
    weights = _softmax(rounded.to(tl.float32), RANK, RANKS)
    beside = tl.where(r[:, None] == r[None, :], 0.0, weights * weights)
    tl.store(squares + b * HEADS + h, tl.sum(tl.sum(beside, 1), 0))
    if seed is not None:
        weights *= kept_factor(tl.load(seed), in_scores, dropout)
    head = product(weights.to(v.dtype), values, IN_FLOAT32).to(v.dtype)
    in_result = ((b * length + n) * (HEADS * WIDTH))[:, None] + (h * WIDTH + c)[None, :]
    tl.store(
        out + in_result,
        product(unfolding_map, head, IN_FLOAT32).to(v.dtype),
        mask=exists[:, None] & is_channel,
    )


@triton.jit
@no_type_check
def _store_and_add(
    target,
    sums,
    by_folded,
    dropped_map,
    x,
    by_dropped,
    is_stored,
    is_channel,
    IN_FLOAT32: tl.constexpr,
):
    """Store the gradient of queries, keys or values, and return the added gradient of the dropped folding."""
    tl.store(sums, tl.sum(by_folded, 0), mask=is_channel)
    rounded = by_folded.to(x.dtype)
    tl.store(target, product(tl.trans(dropped_map), rounded, IN_FLOAT32).to(x.dtype), mask=is_stored)
    return by_dropped + product(rounded, tl.trans(x), IN_FLOAT32)


@triton.jit(do_not_specialize=["length"])
@no_type_check
def _folded_backward(
    grad,
    by_scores,
    by_squares,
    packed,
    added,
    folding,
    dropped,
    unfolding,
    bias,
    scores,
    token_mask,
    seed,
    by_packed,
    by_bias,
    by_carry,
    by_folding,
    by_dropped,
    by_unfolding,
    sums,
    length,
    dropout,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    RANK: tl.constexpr,
    SCALE: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    MULTIPLE: tl.constexpr,
    LENGTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    RANKS: tl.constexpr,
    GROUP: tl.constexpr,
):
    length = length // MULTIPLE * MULTIPLE  # the compiler then knows that neighbors can be moved together
    groups: tl.constexpr = (HEADS + GROUP - 1) // GROUP
    b, g = (tl.program_id(0) // groups).to(tl.int64), tl.program_id(0) % groups
    n, c, r = tl.arange(0, LENGTH), tl.arange(0, CHANNELS), tl.arange(0, RANKS)
    exists, is_channel = n < length, c < WIDTH
    is_real = tl.load(token_mask + b * length + n, mask=exists, other=0) != 0
    is_entry = is_real[:, None] & is_channel[None, :]
    is_stored = exists[:, None] & is_channel[None, :]
    pairs_exist = exists[:, None] & exists[None, :]
    is_score = (r < RANK)[:, None] & (r < RANK)[None, :]
    folding_map, dropped_map, unfolding_map = _load_maps(
        folding, dropped, unfolding, b, is_real, length, RANK, RANKS, LENGTH
    )
    f_sum = tl.zeros([RANKS, LENGTH], tl.float32)
    d_sum = tl.zeros([RANKS, LENGTH], tl.float32)
    u_sum = tl.zeros([LENGTH, RANKS], tl.float32)
    for h in range(g * GROUP, tl.minimum(g * GROUP + GROUP, HEADS)):
        in_packed = ((b * length + n) * (3 * HEADS * WIDTH))[:, None] + (h * WIDTH + c)[None, :]
        q, k, v = load_head(packed + in_packed, is_entry, HEADS, WIDTH)
        in_result = ((b * length + n) * (HEADS * WIDTH))[:, None] + (h * WIDTH + c)[None, :]
        upstream = tl.load(grad + in_result, mask=is_entry, other=0.0)
        in_scores = (b * HEADS + h) * (RANK * RANK) + r[:, None] * RANK + r[None, :]
        total = tl.load(scores + in_scores, mask=is_score, other=0.0).to(tl.float32)
        weights = _softmax(total, RANK, RANKS)
        values = _fold(dropped_map, v, added, h, 2, HEADS, WIDTH, CHANNELS, RANK, RANKS, IN_FLOAT32)
        used = weights
        if seed is not None:
            factor = kept_factor(tl.load(seed), in_scores, dropout)
            used = weights * factor
        used = used.to(v.dtype)
        head = product(used, values, IN_FLOAT32).to(v.dtype)
        u_sum += product(upstream, tl.trans(head), IN_FLOAT32)
        by_heads = product(tl.trans(unfolding_map), upstream, IN_FLOAT32).to(v.dtype)
        by_weights = product(by_heads, tl.trans(values), IN_FLOAT32)
        if seed is not None:
            by_weights *= factor
        if by_squares is not None:
            slope = 2.0 * tl.load(by_squares + b * HEADS + h)
            by_weights += tl.where(r[:, None] == r[None, :], 0.0, weights * slope)
        by_total = weights * (by_weights - tl.sum(weights * by_weights, 1)[:, None])
        if by_scores is not None:
            by_total += tl.load(by_scores + in_scores, mask=is_score, other=0.0).to(tl.float32)
        if by_carry is not None:
            tl.store(by_carry + in_scores, by_total.to(by_carry.dtype.element_ty), mask=is_score)
        in_sums = sums + (b * 3 * HEADS + h) * WIDTH + c
        by_values = product(tl.trans(used), by_heads, IN_FLOAT32)
        target = by_packed + in_packed + 2 * HEADS * WIDTH
        d_sum = _store_and_add(
            target,
            in_sums + 2 * HEADS * WIDTH,
            by_values,
            dropped_map,
            v,
            d_sum,
            is_stored,
            is_channel,
            IN_FLOAT32,
        )
        rounded = by_total.to(v.dtype)
        keys = _fold(dropped_map, k, added, h, 1, HEADS, WIDTH, CHANNELS, RANK, RANKS, IN_FLOAT32)
        by_queries = product(rounded, keys, IN_FLOAT32) * SCALE
        d_sum = _store_and_add(
            by_packed + in_packed,
            in_sums,
            by_queries,
            dropped_map,
            q,
            d_sum,
            is_stored,
            is_channel,
            IN_FLOAT32,
        )
        queries = _fold(dropped_map, q, added, h, 0, HEADS, WIDTH, CHANNELS, RANK, RANKS, IN_FLOAT32)
        by_keys = product(tl.trans(rounded), queries, IN_FLOAT32) * SCALE
        d_sum = _store_and_add(
            by_packed + in_packed + HEADS * WIDTH,
            in_sums + HEADS * WIDTH,
            by_keys,
            dropped_map,
            k,
            d_sum,
            is_stored,
            is_channel,
            IN_FLOAT32,
        )
        if bias is not None:
            pair = (b * HEADS + h) * length * length + (n * length)[:, None] + n[None, :]
            pair_bias = tl.load(bias + pair, mask=pairs_exist, other=0.0)
            pair_bias = tl.where(is_real[:, None] & is_real[None, :], pair_bias, 0.0).to(folding_map.dtype)
            along = product(rounded, folding_map, IN_FLOAT32).to(folding_map.dtype)
            f_sum += product(along, tl.trans(pair_bias), IN_FLOAT32)
            by_pair_bias = product(tl.trans(folding_map), along, IN_FLOAT32)
            tl.store(by_bias + pair, by_pair_bias.to(by_bias.dtype.element_ty), mask=pairs_exist)
            across = product(tl.trans(rounded), folding_map, IN_FLOAT32).to(folding_map.dtype)
            f_sum += product(across, pair_bias, IN_FLOAT32)
    place = ((b * groups + g) * RANK + r[:, None]) * length + n[None, :]
    is_kept = (r < RANK)[:, None] & exists[None, :]
    tl.store(by_folding + place, f_sum, mask=is_kept)
    tl.store(by_dropped + place, d_sum, mask=is_kept)
    place = ((b * groups + g) * length + n[:, None]) * RANK + r[None, :]
    tl.store(by_unfolding + place, u_sum, mask=exists[:, None] & (r < RANK)[None, :])
