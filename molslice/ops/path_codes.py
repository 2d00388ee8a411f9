"""Shortest paths on a batch of small graphs as codes, in tensors whose shapes depend on the batch only.

The distances and the codes of the first bonds of each path determine the pair bias of a molecule. Nothing is
read back from the device, so that the computation can be part of a CUDA graph. Paths are as in
`molslice.ops.paths`: of several atoms before j on a shortest path from i, the one with the lowest index.

A search advances from all atoms at once by one batched product: the atoms within k bonds, times the adjacency
with the weight 4^-a for an atom with index a. The sum of such weights lies between its largest term and 4/3
of it, so that the exponent of the product belongs to the lowest index, whatever the order of the summation.
"""

import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor
from torch.nn import functional as F

from molslice.ops import kernel_choice
from molslice.ops.paths import MAX_HOPS
from molslice.ops.vocabulary import BOND_FEATURE_SIZES
from molslice.types import PathCodes

NO_BOND = 0
HIDDEN_BOND = 61  # the bonds that a model must not see; 1 to 60 are the combinations of the features
NUM_CODES = 64
CODE_BITS = 6
BLOCK = 64  # atoms whose weights fit the exponents of float32
MANTISSA_BITS, EXPONENT_OF_ONE = 23, 127  # of float32
LARGEST_EXPONENT = 62  # of the weight of the first atom of a block

_TRITON = kernel_choice.load_kernels("triton_path_codes")


def bond_codes(
    features: UInt8[Tensor, "*bonds 3"], hidden: Bool[Tensor, "*bonds"] | None = None
) -> UInt8[Tensor, "*bonds"]:
    """Number the combinations of the features of bonds from 1.

    Args:
        features: Type, stereo and conjugation, indices into OGB's vocabularies. Values beyond a vocabulary
            use its last entry, the unknown.
        hidden: True at bonds that get the code `HIDDEN_BOND` instead.
    """
    kinds, stereos, conjugations = BOND_FEATURE_SIZES
    kind, stereo, conjugated = features.unbind(-1)
    code = kind.clamp(max=kinds - 1) * stereos + stereo.clamp(max=stereos - 1)
    code = code * conjugations + conjugated.clamp(max=conjugations - 1) + 1
    return code if hidden is None else code.masked_fill(hidden, HIDDEN_BOND)


def features_of_codes(device: torch.device | None = None) -> UInt8[Tensor, "60 3"]:
    """Return the features of the codes 1 to 60; the inverse of `bond_codes`."""
    ranges = [torch.arange(size, dtype=torch.uint8, device=device) for size in BOND_FEATURE_SIZES]
    return torch.cartesian_prod(*ranges)


def code_adjacency(
    bond_index: Int[Tensor, "M 3"], codes: UInt8[Tensor, " M"], batch: int, atoms: int
) -> UInt8[Tensor, "B A A"]:
    """Write the codes of a bond list, as in `list_neighbors`, into matrices, with `NO_BOND` elsewhere."""
    molecule, begin, end = bond_index.long().unbind(-1)
    places = torch.cat([(molecule * atoms + begin) * atoms + end, (molecule * atoms + end) * atoms + begin])
    matrices = torch.zeros(batch * atoms * atoms, dtype=torch.uint8, device=bond_index.device)
    return matrices.index_copy_(0, places, codes.repeat(2)).view(batch, atoms, atoms)


def hide_bonds(
    adjacency: UInt8[Tensor, "B A A"], bond_index: Int[Tensor, "M 3"], hidden: Bool[Tensor, " M"]
) -> UInt8[Tensor, "B A A"]:
    """Return the matrices with `HIDDEN_BOND` at hidden bonds."""
    atoms = adjacency.shape[-1]
    # the last entry receives the bonds that are not hidden
    flat = F.pad(adjacency.flatten(), (0, 1))
    molecule, begin, end = bond_index.long().unbind(-1)
    for one, other in ((begin, end), (end, begin)):
        places = (molecule * atoms + one) * atoms + other
        flat.index_fill_(0, torch.where(hidden, places, len(flat) - 1), HIDDEN_BOND)
    return flat[:-1].view_as(adjacency)


