"""Random numbers as a function of integers, so that a draw for one item does not depend on other items."""

import torch
from torch import Tensor


def uniform_of(salt: int | Tensor, *indices: Tensor) -> Tensor:
    """Draw one float32 number in [0, 1) for each item, a function of the salt and of the item's indices.

    The indices, integer tensors that broadcast together, are mixed one after the other by steps of
    SplitMix64, so that items with different indices have independent numbers. The salt, below 2^63, selects
    the draw; a tensor is an int64 scalar on the device of the indices. The result does not depend on torch's
    generators.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    mixed = (
        salt
        if isinstance(salt, Tensor)
        else torch.full((), salt, dtype=torch.int64, device=indices[0].device)
    )
    for index in indices:
        mixed = _mixed(_mixed(mixed) ^ index.to(torch.int64))
    return (_mixed(mixed) >> 40 & 0xFFFFFF).to(torch.float32) / 2**24


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _mixed(values: Tensor) -> Tensor:
    """One step of SplitMix64. Products of int64 wrap around, like products of unsigned numbers."""
    values = values + _signed(0x9E3779B97F4A7C15)
    values = (values ^ _shifted(values, 30)) * _signed(0xBF58476D1CE4E5B9)
    values = (values ^ _shifted(values, 27)) * _signed(0x94D049BB133111EB)
    return values ^ _shifted(values, 31)


def _shifted(values: Tensor, bits: int) -> Tensor:
    """Shift to the right and fill with zeros; torch fills with the sign."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)
