"""Attention of short sequences with a pair bias, by one kernel for each direction: softmax and flow."""

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from molslice.ops import kernel_choice
from molslice.ops.layer_steps import draw_seed, empty_gradients_and_sums, gradients_and_sums

Kind = Literal["softmax", "flow"]
_TRITON = {
    "softmax": kernel_choice.load_kernels("triton_attention"),
    "flow": kernel_choice.load_kernels("triton_flow"),
}


def has_kernels(
    tokens: Float[Tensor, "B N D"], head_dim: int, dtype: torch.dtype, kind: Kind = "softmax"
) -> bool:
    """Return whether `packed_attention` computes sequences like these, on a GPU in bfloat16 and float16."""
    sizes = tokens.shape[1], head_dim, dtype
    return tokens.numel() > 0 and kernel_choice.are_usable(_TRITON[kind], tokens, *sizes)


def packed_attention(
    packed: Float[Tensor, "B N 3 H C"],
    bias: Float[Tensor, "B H N N"],
    token_mask: Bool[Tensor, "B N"],
    dropout: float = 0.0,
    added: Float[Tensor, " D3"] | None = None,
    kind: Kind = "softmax",
) -> tuple[Float[Tensor, "B N H C"], Float[Tensor, "B H N N"]]:
    """Compute dropout(weights) V by a kernel; see `has_kernels`.

    The weights are softmax(Q K^T / sqrt(C) + bias), or the attention map of flow attention with capacities
    sigmoid(Q) sigmoid(K)^T exp(bias), which includes competition and allocation.

    Args:
        packed: Queries Q, keys K and values V, arbitrary at padding.
        bias: What is added to the scores, or to the logarithms of the capacities.
        token_mask: True at real tokens.
        dropout: Dropout rate of the weights; 0 for flow.
        added: A vector that was added to `packed` without a gradient, which the kernel sums; None without
            one.
        kind: The weights.

    Returns:
        The result, zero at padding, and the bias for the next layer. If the next layer takes that one, the
        gradients of the layers are added in the kernel, not in a pass over N x N tensors for each layer.
    """
    inputs = [tensor.contiguous() for tensor in (packed, bias.to(packed.dtype), token_mask)]
    return _PackedAttention.apply(*inputs, draw_seed(packed, dropout), dropout, kind, added)


@torch.library.custom_op("molslice::packed_attention", mutates_args=())
def _attend(
    packed: Tensor, bias: Tensor, token_mask: Tensor, seed: Tensor | None, dropout: float, kind: str
) -> Tensor:
    out = _empty_heads(packed)
    kernels = _TRITON[kind]
    assert kernels is not None  # checked in `has_kernels`
    kernels.attend_into(packed, bias, token_mask, seed, dropout, out)
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
    kind: str,
    added_dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor, Tensor]:
    kernels = _TRITON[kind]
    assert kernels is not None  # checked in `has_kernels`
    inputs = (grad, packed, bias, token_mask, by_next, seed, dropout)
    return gradients_and_sums(kernels.gradients_into, inputs, packed, bias, added_dtype)


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
        kind: str,
        added: Tensor | None,  # noqa: ARG004
    ) -> tuple[Tensor, Tensor]:
        return _attend(packed, bias, token_mask, seed, dropout, kind), bias.view_as(bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:  # noqa: ANN401
        *tensors, ctx.dropout, ctx.kind, added = inputs
        ctx.added_dtype = None if added is None else added.dtype
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, by_next: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        packed, bias, token_mask, seed = ctx.saved_tensors
        if grad is None:
            return None, by_next, None, None, None, None, None
        inputs = (grad, packed, bias, token_mask, by_next, seed, ctx.dropout, ctx.kind, ctx.added_dtype)
        by_packed, by_bias, by_added = _gradients(*inputs)
        return by_packed, by_bias, None, None, None, None, None if ctx.added_dtype is None else by_added
