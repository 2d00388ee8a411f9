"""Shortest paths on a batch of small undirected graphs, computed on the CPU.

A path is described by its last step: `distance(i, j)` and the neighbor of j on a shortest path from i to j.
Of several such neighbors the one with the lowest index is used. `path_codes.py`, `triton_path_codes.py` and
`molslice/export/paths.py` follow the same rule in other forms.

The choice between equally short paths affects only the edge encoding. The released Graphormer breaks ties in
the order of Floyd-Warshall, which selects another path between some atoms in 11% of the molecules of
`gap_xtb` and in 31% of the molecules of PCQM4M. A prediction then differs by about 1e-4.
"""

from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int, Integer, UInt8, UInt64
from torch import Tensor

from molslice.types import PathLevels

MAX_HOPS = 5  # bonds of a path that count in the edge encoding
WORD_BITS = 64


class Neighbors(NamedTuple):
    """The adjacency of a batch of graphs as lists of neighbors; K is the highest degree in the batch.

    Rows are the atoms of all graphs, with padding.

    Attributes:
        row: Rows of the first, second, ... neighbor of each atom, ascending [K, B A]; -1 in unused slots.
        bond: Row of the bond list for each neighbor [K, B A]; -1 in unused slots.
        degree: Number of neighbors of each atom [B, A].
    """

    row: Int[np.ndarray, "K R"]
    bond: Int[np.ndarray, "K R"]
    degree: Int[np.ndarray, "B A"]


class ShortestPaths(NamedTuple):
    """Lengths and last steps of shortest paths.

    Attributes:
        length: Number of atoms of the path from i to j [B, A, A]: 1 if i = j, 0 if there is no path.
        slot: The atom before j on the path from i, as a slot of the neighbors of j, at [b, j, i]; 0 if there
            is none.
    """

    length: Integer[np.ndarray, "B A A"]
    slot: UInt8[np.ndarray, "B A A"]


def list_neighbors(bond_index: Integer[np.ndarray, "M 3"], batch: int, atoms: int) -> Neighbors:
    """Convert a bond list, with each undirected bond listed once, to neighbor lists.

    The bond list holds molecule, begin atom and end atom. `atoms` counts padding.
    """
    bonds, rows = len(bond_index), batch * atoms
    molecule, begin, end = bond_index.astype(np.int64).T
    begin, end = molecule * atoms + begin, molecule * atoms + end
    center, other = np.concatenate([begin, end]), np.concatenate([end, begin])
    order = np.lexsort((other, center))
    center = center[order]
    degree = np.bincount(center, minlength=rows)
    slot = np.arange(2 * bonds) - (degree.cumsum() - degree)[center]
    lists = np.full((2, max(1, int(degree.max(initial=0))), rows), -1)
    lists[0, slot, center] = other[order]
    lists[1, slot, center] = order % max(bonds, 1)
    return Neighbors(lists[0], lists[1], degree.reshape(batch, atoms))


