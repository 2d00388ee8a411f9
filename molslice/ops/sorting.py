"""Sorting along the tokens, padding last, with the smallest possible indices for the backward pass.

Columns are [B, K, N], or [B, H, C, N] in groups, in any memory layout: the columns of tokens [B, N, K] are
`tokens.transpose(1, 2)` without a copy. An order is an index tensor of the same shape. Entry r is the token
of rank r: first the real tokens, then padding in place. The operators and their kernels are in
`column_ops.py`.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional

from molslice.ops import column_ops, kernel_choice
from molslice.ops.column_ops import BY_TOKEN, index_dtype, layout_of
from molslice.ops.features import precise

LONGEST_CHAIN = 4.0  # of tied keys, in the difference that ties two of them


def sort_columns(
    values: Float[Tensor, "B *K N"],
    token_mask: Bool[Tensor, "B N"],
    descending: Bool[Tensor, "*K"] | None = None,
    to_front: bool = False,
) -> tuple[Float[Tensor, "B *K N"], Integer[Tensor, "B *K N"]]:
    """Sort each column. The sort is stable, and the backward pass stores only the order, in small integers.

    Args:
        values: Columns [B, K, N] or [B, H, C, N].
        token_mask: True at real tokens.
        descending: True for columns in descending order; None sorts all ascending.
        to_front: Put the real tokens first, then padding. Otherwise rank r is at the r-th real token, and
            padding keeps its position and value.

    Returns:
        The sorted columns and the order, in the shape of `values`. `ranked.transpose(1, 2)` of sorted columns
        [B, K, N] is contiguous. The order has the smallest integer type that can index N tokens.
    """
    ranked, order = _Sort.apply(_grouped(values), token_mask, _grouped_flags(descending), to_front)
    return _ungrouped(ranked, values), _ungrouped(order, values)


def sorted_columns(
    values: Float[Tensor, "B *K N"],
    token_mask: Bool[Tensor, "B N"],
    descending: Bool[Tensor, "*K"] | None = None,
    to_front: bool = False,
) -> Float[Tensor, "B *K N"]:
    """Return only the sorted columns of `sort_columns`; cheaper if no gradient is needed."""
    # Under a transform, also one that `torch.compile` traces, `requires_grad` may not say that a gradient is
    # needed.
    may_need_grad = values.requires_grad or torch.compiler.is_compiling()
    if kernel_choice.is_transformed() or (torch.is_grad_enabled() and may_need_grad):
        return sort_columns(values, token_mask, descending, to_front)[0]
    ranked = column_ops.sorted_op(_grouped(values), token_mask, _grouped_flags(descending), to_front)
    return _ungrouped(ranked, values)


def permute_tokens(
    values: Float[Tensor, "B K N"], order: Integer[Tensor, " B #K N"]
) -> Float[Tensor, "B K N"]:
    """Return `values[order]` along the tokens, with one order per column or one for all columns."""
    grouped = values[:, None]
    return _Permute.apply(grouped, order[:, None], False, layout_of(grouped))[:, 0]


def permute_groups(
    values: Float[Tensor, "B H C N"], order: Integer[Tensor, "B H N"], inverse: bool = False
) -> Float[Tensor, "B H C N"]:
    """Permute all columns of a group by one order, or its inverse.

    `flatten(1, 2).transpose(1, 2)` of the result is contiguous.
    """
    return _Permute.apply(values, order[:, :, None], inverse, BY_TOKEN)


def _grouped(columns: Tensor) -> Tensor:
    return columns if columns.ndim == 4 else columns[:, None]


def _grouped_flags(flags: Tensor | None) -> Tensor | None:
    return None if flags is None else flags.reshape(1, -1, flags.shape[-1])


def _ungrouped(columns: Tensor, like: Tensor) -> Tensor:
    return columns if like.ndim == 4 else columns[:, 0]


class _Sort(torch.autograd.Function):
    """A sort whose backward pass stores only the small indices."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        values: Tensor, token_mask: Tensor, descending: Tensor | None, to_front: bool
    ) -> tuple[Tensor, Tensor]:
        order_dtype = index_dtype(values.shape[-1])
        return column_ops.sort_op(values, token_mask, descending, to_front, order_dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:  # noqa: ANN401
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.layout = layout_of(inputs[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        (order,) = ctx.saved_tensors
        # Each token is used exactly once, so a scatter is the exact and deterministic inverse.
        return _Permute.apply(grad, order, True, ctx.layout), None, None, None


class _Permute(torch.autograd.Function):
    """A gather, or scatter, whose backward pass is the other one and stores only the small indices."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, order: Tensor, inverse: bool, layout: str) -> Tensor:
        return column_ops.permute_op(values, order, inverse, layout)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:  # noqa: ANN401
        values, order, ctx.inverse, _ = inputs
        ctx.save_for_backward(order)
        ctx.layout = layout_of(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        (order,) = ctx.saved_tensors
        return _Permute.apply(grad, order, not ctx.inverse, ctx.layout), None, None, None


def inverse_order(order: Integer[Tensor, "B K N"]) -> Integer[Tensor, "B K N"]:
    """Return the rank of each token under `order` [B, K, N]."""
    ranks = torch.arange(order.shape[-1], device=order.device, dtype=order.dtype)
    return torch.zeros_like(order).scatter(-1, order.long(), ranks.expand_as(order))


def front_order(token_mask: Bool[Tensor, "B N"]) -> Integer[Tensor, "B 1 N"]:
    """Return the order [B, 1, N] that moves the real tokens to the front, without reordering them."""
    real_before = token_mask.cumsum(-1) - 1
    padding_before = (~token_mask).cumsum(-1) - 1 + token_mask.sum(-1, keepdim=True)
    rank = torch.where(token_mask, real_before, padding_before)
    return inverse_order(rank.to(index_dtype(token_mask.shape[-1]))[:, None])


def swap_order(keys: Float[Tensor, "B K N"], token_mask: Bool[Tensor, "B N"]) -> Integer[Tensor, "B K N"]:
    """Return the order [B, K, N] that swaps the largest key of each column with its first real token."""
    floor = torch.finfo(keys.dtype).min
    largest = keys.detach().masked_fill(~token_mask[:, None], floor).argmax(-1, keepdim=True)
    first = token_mask.int().argmax(-1)[:, None, None].expand_as(largest)
    order = torch.arange(keys.shape[-1], device=keys.device).expand(keys.shape)
    order = order.scatter(-1, largest, first).scatter(-1, first, largest)
    return order.to(index_dtype(keys.shape[-1]))


def shuffle_order(token_mask: Bool[Tensor, "B N"], seed: int) -> Integer[Tensor, "B 1 N"]:
    """Return a fixed pseudo-random order of the real tokens for all columns; padding keeps its position.

    It depends only on the seed and on the number of real tokens, not on a global generator.
    """
    length = token_mask.shape[-1]
    word = 0xFFFFFFFF
    # An integer hash of (seed, position); factors have at most 31 bits, so int64 does not overflow.
    state = torch.arange(1, length + 1, device=token_mask.device) + ((seed + 1) * 0x9E3779B1 & word)
    for _ in range(2):
        state = ((state >> 16) ^ state) * 0x45D9F3B & word
    state = (state >> 16) ^ state
    is_real = torch.arange(length, device=token_mask.device) < token_mask.sum(-1, keepdim=True)
    shuffled = torch.where(is_real, state, word + 1)[:, None].sort(dim=-1, stable=True).indices
    front = front_order(token_mask)
    return front.gather(-1, shuffled).gather(-1, inverse_order(front).long())


def tied_mean(
    values: Float[Tensor, "B K N"], keys: Float[Tensor, "B N"], count: Integer[Tensor, " B"], tolerance: float
) -> Float[Tensor, "B K N"]:
    """Average `values` over each run of nearly equal `keys`.

    Args:
        values: Columns [B, K, N].
        keys: Keys, ascending over the first `count` entries [B, N].
        count: Number of real entries of each sequence [B].
        tolerance: Neighboring keys are tied if they differ by at most this share of the largest magnitude of
            a key, or by the rounding of one of them. Ties chain over at most four times this difference:
            without a limit, the many neighboring keys of a long sequence in half precision would be one run.

    Returns:
        Columns [B, K, N] with the mean of its run at each entry. Entries from `count` on do not change.
    """
    position = torch.arange(keys.shape[-1], device=keys.device)
    is_real = position < count[:, None]
    eps = torch.finfo(keys.dtype).eps
    keys = precise(keys.detach().masked_fill(~is_real, 0.0))
    magnitude = keys.abs()
    # Half precision rounds a key by a share of the key itself.
    allowed = torch.maximum(tolerance * magnitude.amax(-1, keepdim=True), eps * magnitude)
    is_tied = (keys.diff(dim=-1) <= torch.maximum(allowed[:, :-1], allowed[:, 1:])) & is_real[:, 1:]
    is_first = ~functional.pad(is_tied, (1, 0))
    chain = is_first.cumsum(-1) - 1
    firsts = torch.zeros_like(chain).scatter_add(-1, chain, is_first * position)
    start = firsts.gather(-1, chain)  # as cummax of the first positions, for which ONNX has no operator
    limit = (LONGEST_CHAIN * allowed.gather(-1, start)).clamp(min=torch.finfo(keys.dtype).tiny)
    piece = ((keys - keys.gather(-1, start)) / limit).floor()
    is_tied = is_tied & (piece.diff(dim=-1) == 0)
    run = functional.pad(~is_tied, (1, 0)).cumsum(-1)
    size = torch.zeros_like(keys).scatter_add(-1, run, torch.ones_like(keys))
    run = run[:, None].expand_as(values)
    wide = precise(values)  # a sum of many values in half precision overflows, or stops growing
    total = torch.zeros_like(wide).scatter_add(-1, run, wide)
    return (total / size.clamp(min=1)[:, None]).gather(-1, run).to(values.dtype)
