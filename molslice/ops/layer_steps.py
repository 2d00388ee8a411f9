"""What is between the matrix products of an encoder layer: kernels on a GPU, torch's operations elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from molslice.ops import kernel_choice

_TRITON = kernel_choice.load_kernels("triton_layers")
_NO_SEEDS: Iterator[Tensor] = iter(())
_DRAWN: ContextVar[Iterator[Tensor]] = ContextVar("drawn seeds", default=_NO_SEEDS)  # threads have their own


def has_kernels(tokens: Float[Tensor, "*rows D"]) -> bool:
    """Return whether kernels compute these steps for rows like these."""
    return kernel_choice.are_usable(_TRITON, tokens)


def draw_seed(tokens: Tensor, dropout: float) -> Tensor | None:
    """Return the seed of dropped entries, int64 [1] on the device of the tokens; None without dropout."""
    if not dropout:
        return None
    # the compiler cannot trace the variable of the context
    drawn = None if torch.compiler.is_compiling() else next(_DRAWN.get(), None)
    return torch.randint(2**62, (1,), device=tokens.device) if drawn is None else drawn


@contextmanager
def seeds_drawn_at_once(tokens: Tensor, count: int) -> Iterator[None]:
    """Draw up to `count` seeds of `draw_seed` by one operation, because each costs a launch on a GPU.

    Args:
        tokens: Tensor on the device of the seeds.
        count: Number of seeds; zero if none are needed.
    """
    # rows of 16 bytes: Triton compiles a kernel again for a pointer with another alignment
    drawn = torch.randint(2**62, (count, 2), device=tokens.device) if count else tokens.new_empty(0, 2)
    token = _DRAWN.set(iter([row[:1] for row in drawn.unbind()]))
    try:
        yield
    finally:
        _DRAWN.reset(token)


def sum_rows(parts: Float[Tensor, "P D"], dtype: torch.dtype) -> Float[Tensor, " D"]:
    """Sum the parts of a gradient that the programs of a kernel have computed in float32."""
    out = parts.new_empty(parts.shape[1], dtype=dtype)
    assert _TRITON is not None  # checked in `has_kernels`
    _TRITON.sum_rows_into(parts, out)
    return out


def add_and_norm(
    tokens: Float[Tensor, "*rows D"] | None,
    change: Float[Tensor, "*rows D"],
    bias: Float[Tensor, " D"] | None,
    norm: torch.nn.LayerNorm,
    dropout: float,
    dtype: torch.dtype,
    stored: torch.dtype | None = None,
) -> tuple[Float[Tensor, "*rows D"], Float[Tensor, "*rows D"]]:
    """Compute tokens + dropout(change + bias) and its layer norm.

    Args:
        tokens: The tokens; None for zeros.
        change: What is added to them.
        bias: Bias of the change; None without one.
        norm: The norm.
        dropout: Dropout rate, 0 outside of training.
        dtype: Type of the result of the norm. Statistics are computed in float32.
        stored: Type of the sum without tokens; None for the type of the change.
    """
    stored = (stored or change.dtype) if tokens is None else tokens.dtype
    if has_kernels(change):
        seed, given = draw_seed(change, dropout), None if tokens is None else tokens.contiguous()
        inputs = (given, change.contiguous(), bias, norm.weight, norm.bias)
        total, normed, _ = _add_and_norm(*inputs, norm.eps, seed, dropout, dtype, stored)
        return total, normed
    added = functional.dropout(change if bias is None else change + bias, dropout)
    total = (added if tokens is None else tokens + added).to(stored)
    return total, norm(total.to(norm.weight.dtype)).to(dtype)


def gradients_and_sums(
    kernel: Callable[..., None], inputs: tuple, one: Tensor, other: Tensor, summed: torch.dtype | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute two gradients by a kernel, and the sum of the first over sequences and tokens.

    Args:
        kernel: Writes the gradients, and float32 sums over the tokens or None.
        inputs: Its other arguments.
        one: The tensor of the first gradient [B, N, ...].
        other: The tensor of the second gradient.
        summed: Type of the sum; None if it is not needed, which leaves it empty.
    """
    inputs = tuple(x.contiguous() if isinstance(x, Tensor) else x for x in inputs)
    sums = one.new_empty(len(one), *one.shape[2:], dtype=torch.float32)
    results = torch.empty_like(one), torch.empty_like(other)
    kernel(*inputs, (*results, None if summed is None else sums))
    return *results, one.new_empty(0) if summed is None else sum_rows(sums.flatten(1), summed)


