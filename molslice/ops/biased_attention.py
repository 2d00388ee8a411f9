"""Softmax attention with a bias on the scores: kernels for short sequences, torch's for others."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional

from molslice.ops import kernels

_TRITON = kernels.load_kernels("triton_attention")


def biased_attention(
    query: Float[Tensor, "B H N C"],
    key: Float[Tensor, "B H N C"],
    value: Float[Tensor, "B H N C"],
    bias: Float[Tensor, "B H N N"],
    dropout: float = 0.0,
) -> Float[Tensor, "B H N C"]:
    """Compute dropout(softmax(Q K^T / sqrt(C) + bias)) V.

    On a GPU, one Triton kernel computes short sequences in bfloat16 and float16. On a CPU, the N x N weights
    are in memory. For molecules both are faster than `scaled_dot_product_attention`, which serves all other
    cases.

    Args:
        query: Queries Q.
        key: Keys K.
        value: Values V.
        bias: What is added to the scores, finite.
        dropout: Dropout rate of the weights.
    """
    if _TRITON is not None and _may_use_kernels(query):
        by_token = [part.transpose(1, 2) for part in (query, key, value)]
        if _TRITON.supports(*by_token, bias):
            seed = torch.randint(2**31 - 1, (1,), device=query.device) if dropout else None
            return _attend(*by_token, bias, seed, dropout).transpose(1, 2)
    if query.device.type == "cpu" and bias.dtype.itemsize >= 4:
        return _in_memory(query, key, value, bias, dropout)
    return functional.scaled_dot_product_attention(query, key, value, bias, dropout)


def _in_memory(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: float) -> Tensor:
    batch, heads, length, channels = query.shape
    flat_query, flat_key, flat_value = (
        part.reshape(batch * heads, length, channels) for part in (query, key, value)
    )
    flat_bias = bias.reshape(batch * heads, length, length)
    scores = torch.baddbmm(flat_bias, flat_query, flat_key.transpose(1, 2), alpha=channels**-0.5)
    weights = functional.dropout(scores.softmax(-1), dropout) if dropout else scores.softmax(-1)
    return torch.bmm(weights, flat_value).view(batch, heads, length, channels)


def _may_use_kernels(query: Tensor) -> bool:
    return kernels.ENABLED and _is_on_gpu(query) and not _is_transformed()


def _is_on_gpu(heads: Tensor) -> bool:
    return heads.is_cuda


def _is_transformed() -> bool:
    """Return whether a transform of `torch.func` or forward-mode differentiation is active."""
    if torch.compiler.is_compiling():
        return False
    stack = torch._C._functorch.peek_interpreter_stack()  # pyright: ignore[reportAttributeAccessIssue]
    return stack is not None or forward_ad._current_level >= 0


@torch.library.custom_op("molslice::biased_attention", mutates_args=())
def _attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, seed: Tensor | None, dropout: float
) -> Tensor:
    """Call the kernel with heads [B, N, H, C], which it needs to be contiguous."""
    assert _TRITON is not None  # checked in `biased_attention`
    out = query.new_empty(query.shape)
    tensors = [part.contiguous() for part in (query, key, value, bias)]
    _TRITON.attend_into(*tensors, seed, dropout, out)
    return out


@_attend.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, seed: Tensor | None, dropout: float) -> Tensor:
    return query.new_empty(query.shape)


@torch.library.custom_op("molslice::biased_attention_gradients", mutates_args=())
def _gradients(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, seed: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    assert _TRITON is not None  # checked in `biased_attention`
    results = _empty_gradients(query, bias)
    tensors = [part.contiguous() for part in (grad, query, key, value, bias)]
    _TRITON.gradients_into(*tensors, seed, dropout, results)
    return results


@_gradients.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, seed: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _empty_gradients(query, bias)


def _empty_gradients(query: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    by_query, by_key, by_value = (query.new_empty(query.shape) for _ in range(3))
    return by_query, by_key, by_value, bias.new_empty(bias.shape)


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:  # noqa: ANN401
    *tensors, ctx.dropout = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    return (*_gradients(grad, *ctx.saved_tensors, ctx.dropout), None, None)


_attend.register_autograd(_backward, setup_context=_keep)
