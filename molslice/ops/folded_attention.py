"""Attention among pseudo-tokens that tokens are folded to, by one kernel for each direction."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from molslice.ops import kernel_choice
from molslice.ops.layer_steps import draw_seed, sum_rows

_TRITON = kernel_choice.load_kernels("triton_folded")


class FoldingMaps(NamedTuple):
    """The maps between tokens and pseudo-tokens, shared by all heads and zero at padding.

    Attributes:
        folding: Weights of the tokens in each pseudo-token [B, R, N], for the pair bias.
        dropped: The same after dropout, for queries, keys and values.
        unfolding: Weights of the pseudo-tokens in each token after dropout [B, N, R].
    """

    folding: Float[Tensor, "B R N"]
    dropped: Float[Tensor, "B R N"]
    unfolding: Float[Tensor, "B N R"]


def has_kernels(tokens: Float[Tensor, "B N D"], head_dim: int, rank: int, dtype: torch.dtype) -> bool:
    """Return whether `folded_attention` computes sequences like these, on a GPU in bfloat16 and float16."""
    sizes = tokens.shape[1], head_dim, rank, dtype
    return tokens.numel() > 0 and kernel_choice.are_usable(_TRITON, tokens, *sizes)


def folded_attention(
    packed: Float[Tensor, "B N 3 H C"],
    added: Float[Tensor, " D3"] | None,
    maps: FoldingMaps,
    bias: Float[Tensor, "B H N N"] | None,
    carry: Float[Tensor, "B H R R"] | None,
    token_mask: Bool[Tensor, "B N"],
    dropout: float = 0.0,
    scale: float = 1.0,
) -> tuple[Float[Tensor, "B N H C"], Float[Tensor, "B H R R"], Float[Tensor, "B H"]]:
    """Compute unfolding dropout(softmax(scores)) V by a kernel; see `has_kernels`.

    The scores are Q K^T scale + folding bias folding^T + carry, with Q, K and V folded by `dropped`.

    Args:
        packed: Queries, keys and values of the tokens without their bias, arbitrary at padding.
        added: Bias of folded queries, keys and values; None without one.
        maps: The maps.
        bias: Pair bias, arbitrary at padding; None without one.
        carry: What is added to the scores; None for zero.
        token_mask: True at real tokens.
        dropout: Dropout rate of the softmax.
        scale: Factor of the product of queries and keys.

    Returns:
        The result, zero at padding; the scores; and the sum of the squares of the softmax beside its
        diagonal, float32.
    """
    dtype = packed.dtype
    tensors = (packed, added, *(one.to(dtype) for one in maps), *(_cast(one, dtype) for one in (bias, carry)))
    inputs = [None if tensor is None else tensor.contiguous() for tensor in (*tensors, token_mask)]
    return _FoldedAttention.apply(*inputs, draw_seed(packed, dropout), dropout, scale)


def _cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if tensor is None else tensor.to(dtype)


@torch.library.custom_op("molslice::folded_attention", mutates_args=())
def _attend(
    packed: Tensor,
    added: Tensor | None,
    folding: Tensor,
    dropped: Tensor,
    unfolding: Tensor,
    bias: Tensor | None,
    carry: Tensor | None,
    token_mask: Tensor,
    seed: Tensor | None,
    dropout: float,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    results, maps = _empty_results(packed, folding), (folding, dropped, unfolding)
    assert _TRITON is not None  # checked in `has_kernels`
    _TRITON.attend_into(packed, added, maps, bias, carry, token_mask, seed, dropout, scale, results)
    return results


def _empty_results(packed: Tensor, folding: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    (batch, length, _, heads, channels), rank = packed.shape, folding.shape[1]
    return (
        packed.new_empty(batch, length, heads, channels),
        packed.new_empty(batch, heads, rank, rank),
        packed.new_empty(batch, heads, dtype=torch.float32),
    )


_attend.register_fake(lambda packed, _, folding, *others: _empty_results(packed, folding))  # noqa: ARG005


@torch.library.custom_op("molslice::folded_attention_gradients", mutates_args=())
def _gradients(
    grad: Tensor,
    by_scores: Tensor | None,
    by_squares: Tensor | None,
    packed: Tensor,
    added: Tensor | None,
    folding: Tensor,
    dropped: Tensor,
    unfolding: Tensor,
    bias: Tensor | None,
    scores: Tensor,
    token_mask: Tensor,
    seed: Tensor | None,
    has_carry: bool,
    dropout: float,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    assert _TRITON is not None  # checked in `has_kernels`
    batch, _, _, heads, channels = packed.shape
    by_bias = None if bias is None else torch.empty_like(bias)
    by_carry = torch.empty_like(scores) if has_carry else None
    groups = _TRITON.num_groups(heads)
    by_maps = [
        one.new_empty(batch, groups, *one.shape[1:], dtype=torch.float32)
        for one in (folding, dropped, unfolding)
    ]
    sums = packed.new_empty(batch, 3, heads, channels, dtype=torch.float32)
    by_packed = torch.empty_like(packed)
    grads = [None if one is None else one.contiguous() for one in (grad, by_scores, by_squares)]
    results = (by_packed, by_bias, by_carry, *by_maps, sums)
    maps = (folding, dropped, unfolding)
    _TRITON.gradients_into(
        tuple(grads), packed, added, maps, bias, scores, token_mask, seed, dropout, scale, results
    )
    by_added = packed.new_empty(0) if added is None else sum_rows(sums.flatten(1), added.dtype)
    by_folding, by_dropped, by_unfolding = (one.sum(1).to(packed.dtype) for one in by_maps)
    by_bias = packed.new_empty(0) if by_bias is None else by_bias
    by_carry = packed.new_empty(0) if by_carry is None else by_carry
    return by_packed, by_added, by_folding, by_dropped, by_unfolding, by_bias, by_carry


@_gradients.register_fake
def _(
    grad: Tensor,
    by_scores: Tensor | None,
    by_squares: Tensor | None,
    packed: Tensor,
    added: Tensor | None,
    folding: Tensor,
    dropped: Tensor,
    unfolding: Tensor,
    bias: Tensor | None,
    scores: Tensor,
    *others: Any,  # noqa: ANN401
) -> tuple[Tensor, ...]:
    has_carry = others[2]
    likes = (packed, added, folding, dropped, unfolding, bias, scores if has_carry else None)
    return tuple(packed.new_empty(0) if one is None else torch.empty_like(one) for one in likes)


class _FoldedAttention(torch.autograd.Function):
    """The kernels."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
        return _attend(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:  # noqa: ANN401
        *tensors, carry, token_mask, seed, ctx.dropout, ctx.scale = inputs
        ctx.has_carry = carry is not None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, output[1], token_mask, seed)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        grad: Tensor | None,
        by_scores: Tensor | None,
        by_squares: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        packed, added, *_, bias, _, _, _ = tensors
        if grad is None:
            grad = torch.zeros_like(packed[:, :, 0])
        gradients = _gradients(grad, by_scores, by_squares, *tensors, ctx.has_carry, ctx.dropout, ctx.scale)
        by_packed, by_added, *by_maps, by_bias, by_carry = gradients
        optional = (None if bias is None else by_bias, by_carry if ctx.has_carry else None)
        return by_packed, None if added is None else by_added, *by_maps, *optional, *(None,) * 4
