"""Sums rows of a small table, and the gradients into its rows, by Triton.

The gradient of the table is a product of the counts of its rows in each sum with the gradients of the sums.
A program computes it for its share of the sums, and the shares are summed at the end, so that the result does
not depend on the order in which programs finish.
"""
# ruff: noqa: ANN001, ANN201, ANN202 (in a kernel an annotation would fix a type)

from typing import no_type_check

# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
# triton is installed only with a GPU; its kernels are launched by subscript
import torch
import triton
import triton.language as tl
from torch import Tensor

from molslice.ops.triton_mix import INTERPRETED

SLOTS = 256  # rows of a table at most, with the number of no row
ROWS_FORWARD, ROWS_BACKWARD = 4, 32  # sums of a program at a time
BLOCK_FORWARD, BLOCK_BACKWARD = 256, 64  # channels of a program
PROGRAMS = 3 if INTERPRETED else 4 * 132  # of the backward pass, about


def supports(table: Tensor) -> bool:
    """Return whether the kernels are used for a table [R, D] like this one."""
    return len(table) < SLOTS and table.dtype == torch.float32 and table.numel() > 0


def sums_into(table: Tensor, slots: Tensor, out: Tensor) -> None:
    """Write the sums to a given tensor. All tensors are contiguous.

    Args:
        table: The table [R, D].
        slots: Rows to sum, uint8 [..., K]; those from R on are no rows.
        out: Receives the sums [..., D].
    """
    width, count = table.shape[1], slots.shape[-1]
    rows = slots.numel() // count
    block = min(BLOCK_FORWARD, max(16, triton.next_power_of_2(width)))
    with torch.cuda.device_of(table):
        _sums_kernel[(triton.cdiv(rows, ROWS_FORWARD), triton.cdiv(width, block))](
            table, slots, out, rows, len(table), WIDTH=width, COUNT=count, ROWS=ROWS_FORWARD, BLOCK=block
        )


def gradient_of(grad: Tensor, slots: Tensor, size: int) -> Tensor:
    """Return the gradient of the table in parts to be summed, float32 [P, R, D].

    Args:
        grad: Gradient of the sums [..., D], contiguous.
        slots: As in `sums_into`.
        size: Number R of rows of the table.
    """
    width, count = grad.shape[-1], slots.shape[-1]
    rows = slots.numel() // count
    block = min(BLOCK_BACKWARD, max(16, triton.next_power_of_2(width)))
    blocks = triton.cdiv(width, block)
    programs = max(1, min(PROGRAMS // blocks, triton.cdiv(rows, ROWS_BACKWARD)))
    parts = torch.empty(programs, size, width, dtype=torch.float32, device=grad.device)
    with torch.cuda.device_of(grad):
        _gradient_kernel[(programs, blocks)](
            grad,
            slots,
            parts,
            rows,
            size,
            WIDTH=width,
            COUNT=count,
            SLOTS=SLOTS,
            ROWS=ROWS_BACKWARD,
            BLOCK=block,
            IN_FLOAT32=INTERPRETED,
            num_warps=8,
        )
    return parts


@triton.jit(do_not_specialize=["rows", "size"])
@no_type_check
def _sums_kernel(
    table,
    slots,
    out,
    rows,
    size,
    WIDTH: tl.constexpr,
    COUNT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_channel = (c < WIDTH)[None, :]
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for k in tl.static_range(COUNT):
        slot = tl.load(slots + r * COUNT + k, mask=r < rows, other=255).to(tl.int32)
        is_used = (slot < size)[:, None] & is_channel
        total += tl.load(table + slot[:, None] * WIDTH + c[None, :], mask=is_used, other=0.0)
    place = r.to(tl.int64)[:, None] * WIDTH + c[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), mask=(r < rows)[:, None] & is_channel)


@triton.jit(do_not_specialize=["rows", "size"])
@no_type_check
def _gradient_kernel(
    grad,
    slots,
    parts,
    rows,
    size,
    WIDTH: tl.constexpr,
    COUNT: tl.constexpr,
    SLOTS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.arange(0, SLOTS)[:, None]
    sums = tl.zeros([SLOTS, BLOCK], tl.float32)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        r = first + tl.arange(0, ROWS)
        counts = tl.zeros([SLOTS, ROWS], tl.float32)
        for k in tl.static_range(COUNT):
            slot = tl.load(slots + r * COUNT + k, mask=r < rows, other=255).to(tl.int32)
            counts += tl.where(row == slot[None, :], 1.0, 0.0)
        place = r.to(tl.int64)[:, None] * WIDTH + c[None, :]
        is_inside = (r < rows)[:, None] & (c < WIDTH)[None, :]
        value = tl.load(grad + place, mask=is_inside, other=0.0)
        if IN_FLOAT32:
            sums = tl.dot(counts, value.to(tl.float32), sums, input_precision="ieee")
        else:  # counts are exact in bfloat16, and two numbers in it have 16 bits of a value
            exact = counts.to(tl.bfloat16)
            high = value.to(tl.bfloat16)
            sums = tl.dot(exact, high, sums)
            if value.dtype == tl.float32:
                sums = tl.dot(exact, (value - high.to(tl.float32)).to(tl.bfloat16), sums)
    target = parts + tl.program_id(0) * size * WIDTH + row * WIDTH + c[None, :]
    tl.store(target, sums, mask=(row < size) & (c < WIDTH)[None, :])
