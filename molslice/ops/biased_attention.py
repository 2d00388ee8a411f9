"""Softmax attention with a bias on the scores: kernels for short sequences, torch's for others."""

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from molslice.ops import column_ops


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
    if _kernels_for(query, key, bias) is not None:
        if dropout:
            seed = torch.randint(2**31 - 1, (1,), device=query.device)
        else:
            seed = torch.zeros(1, dtype=torch.int64, device=query.device)
        by_token = (part.transpose(1, 2).contiguous() for part in (query, key, value))
        return _attend(*by_token, bias.contiguous(), seed, dropout).transpose(1, 2)
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


def _kernels_for(query: Tensor, key: Tensor, bias: Tensor) -> ModuleType | None:
    kernels = _load_triton() if column_ops.KERNELS and query.is_cuda else None
    if kernels is None or not kernels.supports(query.transpose(1, 2), key.transpose(1, 2), bias):
        return None
    return kernels


@cache
def _load_triton() -> ModuleType | None:
    try:
        return import_module("molslice.ops.triton_attention")
    except ImportError:
        return None


@torch.library.custom_op("molslice::biased_attention", mutates_args=())
def _attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, seed: Tensor, dropout: float) -> Tensor:
    """Call the kernel with contiguous heads [B, N, H, C]."""
    kernels, out = _load_triton(), torch.empty_like(query)
    assert kernels is not None  # checked in `biased_attention`
    kernels.attend_into(query, key, value, bias, seed, dropout, out)
    return out


@_attend.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, seed: Tensor, dropout: float) -> Tensor:
    return torch.empty_like(query)


@torch.library.custom_op("molslice::biased_attention_gradients", mutates_args=())
def _gradients(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, seed: Tensor, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    kernels, results = _load_triton(), _empty_gradients(query, bias)
    assert kernels is not None  # checked in `biased_attention`
    kernels.gradients_into(grad, query, key, value, bias, seed, dropout, results)
    return results


@_gradients.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, seed: Tensor, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _empty_gradients(query, bias)


def _empty_gradients(query: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(query), torch.empty_like(query), torch.empty_like(query), torch.empty_like(bias)


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:  # noqa: ANN401
    *tensors, ctx.dropout = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    return (*_gradients(grad.contiguous(), *ctx.saved_tensors, ctx.dropout), None, None)


_attend.register_autograd(_backward, setup_context=_keep)
_attend.register_vmap(column_ops.vmap_rule(_attend))
