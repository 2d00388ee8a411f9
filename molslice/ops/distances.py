"""Pairs of atoms in one order, and their distances as bins, with padding and unknown positions left out."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

NUM_BINS, BIN_WIDTH = 32, 0.375  # Angstrom; the last bin has all larger distances
UNKNOWN = -1


def pair_indices(atoms: int, device: torch.device) -> Int[Tensor, "2 P"]:
    """Return the atoms i < j of the P pairs of a molecule."""
    return torch.triu_indices(atoms, atoms, 1, device=device)


def distance_bins(coordinates: Float[Tensor, "B A 3"]) -> Int[Tensor, "B P"]:
    """Return the bin of the distance of each pair; `UNKNOWN` if a coordinate of its atoms is NaN.

    Args:
        coordinates: Coordinates in Angstrom, NaN at padding.
    """
    one, other = pair_indices(coordinates.shape[1], coordinates.device)
    positions = coordinates.float()
    distance = (positions[:, one] - positions[:, other]).norm(dim=-1)
    bins = (distance.nan_to_num(0.0) / BIN_WIDTH).long().clamp(max=NUM_BINS - 1)
    return bins.masked_fill(distance.isnan(), UNKNOWN)