def empty_gradients_and_sums(
    one: Tensor, other: Tensor, summed: torch.dtype | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return tensors of the same shapes as `gradients_and_sums` returns."""
    size = 0 if summed is None else one[0, 0].numel()
    return torch.empty_like(one), torch.empty_like(other), one.new_empty(size, dtype=summed)


def gelu_and_drop(
    hidden: Float[Tensor, "*rows D"], bias: Float[Tensor, " D"] | None, dropout: float
) -> Float[Tensor, "*rows D"]:
    """Compute dropout(gelu(hidden + bias)).

    Args:
        hidden: Rows [..., D].
        bias: Bias [D]; None without one.
        dropout: Dropout rate, 0 outside of training.
    """
    if has_kernels(hidden):
        return _gelu(hidden.contiguous(), bias, draw_seed(hidden, dropout), dropout)
    hidden = hidden if bias is None else hidden + bias
    return functional.dropout(functional.gelu(hidden), dropout)


@torch.library.custom_op("molslice::add_and_norm", mutates_args=())
def _add_and_norm(
    tokens: Tensor | None,
    change: Tensor,
    bias: Tensor | None,
    weight: Tensor,
    norm_bias: Tensor,
    eps: float,
    seed: Tensor | None,
    dropout: float,
    dtype: torch.dtype,
    stored: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    results = _empty_norm(change, dtype, stored)
    assert _TRITON is not None  # checked in `has_kernels`
    _TRITON.add_and_norm_into(tokens, change, bias, (weight, norm_bias), eps, seed, dropout, results)
    return results


_add_and_norm.register_fake(lambda _, change, *others: _empty_norm(change, *others[-2:]))


def _empty_norm(change: Tensor, dtype: torch.dtype, stored: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    statistics = change.new_empty(2, change.numel() // change.shape[-1], dtype=torch.float32)
    return torch.empty_like(change, dtype=stored), torch.empty_like(change, dtype=dtype), statistics


@torch.library.custom_op("molslice::add_and_norm_gradients", mutates_args=())
def _norm_gradients(
    by_total: Tensor | None,
    by_normed: Tensor,
    total: Tensor,
    statistics: Tensor,
    weight: Tensor,
    seed: Tensor | None,
    dropout: float,
    change_dtype: torch.dtype,
    is_added: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    by_tokens, by_change = _empty_gradients(total, change_dtype, is_added)
    assert _TRITON is not None  # checked in `has_kernels`
    by_total = None if by_total is None else by_total.contiguous()
    inputs = (by_total, by_normed.contiguous(), total, statistics, weight, seed, dropout)
    sums = _TRITON.add_and_norm_gradients_into(*inputs, (by_tokens if is_added else None, by_change))
    return by_tokens, by_change, sum_rows(sums.flatten(1), weight.dtype).view(3, -1)


@_norm_gradients.register_fake
def _(_: Any, by_normed: Tensor, total: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401, ARG001
    _, weight, *_, change_dtype, is_added = others
    sums = total.new_empty(3, total.shape[-1], dtype=weight.dtype)
    return *_empty_gradients(total, change_dtype, is_added), sums


def _empty_gradients(total: Tensor, change_dtype: torch.dtype, is_added: bool) -> tuple[Tensor, Tensor]:
    by_tokens = torch.empty_like(total) if is_added else total.new_empty(0)
    return by_tokens, torch.empty_like(total, dtype=change_dtype)


def _keep_norm(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:  # noqa: ANN401
    tokens, change, bias, weight, norm_bias, _, seed, ctx.dropout, *_ = inputs
    ctx.is_added = tokens is not None
    ctx.set_materialize_grads(False)
    ctx.types = change.dtype, norm_bias.dtype, None if bias is None else bias.dtype
    ctx.save_for_backward(output[0], output[2], weight, seed)


def _norm_backward(
    ctx: Any,  # noqa: ANN401
    by_total: Tensor | None,
    by_normed: Tensor | None,
    _: Tensor | None,
) -> tuple[Tensor | None, ...]:
    total, statistics, weight, seed = ctx.saved_tensors
    change_dtype, norm_dtype, bias_dtype = ctx.types
    if by_normed is None:
        by_normed = torch.zeros_like(total)
    inputs = (by_total, by_normed, total, statistics, weight, seed, ctx.dropout, change_dtype, ctx.is_added)
    by_tokens, by_change, sums = _norm_gradients(*inputs)
    by_weight, by_norm_bias, by_bias = sums.unbind()
    by_bias = None if bias_dtype is None else by_bias.to(bias_dtype)
    by_tokens = by_tokens if ctx.is_added else None
    return by_tokens, by_change, by_bias, by_weight, by_norm_bias.to(norm_dtype), *(None,) * 5


_add_and_norm.register_autograd(_norm_backward, setup_context=_keep_norm)


@torch.library.custom_op("molslice::gelu_and_drop", mutates_args=())
def _gelu(hidden: Tensor, bias: Tensor | None, seed: Tensor | None, dropout: float) -> Tensor:
    out = torch.empty_like(hidden)
    assert _TRITON is not None  # checked in `has_kernels`
    _TRITON.gelu_into(hidden, bias, seed, dropout, out)
    return out


_gelu.register_fake(lambda hidden, *_: torch.empty_like(hidden))


@torch.library.custom_op("molslice::gelu_and_drop_gradients", mutates_args=())
def _gelu_gradients(
    grad: Tensor, hidden: Tensor, bias: Tensor | None, seed: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(hidden)
    assert _TRITON is not None  # checked in `has_kernels`
    sums = _TRITON.gelu_gradients_into(grad.contiguous(), hidden, bias, seed, dropout, out)
    return out, sum_rows(sums.flatten(1), hidden.dtype if bias is None else bias.dtype)


@_gelu_gradients.register_fake
def _(grad: Tensor, hidden: Tensor, bias: Tensor | None, *_: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401, ARG001
    dtype = hidden.dtype if bias is None else bias.dtype
    return torch.empty_like(hidden), hidden.new_empty(hidden.shape[-1], dtype=dtype)


def _keep_gelu(ctx: Any, inputs: tuple, output: Tensor) -> None:  # noqa: ANN401
    *tensors, ctx.dropout = inputs
    ctx.save_for_backward(*tensors)


def _gelu_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    hidden, bias, seed = ctx.saved_tensors
    by_hidden, by_bias = _gelu_gradients(grad, hidden, bias, seed, ctx.dropout)
    return by_hidden, None if bias is None else by_bias, None, None


_gelu.register_autograd(_gelu_backward, setup_context=_keep_gelu)
