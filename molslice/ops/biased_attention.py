"""Softmax attention with a bias on the scores: kernels for short sequences, torch's for others."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from molslice.ops import kernel_choice
from molslice.ops.layer_steps import draw_seed, empty_gradients_and_sums, gradients_and_sums

_TRITON = kernel_choice.load_kernels("triton_attention")


def biased_attention(
    query: Float[Tensor, "B H N C"],
    key: Float[Tensor, "B H M C"],
    value: Float[Tensor, "B H M C"],
    bias: Float[Tensor, "B H N M"],
    dropout: float = 0.0,
) -> Float[Tensor, "B H N C"]:
    """Compute dropout(softmax(Q K^T / sqrt(C) + bias)) V with a finite bias.

    On a CPU, the N x M weights are in memory, which for molecules is faster than
    `scaled_dot_product_attention`. That serves all other cases.
    """
    if query.device.type == "cpu" and bias.dtype.itemsize >= 4:
        return _in_memory(query, key, value, bias, dropout)
    return functional.scaled_dot_product_attention(query, key, value, bias, dropout)


def _in_memory(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: float) -> Tensor:
    channels = query.shape[-1]
    flat_query, flat_key, flat_value = (tensor.flatten(0, 1) for tensor in (query, key, value))
    scores = torch.baddbmm(bias.flatten(0, 1), flat_query, flat_key.transpose(1, 2), alpha=channels**-0.5)
    weights = functional.dropout(scores.softmax(-1), dropout) if dropout else scores.softmax(-1)
    return torch.bmm(weights, flat_value).view(query.shape)


def has_kernels(tokens: Float[Tensor, "B N D"], head_dim: int, dtype: torch.dtype) -> bool:
    """Return whether `packed_attention` computes sequences like these, on a GPU in bfloat16 and float16."""
    return tokens.numel() > 0 and kernel_choice.are_usable(_TRITON, tokens, tokens.shape[1], head_dim, dtype)


def packed_attention(
    packed: Float[Tensor, "B N 3 H C"],
    bias: Float[Tensor, "B H N N"],
    token_mask: Bool[Tensor, "B N"],
    dropout: float = 0.0,
    added: Float[Tensor, " D3"] | None = None,
) -> tuple[Float[Tensor, "B N H C"], Float[Tensor, "B H N N"]]:
    """Compute dropout(softmax(Q K^T / sqrt(C) + bias)) V by a kernel; see `has_kernels`.

    Args:
        packed: Queries Q, keys K and values V, arbitrary at padding.
        bias: What is added to the scores.
        token_mask: True at real tokens.
        dropout: Dropout rate of the weights.
        added: A vector that was added to `packed` without a gradient, which the kernel sums; None without
            one.

    Returns:
        The result, zero at padding, and the bias for the next layer. If the next layer takes that one, the
        gradients of the layers are added in the kernel, not in a pass over N x N tensors for each layer.
    """
    inputs = [tensor.contiguous() for tensor in (packed, bias.to(packed.dtype), token_mask)]
    return _PackedAttention.apply(*inputs, draw_seed(packed, dropout), dropout, added)


@torch.library.custom_op("molslice::packed_attention", mutates_args=())
def _attend(packed: Tensor, bias: Tensor, token_mask: Tensor, seed: Tensor | None, dropout: float) -> Tensor:
    out = _empty_heads(packed)
    assert _TRITON is not None  # checked in `has_kernels`
    _TRITON.attend_into(packed, bias, token_mask, seed, dropout, out)
    return out


_attend.register_fake(lambda packed, *_: _empty_heads(packed))


def _empty_heads(packed: Tensor) -> Tensor:
    batch, length, _, heads, channels = packed.shape
    return packed.new_empty(batch, length, heads, channels)


@torch.library.custom_op("molslice::packed_attention_gradients", mutates_args=())
def _gradients(
    grad: Tensor,
    packed: Tensor,
    bias: Tensor,
    token_mask: Tensor,
    by_next: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    added_dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor, Tensor]:
    assert _TRITON is not None  # checked in `has_kernels`
    inputs = (grad, packed, bias, token_mask, by_next, seed, dropout)
    return gradients_and_sums(_TRITON.gradients_into, inputs, packed, bias, added_dtype)


_gradients.register_fake(lambda _, packed, bias, *others: empty_gradients_and_sums(packed, bias, others[-1]))


class _PackedAttention(torch.autograd.Function):
    """The kernels. The bias is handed on, so that the gradient of the next layer comes with it."""

    @staticmethod
    def forward(
        packed: Tensor,
        bias: Tensor,
        token_mask: Tensor,
        seed: Tensor | None,
        dropout: float,
        added: Tensor | None,  # noqa: ARG004
    ) -> tuple[Tensor, Tensor]:
        return _attend(packed, bias, token_mask, seed, dropout), bias.view_as(bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:  # noqa: ANN401
        *tensors, ctx.dropout, added = inputs
        ctx.added_dtype = None if added is None else added.dtype
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, by_next: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        packed, bias, token_mask, seed = ctx.saved_tensors
        if grad is None:
            return None, by_next, None, None, None, None
        inputs = (grad, packed, bias, token_mask, by_next, seed, ctx.dropout, ctx.added_dtype)
        by_packed, by_bias, by_added = _gradients(*inputs)
        return by_packed, by_bias, None, None, None, None if ctx.added_dtype is None else by_added