def path_codes(adjacency: UInt8[Tensor, "B A A"]) -> PathCodes:
    """Compute the shortest paths between all atoms.

    Args:
        adjacency: Symmetric codes of the bonds; `NO_BOND` where there is none, padding included.
    """
    degree = (adjacency != NO_BOND).sum(-1)
    if kernel_choice.are_usable(_TRITON, adjacency):
        distance = torch.empty_like(adjacency, dtype=torch.int16)
        bonds = torch.empty_like(adjacency, dtype=torch.int32)
        assert _TRITON is not None  # checked in `are_usable`
        _TRITON.codes_into(adjacency.contiguous(), distance, bonds, MAX_HOPS, CODE_BITS)
        return PathCodes(distance, bonds, degree)
    with torch.autocast(adjacency.device.type, enabled=False):  # float16 does not have these powers of two
        distance, previous = _search(adjacency != NO_BOND)
    return PathCodes(distance.to(torch.int16), _carry(adjacency, distance, previous), degree)


def _search(is_bond: Bool[Tensor, "B A A"]) -> tuple[Tensor, Tensor]:
    """Return the distances [B, A, A], -1 without a path, and the atom before j, arbitrary without one."""
    atoms, device = is_bond.shape[-1], is_bond.device
    index = torch.arange(atoms, dtype=torch.int32, device=device)
    exponents = LARGEST_EXPONENT - 2 * (index % BLOCK)
    step = is_bond * ((EXPONENT_OF_ONE + exponents) << MANTISSA_BITS).view(torch.float32)[:, None]
    reached = torch.eye(atoms, dtype=torch.bool, device=device).expand_as(is_bond)
    blocks = [slice(start, start + BLOCK) for start in range(0, atoms, BLOCK)]
    firsts = [torch.zeros_like(step) for _ in blocks]  # the product of the search that reached an atom
    missed = torch.zeros_like(step, dtype=torch.int16)  # number of searches that had not reached it
    for _ in range(1, atoms):
        source = reached.float()
        missed += ~reached
        further = reached
        for block, first in zip(blocks, firsts, strict=True):
            product = torch.bmm(source[..., block], step[:, block])
            first.copy_(torch.where(reached, first, product))
            further = further | (product > 0)
        if device.type == "cpu" and torch.equal(further, reached):  # elsewhere it would wait for the device
            break
        reached = further
    previous = torch.zeros_like(step, dtype=torch.long)
    for block, first in zip(reversed(blocks), reversed(firsts), strict=True):
        exponent = (first.view(torch.int32) >> MANTISSA_BITS) - EXPONENT_OF_ONE
        previous = torch.where(first > 0, block.start + (LARGEST_EXPONENT - exponent) // 2, previous)
    return torch.where(reached, missed, -1), previous


def _carry(adjacency: Tensor, distance: Tensor, previous: Tensor) -> Int[Tensor, "B A A"]:
    """Collect the codes of the first bonds of each path, the first one in the lowest bits."""
    last = adjacency.gather(1, previous).int()
    bonds = torch.zeros_like(last)
    for hop in range(1, MAX_HOPS + 1):
        extended = bonds.gather(2, previous) | (last << CODE_BITS * (hop - 1))
        bonds = torch.where(distance == hop, extended, bonds)
    # the atom at the end of the counted bonds, by doubling the steps back to it
    index = torch.arange(distance.shape[-1], device=distance.device).expand_as(previous)
    end = torch.where(distance > MAX_HOPS, previous, index)
    for _ in range(max(0, distance.shape[-1] - MAX_HOPS - 1).bit_length()):
        end = end.gather(2, end)
    return bonds.gather(2, end)
