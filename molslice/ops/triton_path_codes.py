"""Computes the paths of small molecules as codes in one Triton kernel.

A program computes one molecule in registers, as the torch form in `path_codes.py` does: one product of
matrices for each distance, then the codes of the first bonds by gathers along the paths.
"""
# ruff: noqa: ANN001, ANN201, ANN202 (in a kernel an annotation would fix a type)

from typing import no_type_check

# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
# triton is installed only with a GPU; its kernels are launched by subscript
import torch
import triton
import triton.language as tl
from torch import Tensor

from molslice.ops.triton_mix import INTERPRETED, product

MOST_ATOMS = 64


def supports(adjacency: Tensor) -> bool:
    """Return whether the kernel is used for matrices [B, A, A] like these."""
    return adjacency.shape[-1] <= MOST_ATOMS and adjacency.numel() > 0


def codes_into(adjacency: Tensor, distance: Tensor, bonds: Tensor, hops: int, code_bits: int) -> None:
    """Write lengths and codes of the shortest paths to given tensors. All tensors are contiguous.

    Args:
        adjacency: Symmetric codes of the bonds, uint8 [B, A, A]; zero where there is none.
        distance: Receives the lengths, int16 [B, A, A], -1 if there is no path.
        bonds: Receives the codes of the first bonds, int32 [B, A, A].
        hops: Number of bonds of a path that count.
        code_bits: Bits of a code.
    """
    molecules, atoms, _ = adjacency.shape
    size = max(16, triton.next_power_of_2(atoms))
    with torch.cuda.device_of(adjacency):
        _codes_kernel[(molecules,)](
            adjacency,
            distance,
            bonds,
            atoms,
            HOPS=hops,
            BITS=code_bits,
            IN_FLOAT32=INTERPRETED,
            SIZE=size,
            DOUBLINGS=size.bit_length() - 1,
            num_warps={16: 1, 32: 2}.get(size, 4),
        )


@triton.jit(do_not_specialize=["atoms"])
@no_type_check
def _codes_kernel(
    adjacency,
    distance,
    bonds,
    atoms,
    HOPS: tl.constexpr,
    BITS: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    SIZE: tl.constexpr,
    DOUBLINGS: tl.constexpr,
):
    i, j = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    is_inside = (i < atoms) & (j < atoms)
    place = tl.program_id(0).to(tl.int64) * atoms * atoms + i * atoms + j
    codes = tl.load(adjacency + place, mask=is_inside, other=0).to(tl.int32)
    # the weight 2^(62 - 2 i) of atom i, by the exponent of a float32
    weight = ((189 - 2 * i) << 23).to(tl.float32, bitcast=True)
    step = tl.where(codes != 0, weight, 0.0).to(tl.bfloat16)
    steps = tl.where(i == j, 0, -1) + 0 * codes
    first = tl.where(i == j, 1.0, 0.0) + tl.zeros([SIZE, SIZE], tl.float32)
    hop = 0
    any_new = 1
    while any_new > 0:
        hop += 1
        reached = tl.where(first > 0.0, 1.0, 0.0).to(tl.bfloat16)
        weights = product(reached, step, IN_FLOAT32)
        is_new = (first == 0.0) & (weights > 0.0)
        first = tl.where(is_new, weights, first)
        steps = tl.where(is_new, hop, steps)
        any_new = tl.max(is_new.to(tl.int32))
    previous = (189 - (first.to(tl.int32, bitcast=True) >> 23)) // 2
    previous = tl.where(steps > 0, previous, j)
    last = tl.gather(codes, previous, 0)
    packed = 0 * codes
    for counted in tl.static_range(HOPS):
        extended = tl.gather(packed, previous, 1) | (last << (BITS * counted))
        packed = tl.where(steps == counted + 1, extended, packed)
    end = tl.where(steps > HOPS, previous, j)
    for _doubling in tl.static_range(DOUBLINGS):
        end = tl.gather(end, end, 1)
    packed = tl.gather(packed, end, 1)
    tl.store(distance + place, steps.to(tl.int16), mask=is_inside)
    tl.store(bonds + place, packed, mask=is_inside)
