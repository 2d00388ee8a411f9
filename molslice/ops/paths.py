"""Shortest paths on a batch of small undirected graphs, on any device.

A path is described by its last step: `distance(i, j)` and the neighbor of j on a shortest path from i to j.
Of several such neighbors the one with the lowest index is used. `path_codes.py`, `triton_path_codes.py` and
`molslice/export/paths.py` follow the same rule in other forms.

The choice between equally short paths affects only the edge encoding. The released Graphormer breaks ties in
the order of Floyd-Warshall, which selects another path between some atoms in 11% of the molecules of
`gap_xtb` and in 31% of the molecules of PCQM4M. A prediction then differs by about 1e-4.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from molslice.types import PathLevels

UNREACHABLE = -1
MAX_HOPS = 5  # bonds of a path that count in the edge encoding


class Neighbors(NamedTuple):
    """The adjacency of a batch of graphs as lists of neighbors; K is the highest degree in the batch.

    Attributes:
        atom: Neighbors of each atom [B, A, K], ascending, -1 in unused slots.
        bond: Row of the bond list for each neighbor [B, A, K], -1 in unused slots.
    """

    atom: Int[Tensor, "B A K"]
    bond: Int[Tensor, "B A K"]


class ShortestPaths(NamedTuple):
    """Lengths and last steps of shortest paths.

    Attributes:
        distance: Length of the path in bonds [B, A, A], -1 if there is no path.
        previous: The atom before j on the path from i [B, A, A], -1 if i = j or there is no path.
        last_bond: Row of the bond between `previous` and j [B, A, A], -1 like `previous`.
    """

    distance: Int[Tensor, "B A A"]
    previous: Int[Tensor, "B A A"]
    last_bond: Int[Tensor, "B A A"]


def list_neighbors(bond_index: Int[Tensor, "M 3"], batch: int, atoms: int) -> Neighbors:
    """Convert a bond list, with each undirected bond listed once, to neighbor lists.

    The bond list holds molecule, begin atom and end atom. `atoms` counts padding.
    """
    device, bonds = bond_index.device, bond_index.shape[0]
    molecule, begin, end = bond_index.long().unbind(-1)
    center = torch.cat([molecule * atoms + begin, molecule * atoms + end])
    other = torch.cat([end, begin])
    bond = torch.arange(bonds, device=device).repeat(2)
    order = torch.argsort(center * atoms + other)
    center, other, bond = center[order], other[order], bond[order]
    degree = torch.bincount(center, minlength=batch * atoms)
    slot = torch.arange(2 * bonds, device=device) - (degree.cumsum(0) - degree)[center]
    width = int(degree.max()) if bonds else 0
    lists = torch.full((2, batch * atoms, max(width, 1)), -1, dtype=torch.long, device=device)
    lists[0, center, slot] = other
    lists[1, center, slot] = bond
    return Neighbors(*lists.view(2, batch, atoms, -1))


def adjacency_matrix(neighbors: Neighbors) -> Bool[Tensor, "B A A"]:
    """Return the adjacency matrices [B, A, A], True where two atoms share a bond."""
    batch, atoms, _ = neighbors.atom.shape
    matrix = torch.zeros(batch, atoms, atoms + 1, dtype=torch.bool, device=neighbors.atom.device)
    return matrix.scatter_(2, neighbors.atom % (atoms + 1), True)[..., :atoms]


def bond_distances(adjacency: Bool[Tensor, "B A A"]) -> Int[Tensor, "B A A"]:
    """Compute the lengths of shortest paths, -1 without one, by breadth-first search from all atoms.

    The atoms within k bonds are one batched product of those within k - 1.
    """
    atoms = adjacency.shape[-1]
    identity = torch.eye(atoms, dtype=torch.bool, device=adjacency.device)
    step = (adjacency | identity).float()
    reached = identity.float().expand_as(step)
    earlier = torch.zeros_like(step)  # number of searches that had reached an atom
    searches = 0
    while searches < atoms:
        searches += 1
        earlier += reached
        further = torch.bmm(reached, step).clamp_(max=1.0)
        if torch.equal(further, reached):
            break
        reached = further
    return torch.where(reached > 0, searches - earlier, UNREACHABLE).long()


def shortest_paths(neighbors: Neighbors) -> ShortestPaths:
    """Compute distances and last steps of the shortest paths between all atoms of each graph [B, A, A]."""
    batch, atoms, width = neighbors.atom.shape
    distance = bond_distances(adjacency_matrix(neighbors))
    # distance from i to the k-th neighbor of j; unused slots and missing paths are far away
    far = torch.iinfo(torch.long).max
    known = torch.where(distance < 0, far, distance)
    slots = neighbors.atom.clamp(min=0).view(batch, 1, atoms * width).expand(-1, atoms, -1)
    through = known.gather(2, slots).view(batch, atoms, atoms, width)
    through = torch.where((neighbors.atom < 0)[:, None], far, through)
    best = through.argmin(-1, keepdim=True)  # the first of equal minima: the lowest index

    def take(table: Tensor) -> Tensor:
        steps = table[:, None].expand(-1, atoms, -1, -1).gather(3, best).squeeze(3)
        return torch.where(distance > 0, steps, -1)

    return ShortestPaths(distance, take(neighbors.atom), take(neighbors.bond))


def bond_degrees(bond_index: Int[Tensor, "M 3"], batch: int, atoms: int) -> Int[Tensor, "B A"]:
    """Count the bonds of each atom [B, A]; see `list_neighbors`."""
    molecule, begin, end = bond_index.long().unbind(-1)
    ends = torch.cat([molecule * atoms + begin, molecule * atoms + end])
    return torch.bincount(ends, minlength=batch * atoms).view(batch, atoms)


def path_levels(paths: ShortestPaths, degree: Int[Tensor, "B A"], max_hops: int = MAX_HOPS) -> PathLevels:
    """Sort the pairs of atoms of a batch by distance; `max_hops` bonds of a path count."""
    distance, atoms = paths.distance.flatten(), paths.distance.shape[-1]
    everything = torch.arange(len(distance), device=distance.device)
    column = torch.arange(atoms, device=distance.device).expand_as(paths.distance)
    pair_before = everything + (paths.previous - column).flatten()
    last_bond = paths.last_bond.flatten()
    order = torch.argsort(distance.short(), stable=True)
    sizes: list[int] = torch.bincount(distance + 1).tolist()
    index = torch.empty_like(everything)
    shorter, beyond = [everything[:0]], [everything[:0]]
    for hop, pairs in enumerate(order.split(sizes), start=-1):
        if hop > max_hops:  # bonds beyond the last hop are not counted
            index[pairs] = index[pair_before[pairs]]
            beyond.append(index[pairs])
        elif hop >= 0:
            if hop > 0:
                shorter.append(index[pair_before[pairs]])
            index[pairs] = everything[: len(pairs)]
    counted = order[sum(sizes[:2]) : sum(sizes[: 2 + max_hops])]
    return PathLevels(
        degree=degree,
        order=order,
        shorter=torch.cat(shorter),
        last_bond=last_bond[counted],
        beyond=torch.cat(beyond),
        sizes=tuple(sizes),
        hops=min(max_hops, max(len(sizes) - 2, 0)),
    )


def bond_path_levels(bond_index: Int[Tensor, "M 3"], batch: int, atoms: int) -> PathLevels:
    """Compute the pairs of atoms by distance from a bond list; see `list_neighbors`."""
    neighbors = list_neighbors(bond_index, batch, atoms)
    return path_levels(shortest_paths(neighbors), (neighbors.atom >= 0).sum(-1))
