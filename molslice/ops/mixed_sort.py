"""Mixes heads by pair weights, then sorts: one kernel on a GPU, two steps elsewhere."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from molslice.ops import column_ops, kernels
from molslice.ops.column_ops import BY_COLUMN, BY_TOKEN, empty_columns, index_dtype
from molslice.ops.masked import pair_softmax
from molslice.ops.sorting import permute_columns, sorted_columns

_TRITON = kernels.load_kernels("triton_mix")


def mix_and_sort(
    values: Float[Tensor, "B H N C"],
    pairs: Float[Tensor, "B H N N"],
    token_mask: Bool[Tensor, "B N"],
    descending: Bool[Tensor, "H C"] | None = None,
    is_bias: bool = False,
) -> Float[Tensor, "B H C N"]:
    """Mix heads by pair weights and sort the resulting columns.

    As in `sorted_columns`, rank r is at the r-th real token.

    Args:
        values: Heads [B, H, N, C].
        pairs: Weights that are zero at padding, or a bias that is arbitrary there [B, H, N, N].
        token_mask: True at real tokens [B, N].
        descending: True for columns in descending order [H, C]; None sorts all ascending.
        is_bias: Whether to apply softmax over the real tokens to `pairs`.

    Returns:
        The sorted columns of `pairs @ values` [B, H, C, N].
    """
    if _is_fused(values, pairs):
        flags = None if descending is None else descending[None]
        return _MixAndSort.apply(values, pairs, token_mask, flags, is_bias)[0]
    weights = pair_softmax(pairs, token_mask) if is_bias else pairs
    mixed = weights.to(values.dtype) @ values
    return sorted_columns(mixed.transpose(2, 3), token_mask, descending)


def _is_on_gpu(heads: Tensor) -> bool:
    return heads.is_cuda


def _is_fused(values: Tensor, pairs: Tensor) -> bool:
    return _TRITON is not None and kernels.ENABLED and _is_on_gpu(values) and _TRITON.supports(values, pairs)


@torch.library.custom_op("molslice::mix_and_sort", mutates_args=())
def _mix_and_sort(
    values: Tensor, pairs: Tensor, token_mask: Tensor, descending: Tensor | None, is_bias: bool
) -> tuple[Tensor, Tensor]:
    ranked, order = _empty(values)
    assert _TRITON is not None  # checked in `mix_and_sort`
    _TRITON.mix_and_sort_into(values, pairs, token_mask, descending, is_bias, ranked, order)
    return ranked, order


@_mix_and_sort.register_fake
def _(
    values: Tensor, pairs: Tensor, token_mask: Tensor, descending: Tensor | None, is_bias: bool
) -> tuple[Tensor, Tensor]:
    return _empty(values)


_mix_and_sort.register_vmap(column_ops.vmap_rule(_mix_and_sort))


def _empty(values: Tensor) -> tuple[Tensor, Tensor]:
    columns = values.transpose(2, 3)
    order = empty_columns(columns, BY_COLUMN, index_dtype(values.shape[2]))
    return empty_columns(columns, BY_TOKEN, values.dtype), order


class _MixAndSort(torch.autograd.Function):
    """The kernel with its backward pass: a scatter and the gradients of a matrix product."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        values: Tensor, pairs: Tensor, token_mask: Tensor, descending: Tensor | None, is_bias: bool
    ) -> tuple[Tensor, Tensor]:
        return _mix_and_sort(values, pairs, token_mask, descending, is_bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:  # noqa: ANN401
        values, pairs, token_mask, _, ctx.is_bias = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(values, pairs, token_mask, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, Tensor, None, None, None]:  # noqa: ANN401
        values, pairs, token_mask, order = ctx.saved_tensors
        weights = pair_softmax(pairs, token_mask) if ctx.is_bias else pairs
        by_mixed = permute_columns(grad, order, inverse=True, layout="BGNC").transpose(2, 3)
        by_values = weights.to(values.dtype).transpose(2, 3) @ by_mixed
        by_pairs = (by_mixed @ values.transpose(2, 3)).to(pairs.dtype)
        if ctx.is_bias:
            by_pairs = weights * (by_pairs - (weights * by_pairs).sum(-1, keepdim=True))
        return by_values, by_pairs, None, None, None
