"""Sums of rows of a small table: a kernel on a GPU, which adds gradients in one order, torch elsewhere."""

from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from molslice.ops import kernel_choice

NO_SLOT = 255

_TRITON = kernel_choice.load_kernels("triton_table_sums")


def table_sums(table: Float[Tensor, "R D"], slots: UInt8[Tensor, "*rows K"]) -> Float[Tensor, "*rows D"]:
    """Sum rows of a table.

    Args:
        table: At most 255 rows.
        slots: The rows to sum; `NO_SLOT` for none.
    """
    if kernel_choice.are_usable(_TRITON, table):
        return _sum(table, slots.contiguous())
    flat = slots.flatten(0, -2).long()
    padded = functional.pad(table, (0, 0, 0, NO_SLOT + 1 - len(table)))
    sums = functional.embedding_bag(flat, padded, mode="sum", padding_idx=NO_SLOT)
    return sums.unflatten(0, slots.shape[:-1])


@torch.library.custom_op("molslice::table_sums", mutates_args=())
def _sum(table: Tensor, slots: Tensor) -> Tensor:
    """Call the kernel."""
    out = _empty_sums(table, slots)
    assert _TRITON is not None  # checked in `table_sums`
    _TRITON.sums_into(table.contiguous(), slots, out)
    return out


@_sum.register_fake
def _empty_sums(table: Tensor, slots: Tensor) -> Tensor:
    return table.new_empty(*slots.shape[:-1], table.shape[1])


@torch.library.custom_op("molslice::table_sums_gradient", mutates_args=())
def _gradient(grad: Tensor, slots: Tensor, rows: int) -> Tensor:
    assert _TRITON is not None  # checked in `table_sums`
    return _TRITON.gradient_of(grad.contiguous(), slots, rows).sum(0)


@_gradient.register_fake
def _(grad: Tensor, slots: Tensor, rows: int) -> Tensor:  # noqa: ARG001
    return grad.new_empty(rows, grad.shape[-1], dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:  # noqa: ANN401, ARG001
    table, slots = inputs
    ctx.rows = len(table)
    ctx.save_for_backward(slots)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
    return _gradient(grad, *ctx.saved_tensors, ctx.rows), None


_sum.register_autograd(_backward, setup_context=_keep)
