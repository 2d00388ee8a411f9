"""Shortest paths and the pair bias of a graph in operators that `torch.export` and ONNX can hold.

`molslice.ops.paths` sorts the pairs of atoms by distance, so the shapes of its tensors depend on the bonds.
Here all tensors have the shape of all pairs, and the only loop has one turn for each atom. Distances and
paths are the same as in `molslice.ops.paths`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch._higher_order_ops.scan import scan

from molslice.model.graph_bias import GraphBias
from molslice.ops.paths import MAX_HOPS
from molslice.ops.vocabulary import BOND_FEATURE_SIZES

DOUBLINGS = 8  # a path has fewer than 2^8 bonds, because a molecule has at most 256 atoms


class DensePaths(NamedTuple):
    """Lengths and last steps of shortest paths, as `molslice.ops.paths.ShortestPaths` but dense.

    Attributes:
        distance: Length of the path in bonds [B, A, A], -1 if there is no path.
        previous: The atom before j on the path from i [B, A, A]; 0 if i = j or there is no path.
        last_bond: Place of the last bond in the list of the molecule [B, A, A]; 0 like `previous`.
    """

    distance: Int[Tensor, "B A A"]
    previous: Int[Tensor, "B A A"]
    last_bond: Int[Tensor, "B A A"]


def dense_paths(ends: Int[Tensor, "B M 2"], atoms: int) -> DensePaths:
    """Compute the shortest paths of a batch of padded bond lists.

    Args:
        ends: Begin and end atom of each bond [B, M, 2], int64. Both are equal at padding.
        atoms: Number of atoms per molecule A, padding included.
    """
    both = torch.cat([ends, ends.flip(-1)], 1)  # each bond in both directions
    start, end = both.unbind(-1)
    batch = start.shape[0]
    pair = start * atoms + end
    flat = torch.zeros(batch, atoms * atoms, device=ends.device)
    adjacency = flat.scatter(1, pair, (start != end).float()).view(batch, atoms, atoms)
    row = torch.arange(ends.shape[1], device=ends.device).repeat(2).expand(batch, -1)
    bond = torch.zeros_like(flat, dtype=torch.long).scatter(1, pair, row).view(batch, atoms, atoms)
    distance = dense_distances(adjacency)
    into = end[:, None].expand(-1, atoms, -1)
    to_start = distance.gather(2, start[:, None].expand(-1, atoms, -1))
    is_last = (to_start >= 0) & (distance.gather(2, into) == to_start + 1)
    candidates = torch.where(is_last, start[:, None], atoms)
    previous = torch.full_like(distance, atoms).scatter_reduce(2, into, candidates, "amin")
    previous = torch.where(previous == atoms, 0, previous)  # the lowest index of several
    return DensePaths(distance, previous, bond.gather(1, previous))


def dense_distances(adjacency: Float[Tensor, "B A A"]) -> Int[Tensor, "B A A"]:
    """Compute the lengths of shortest paths, -1 without one, by breadth-first search from all atoms.

    `adjacency` is 1 where two atoms share a bond, else 0 [B, A, A]. The atoms within k bonds are one batched
    product of the atoms within k - 1.
    """
    atoms = adjacency.shape[-1]
    identity = torch.eye(atoms, device=adjacency.device)
    step = torch.maximum(adjacency, identity)

    def search(state: tuple[Tensor, Tensor], turn: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        reached, earlier = state
        return (torch.bmm(reached, step).clamp(max=1.0), earlier + reached), turn + 0.0

    state = (identity.expand_as(step).clone(), torch.zeros_like(step))
    (reached, earlier), _ = scan(search, state, torch.zeros(atoms, device=adjacency.device))
    return torch.where(reached > 0, atoms - earlier, -1.0).long()


def dense_bias(
    bias: GraphBias, paths: DensePaths, features: Int[Tensor, "B M 3"]
) -> Float[Tensor, "B H N N"]:
    """Compute the pair bias of a batch; see `GraphBias.forward`.

    Args:
        bias: The module with the weights.
        paths: The shortest paths.
        features: Type, stereo and conjugation of each bond [B, M, 3], int64.

    Returns:
        S + E [B, H, N, N] with N = 1 + A.
    """
    slots = torch.minimum(features, bias.bond_embedding.sizes - 1) + bias.bond_embedding.starts
    bonds = bias.bond_embedding.weight[slots].sum(2) / len(BOND_FEATURE_SIZES)
    values = _spatial(bias, paths.distance) + _edges(bias, paths, bonds)
    batch, atoms, _, heads = values.shape
    token = bias.graph_token_distance
    values = torch.cat([token.expand(batch, atoms, 1, heads), values], 2)
    values = torch.cat([token.expand(batch, 1, atoms + 1, heads), values], 1)
    return values.permute(0, 3, 1, 2)


def _spatial(bias: GraphBias, distance: Int[Tensor, "B A A"]) -> Float[Tensor, "B A A H"]:
    last = bias.num_distances - 1
    return bias.distance_embedding.weight[torch.where(distance < 0, last, distance.clamp(max=last - 1))]


def _edges(bias: GraphBias, paths: DensePaths, bonds: Float[Tensor, "B M H"]) -> Float[Tensor, "B A A H"]:
    """Return E, hop by hop as in `GraphBias`, then E of the fifth atom of each longer path."""
    batch, atoms, _ = paths.distance.shape
    rows = paths.last_bond.view(batch, atoms * atoms, 1).expand(-1, -1, bonds.shape[-1])

    def step_back(values: Tensor) -> Tensor:
        return values.gather(2, paths.previous[..., None].expand(-1, -1, -1, values.shape[-1]))

    total = mean = torch.zeros((), device=bonds.device).expand(batch, atoms, atoms, bonds.shape[-1])
    for hop in range(1, MAX_HOPS + 1):
        last = (bonds @ bias.hop_weight[hop - 1]).gather(1, rows).view_as(total)
        at_hop = (paths.distance == hop)[..., None]
        total = torch.where(at_hop, last if hop == 1 else step_back(total) + last, total)
        mean = torch.where(at_hop, total / hop, mean)
    return mean.gather(2, _fifth_atoms(paths)[..., None].expand_as(mean))


def _fifth_atoms(paths: DensePaths) -> Int[Tensor, "B A A"]:
    """Return the atom of the path from i to j that is at most `MAX_HOPS` bonds from i [B, A, A]."""
    atoms = torch.arange(paths.distance.shape[-1], device=paths.distance.device)
    place = torch.where(paths.distance > MAX_HOPS, paths.previous, atoms)
    for _ in range(DOUBLINGS):
        place = place.gather(2, place)
    return place


def bond_counts(ends: Int[Tensor, "B M 2"], atoms: int) -> Int[Tensor, "B A"]:
    """Count the bonds of each atom [B, A]; see `molslice.ops.paths.bond_degrees`."""
    flat = ends.flatten(1)
    real: Bool[Tensor, "B M"] = ends[..., 0] != ends[..., 1]
    ones = real.long().repeat_interleave(2, 1)
    return torch.zeros(ends.shape[0], atoms, dtype=torch.long, device=ends.device).scatter_add(1, flat, ones)
