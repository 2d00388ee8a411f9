"""Looks up the values of pairs in tables, and sums their gradients into the tables, by Triton.

The gradient of a table is a histogram of the gradients of the pairs by code. A program computes it for its
share of the pairs, by products with the one-hot codes, and the shares are summed at the end. The result
therefore does not depend on the order in which programs finish.
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

SLOTS = 64  # rows of a table
PAIRS_FORWARD, PAIRS_BACKWARD = 128, 64  # of a program at a time
MOST_HEADS = 32  # of a program
MOST_PROGRAMS = 4 * 132


def supports(spatial: Tensor) -> bool:
    """Return whether the kernels are used for a table of distances [R, H] like this one."""
    return len(spatial) <= SLOTS and spatial.dtype == torch.float32


def look_up_into(distance: Tensor, bonds: Tensor, tables: Tensor, slots: int, bits: int, out: Tensor) -> None:
    """Write the value of each pair of tokens to a given tensor. All tensors are contiguous.

    Args:
        distance: Lengths of the paths, int16 [B, A, A].
        bonds: Codes of their first bonds, int32 [B, A, A].
        tables: Values of distances, then of the codes at each place, float32 [1 + K, 64, H].
        slots: Number of rows of the first table that are used.
        bits: Bits of a code.
        out: Receives the values [B, H, 1 + A, 1 + A].
    """
    batch, heads, length, _ = out.shape
    # programs read one row of a table for many pairs, so that neighboring values belong to codes
    by_code = tables.transpose(1, 2).contiguous()
    blocks = triton.cdiv(length * length, PAIRS_FORWARD)
    settings = _settings(heads)
    with torch.cuda.device_of(out):
        _look_up_kernel[(batch * blocks, triton.cdiv(heads, settings["BLOCK"]))](
            distance,
            bonds,
            by_code,
            out,
            heads,
            length,
            slots,
            HOPS=len(tables) - 1,
            BITS=bits,
            PAIRS=PAIRS_FORWARD,
            **settings,
        )


def gradients_of(grad: Tensor, distance: Tensor, bonds: Tensor, slots: int, hops: int, bits: int) -> Tensor:
    """Return the gradient of the tables, float32 [1 + K, 64, H]. All tensors are contiguous.

    Args:
        grad: Gradient of the values [B, H, 1 + A, 1 + A].
        distance: As in `look_up_into`.
        bonds: As in `look_up_into`.
        slots: As in `look_up_into`.
        hops: Number K of places of a bond.
        bits: As in `look_up_into`.
    """
    batch, heads, length, _ = grad.shape
    tiles = batch * triton.cdiv(length * length, PAIRS_BACKWARD)
    programs = min(tiles, MOST_PROGRAMS)
    shares = torch.empty(programs, 1 + hops, SLOTS, heads, dtype=torch.float32, device=grad.device)
    settings = _settings(heads)
    with torch.cuda.device_of(grad):
        _gradient_kernel[(programs, triton.cdiv(heads, settings["BLOCK"]))](
            grad,
            distance,
            bonds,
            shares,
            heads,
            length,
            slots,
            tiles,
            programs,
            HOPS=hops,
            BITS=bits,
            PAIRS=PAIRS_BACKWARD,
            IN_FLOAT32=INTERPRETED,
            num_warps=8,
            **settings,
        )
    return shares.sum(0)


def _settings(heads: int) -> dict[str, int]:
    return {"SLOTS": SLOTS, "BLOCK": min(MOST_HEADS, max(16, triton.next_power_of_2(heads)))}


@triton.jit
@no_type_check
def load_pairs(distance, bonds, molecule, pair, length, slots):
    """Return the slot of the distance, the codes, and the number of bonds of pairs; -1 as slot if outside."""
    row, column = pair // length, pair % length
    is_atoms = (row > 0) & (column > 0) & (pair < length * length)
    atoms = length - 1
    place = molecule * atoms * atoms + (row - 1) * atoms + column - 1
    steps = tl.load(distance + place, mask=is_atoms, other=0).to(tl.int32)
    codes = tl.load(bonds + place, mask=is_atoms, other=0)
    slot = tl.where(steps < 0, slots - 2, tl.minimum(steps, slots - 3))
    slot = tl.where(is_atoms, slot, slots - 1)
    return tl.where(pair < length * length, slot, -1), codes, steps


@triton.jit
@no_type_check
def inverse_count(steps, HOPS: tl.constexpr):
    """Return one divided by the number of bonds that count."""
    return 1.0 / tl.minimum(tl.maximum(steps, 1), HOPS).to(tl.float32)


# A length is not specialized: a multiple of 16 would be compiled again.
@triton.jit(do_not_specialize=["length", "slots"])
@no_type_check
def _look_up_kernel(
    distance,
    bonds,
    tables,
    out,
    heads,
    length,
    slots,
    HOPS: tl.constexpr,
    BITS: tl.constexpr,
    PAIRS: tl.constexpr,
    SLOTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    blocks = tl.cdiv(length * length, PAIRS)
    molecule = (tl.program_id(0) // blocks).to(tl.int64)
    pair = tl.program_id(0) % blocks * PAIRS + tl.arange(0, PAIRS)
    head = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[:, None]
    is_inside = (head < heads) & (pair < length * length)[None, :]
    slot, codes, steps = load_pairs(distance, bonds, molecule, pair, length, slots)
    tables += head * SLOTS
    value = tl.load(tables + slot[None, :], mask=is_inside, other=0.0)
    total = tl.zeros([BLOCK, PAIRS], tl.float32)
    for hop in tl.static_range(HOPS):
        code = (codes >> (BITS * hop)) & (SLOTS - 1)
        place = (hop + 1) * heads * SLOTS + code[None, :]
        total += tl.load(tables + place, mask=is_inside & (code != 0)[None, :], other=0.0)
    value += total * inverse_count(steps, HOPS)[None, :]
    place = (molecule * heads + head) * length * length + pair[None, :]
    tl.store(out + place, value.to(out.dtype.element_ty), mask=is_inside)


@triton.jit(do_not_specialize=["length", "slots", "tiles", "programs"])
@no_type_check
def _gradient_kernel(
    grad,
    distance,
    bonds,
    shares,
    heads,
    length,
    slots,
    tiles,
    programs,
    HOPS: tl.constexpr,
    BITS: tl.constexpr,
    PAIRS: tl.constexpr,
    SLOTS: tl.constexpr,
    BLOCK: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    blocks = tl.cdiv(length * length, PAIRS)
    head = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    row = tl.arange(0, SLOTS)[:, None]
    spatial = tl.zeros([SLOTS, BLOCK], tl.float32)
    first = tl.zeros([SLOTS, BLOCK], tl.float32)
    second = tl.zeros([SLOTS, BLOCK], tl.float32)
    third = tl.zeros([SLOTS, BLOCK], tl.float32)
    fourth = tl.zeros([SLOTS, BLOCK], tl.float32)
    fifth = tl.zeros([SLOTS, BLOCK], tl.float32)
    tile = tl.program_id(0)
    while tile < tiles:
        molecule = (tile // blocks).to(tl.int64)
        pair = tile % blocks * PAIRS + tl.arange(0, PAIRS)
        slot, codes, steps = load_pairs(distance, bonds, molecule, pair, length, slots)
        is_inside = (pair < length * length)[:, None] & (head < heads)
        place = (molecule * heads + head) * length * length + pair[:, None]
        value = tl.load(grad + place, mask=is_inside, other=0.0).to(tl.float32)
        spatial = add_by_row(spatial, row, slot, value, IN_FLOAT32)
        value *= inverse_count(steps, HOPS)[:, None]
        first = add_by_row(first, row, codes & (SLOTS - 1), value, IN_FLOAT32)
        second = add_by_row(second, row, (codes >> BITS) & (SLOTS - 1), value, IN_FLOAT32)
        third = add_by_row(third, row, (codes >> (2 * BITS)) & (SLOTS - 1), value, IN_FLOAT32)
        fourth = add_by_row(fourth, row, (codes >> (3 * BITS)) & (SLOTS - 1), value, IN_FLOAT32)
        fifth = add_by_row(fifth, row, (codes >> (4 * BITS)) & (SLOTS - 1), value, IN_FLOAT32)
        tile += programs
    table = SLOTS * heads
    shares += tl.program_id(0) * (HOPS + 1) * table + row * heads + head
    is_head = (row >= 0) & (head < heads)
    tl.store(shares, spatial, mask=is_head)
    tl.store(shares + table, first, mask=is_head)
    tl.store(shares + 2 * table, second, mask=is_head)
    tl.store(shares + 3 * table, third, mask=is_head)
    tl.store(shares + 4 * table, fourth, mask=is_head)
    tl.store(shares + 5 * table, fifth, mask=is_head)


@triton.jit
@no_type_check
def add_by_row(sums, row, index, value, IN_FLOAT32: tl.constexpr):
    """Add the values [PAIRS, BLOCK] to the rows of `sums` that `index` names, with 16 bits of each value."""
    chosen = tl.where(row == index[None, :], 1.0, 0.0)
    if IN_FLOAT32:  # the interpreter has no product in bfloat16
        sums = tl.dot(chosen, value, sums, input_precision="ieee")
    else:
        high = value.to(tl.bfloat16)
        sums = tl.dot(chosen.to(tl.bfloat16), high, sums)
        sums = tl.dot(chosen.to(tl.bfloat16), (value - high.to(tl.float32)).to(tl.bfloat16), sums)
    return sums