def shortest_paths(neighbors: Neighbors) -> ShortestPaths:
    """Compute the shortest paths between all atoms of each graph, by breadth-first search from all atoms.

    The searches advance together. Each atom has one bit for each atom of its graph, set once the search from
    there has reached it. Lengths and slots are collected as binary digits in the same form.
    """
    batch, atoms = neighbors.degree.shape
    slots, rows = neighbors.row.shape
    words = np.zeros((rows + 1, -(-atoms // WORD_BITS)), "<u8")  # the last row is for unused slots
    row = np.arange(rows)
    place = row % atoms
    words[row, place // WORD_BITS] = np.uint64(1) << (place % WORD_BITS).astype(np.uint64)
    reached = words[:rows]
    digits = max(1, (slots - 1).bit_length())
    lengths, chosen = [reached.copy()], [np.zeros_like(reached) for _ in range(digits)]
    through = [np.empty_like(reached) for _ in range(slots)]  # the searches that have reached a neighbor
    length = 1
    while True:
        for neighbor, searches in zip(neighbors.row, through, strict=True):
            np.take(words, neighbor, 0, out=searches, mode="wrap")  # "raise" would copy
        new = reduce(np.bitwise_or, through) & ~reached
        if not new.any():
            break
        length += 1
        if length.bit_length() > len(lengths):
            lengths.append(np.zeros_like(reached))
        _add_digits(lengths, length, new)
        reached |= new
        for slot, searches in enumerate(through):
            searches &= new
            new ^= searches  # the first slot with a search is the lowest index
            _add_digits(chosen, slot, searches)
    shape = batch, atoms, atoms
    return ShortestPaths(
        _as_numbers(lengths, atoms).reshape(shape), _as_numbers(chosen, atoms).reshape(shape)
    )


def _add_digits(
    digits: list[UInt64[np.ndarray, "R W"]], number: int, chosen: UInt64[np.ndarray, "R W"]
) -> None:
    """Add a number, in binary digits from the lowest one, where bits are chosen and zero so far."""
    for place, digit in enumerate(digits):
        if number >> place & 1:
            digit |= chosen


def _as_numbers(digits: list[UInt64[np.ndarray, "R W"]], atoms: int) -> Integer[np.ndarray, "R A"]:
    """Return the numbers of `_add_digits`, in eight bits if these are sufficient."""
    kind = np.uint8 if len(digits) <= 8 else np.uint16
    numbers = np.zeros((len(digits[0]), atoms), kind)
    for place, digit in enumerate(digits):
        bits = np.unpackbits(digit.view(np.uint8), axis=1, count=atoms, bitorder="little")
        numbers |= bits.astype(kind, copy=False) << kind(place)
    return numbers


def bond_degrees(bond_index: Int[Tensor, "M 3"], batch: int, atoms: int) -> Int[Tensor, "B A"]:
    """Count the bonds of each atom [B, A]; see `list_neighbors`."""
    molecule, begin, end = bond_index.long().unbind(-1)
    ends = torch.cat([molecule * atoms + begin, molecule * atoms + end])
    return torch.bincount(ends, minlength=batch * atoms).view(batch, atoms)


def path_levels(paths: ShortestPaths, neighbors: Neighbors) -> PathLevels:
    """Sort the pairs of atoms of a batch by distance; `MAX_HOPS` bonds of a path count."""
    (batch, atoms), lengths = neighbors.degree.shape, paths.length.reshape(-1)
    order = lengths.argsort(kind="stable")
    sizes: list[int] = np.bincount(lengths, minlength=2).tolist()
    pairs = order[sizes[0] + sizes[1] :]  # of two atoms with a path
    start = pairs // atoms
    first = start // atoms * atoms  # row of the first atom of the molecule
    end = first + pairs - start * atoms
    slot = paths.slot.reshape(-1).take(end * atoms + start - first)
    place = slot.astype(np.int64) * neighbors.degree.size + end
    before = start * atoms + neighbors.row.reshape(-1).take(place) - first  # the pair one step shorter
    index = np.empty_like(order)
    index[order] = np.arange(len(order))
    token_place = np.full((batch, atoms + 1, atoms + 1), len(order))
    token_place[:, 1:, 1:] = index.reshape(batch, atoms, atoms)
    counted = sizes[2 : 2 + MAX_HOPS]
    ends = np.cumsum(sizes)
    shorter = index.take(before[: sum(counted)]) - np.repeat(ends[: len(counted)], counted)
    index -= ends[len(counted)]  # among the pairs at the last distance that counts
    beyond, done = [order[:0]], sum(counted)
    for size in sizes[2 + MAX_HOPS :]:  # bonds beyond the last hop are not counted
        level = slice(done, done + size)
        index[pairs[level]] = index.take(before[level])
        beyond.append(index[pairs[level]])
        done += size
    tensor = torch.from_numpy
    return PathLevels(
        degree=tensor(neighbors.degree),
        place=tensor(token_place),
        shorter=tensor(shorter),
        last_bond=tensor(neighbors.bond.reshape(-1).take(place[: sum(counted)])),
        beyond=tensor(np.concatenate(beyond)),
        sizes=tuple(sizes),
        hops=len(counted),
    )


def bond_path_levels(bond_index: Int[Tensor, "M 3"], batch: int, atoms: int) -> PathLevels:
    """Compute the pairs of atoms by distance from a bond list; see `list_neighbors`."""
    neighbors = list_neighbors(bond_index.cpu().numpy(), batch, atoms)
    return path_levels(shortest_paths(neighbors), neighbors).to(bond_index.device)
