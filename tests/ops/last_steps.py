"""The last step of each shortest path as matrices, which is easier to compare than neighbor lists."""

from typing import NamedTuple

import numpy as np
import torch

from molslice.ops.paths import list_neighbors, shortest_paths


class LastSteps(NamedTuple):
    """Lengths and last steps of shortest paths.

    Attributes:
        distance: Length of the path in bonds [B, A, A], -1 if there is no path.
        previous: The atom before j on the path from i [B, A, A], -1 if i = j or there is no path.
        last_bond: Row of the bond between `previous` and j in the bond list [B, A, A], -1 like `previous`.
    """

    distance: torch.Tensor
    previous: torch.Tensor
    last_bond: torch.Tensor


def last_steps(bond_index, batch, atoms):
    """Return the last steps of `shortest_paths` for a bond list."""
    neighbors = list_neighbors(bond_index.numpy(), batch, atoms)
    paths = shortest_paths(neighbors)
    slot = paths.slot.swapaxes(1, 2)
    first = np.arange(batch)[:, None, None] * atoms
    end = first + np.arange(atoms)
    has_step = paths.length > 1
    matrices = (
        paths.length.astype(np.int64) - 1,
        np.where(has_step, neighbors.row[slot, end] - first, -1),
        np.where(has_step, neighbors.bond[slot, end], -1),
    )
    return LastSteps(*map(torch.from_numpy, matrices))
