"""Mixes heads by pair weights, then sorts: kernels on a GPU, two steps elsewhere."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from molslice.ops import kernel_choice
from molslice.ops.layer_steps import draw_seed, empty_gradients_and_sums, gradients_and_sums
from molslice.ops.sorting import permute_tokens, sorted_columns, swap_order

_TRITON = kernel_choice.load_kernels("triton_mix")


def has_kernels(tokens: Float[Tensor, "B N D"], head_dim: int, dtype: torch.dtype) -> bool:
    """Return whether kernels mix and sort sequences like these."""
    return tokens.numel() > 0 and kernel_choice.are_usable(_TRITON, tokens, tokens.shape[1], head_dim, dtype)


def mix_and_sort(
    values: Float[Tensor, "B N H C"],
    weights: Float[Tensor, "B H N N"],
    token_mask: Bool[Tensor, "B N"],
    descending: Bool[Tensor, "H C"] | None = None,
    dropout: float = 0.0,
    added: Float[Tensor, " D"] | None = None,
    exchanges: bool = False,
) -> tuple[Float[Tensor, "B N H C"], Float[Tensor, "B H N N"]]:
    """Mix heads by pair weights and sort the resulting columns.

    As in `sorted_columns`, rank r is at the r-th real token.

    Args:
        values: Heads by token.
        weights: Pair weights, zero at padding.
        token_mask: True at real tokens.
        descending: True for columns in descending order; None sorts all ascending.
        dropout: Dropout rate of the weights.
        added: A vector that was added to `values` without a gradient, which a kernel sums; None without one.
        exchanges: Whether the largest value of a column and the value of the first real token change places,
            instead of a sort.

    Returns:
        The sorted columns of `dropout(weights) @ values`, arbitrary at padding, and the weights for the next
        layer. If the next layer takes those, the kernel adds the gradients of the layers.
    """
    if has_kernels(values.flatten(2), values.shape[3], values.dtype):
        inputs = [tensor.contiguous() for tensor in (values, weights, token_mask)]
        flags = None if descending is None else descending.contiguous()
        seed = draw_seed(values, dropout)
        columns, _, weights = _MixAndSort.apply(*inputs, flags, seed, dropout, exchanges, added)
        return columns, weights
    used = functional.dropout(weights, dropout).to(values.dtype)
    mixed = (used @ values.transpose(1, 2)).transpose(2, 3)
    if exchanges:
        flat = mixed.flatten(1, 2)
        columns = permute_tokens(flat, swap_order(flat, token_mask)).view(mixed.shape)
    else:
        columns = sorted_columns(mixed, token_mask, descending)
    return columns.permute(0, 3, 1, 2), weights


@torch.library.custom_op("molslice::mix_and_sort", mutates_args=())
def _mix_and_sort(
    values: Tensor,
    weights: Tensor,
    token_mask: Tensor,
    descending: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    exchanges: bool,
) -> tuple[Tensor, Tensor]:
    results = _empty_columns(values)
    assert _TRITON is not None  # checked in `has_kernels`
    _TRITON.mix_and_sort_into(values, weights, token_mask, descending, seed, dropout, exchanges, results)
    return results


def _empty_columns(values: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(values), torch.empty_like(values, dtype=torch.uint8)


_mix_and_sort.register_fake(lambda values, *_: _empty_columns(values))


@torch.library.custom_op("molslice::mix_and_sort_gradients", mutates_args=())
def _gradients(
    grad: Tensor,
    places: Tensor,
    values: Tensor,
    weights: Tensor,
    token_mask: Tensor,
    by_next: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    added_dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor, Tensor]:
    assert _TRITON is not None  # checked in `has_kernels`
    inputs = (grad, places, values, weights, token_mask, by_next, seed, dropout)
    return gradients_and_sums(_TRITON.gradients_into, inputs, values, weights, added_dtype)


_gradients.register_fake(
    lambda _, places, values, weights, *others: empty_gradients_and_sums(values, weights, others[-1])
)


class _MixAndSort(torch.autograd.Function):
    """The kernels. The weights are handed on, so that the gradient of the next layer comes with it."""

    @staticmethod
    def forward(
        values: Tensor,
        weights: Tensor,
        token_mask: Tensor,
        descending: Tensor | None,
        seed: Tensor | None,
        dropout: float,
        exchanges: bool,
        added: Tensor | None,  # noqa: ARG004
    ) -> tuple[Tensor, Tensor, Tensor]:
        columns, places = _mix_and_sort(values, weights, token_mask, descending, seed, dropout, exchanges)
        return columns, places, weights.view_as(weights)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:  # noqa: ANN401
        values, weights, token_mask, _, seed, ctx.dropout, _, added = inputs
        ctx.added_dtype = None if added is None else added.dtype
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1], values, weights, token_mask, seed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, _: Any, by_next: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        *tensors, seed = ctx.saved_tensors
        if grad is None:
            return None, by_next, None, None, None, None, None, None
        inputs = (grad, *tensors, by_next, seed, ctx.dropout, ctx.added_dtype)
        by_values, by_weights, by_added = _gradients(*inputs)
        by_added = None if ctx.added_dtype is None else by_added
        return by_values, by_weights, None, None, None, None, None, by_added
