"""Dropout in Triton kernels: a function of a seed and a place, drawn again in the backward pass.

Triton's own generator takes ten rounds for a number, which costs more than moving the entry that it drops.
"""
# ruff: noqa: ANN001, ANN201 (in a kernel an annotation would fix a type)

from typing import no_type_check

# pyright: reportMissingImports=false
# triton is installed only with a GPU
import triton
import triton.language as tl


@triton.jit
@no_type_check
def kept_factor(seed, place, dropout):
    """Return 1 / (1 - dropout) at the places that are kept, else zero.

    A mixing function of 32 bits in the manner of C. Wellons' lowbias32, with half of the seed at its start
    and half in its last step. Its high bits decide. Places that differ by a multiple of 2^32 are alike.

    Args:
        seed: The seed, int64.
        place: Indices of the entries.
        dropout: The probability of zero.
    """
    mixed = place.to(tl.uint32) * 0x9E3779B1 + seed.to(tl.uint32)
    mixed = (mixed ^ (mixed >> 16)) * 0x7FEB352D
    mixed = (mixed ^ (mixed >> 15)) * 0x846CA68B + (seed >> 32).to(tl.uint32) * 0x85EBCA6B
    is_kept = mixed >= tl.cast(dropout * 4294967296.0, tl.uint32)
    return tl.where(is_kept, 1.0 / (1.0 - dropout), 0.0)
