"""Read the features of all atoms and bonds of many molecules at once from RDKit's binary form.

`Mol.ToBinary` writes a molecule in the time of a few getters. Asking each atom and bond takes several times
as long, because each answer is a call from Python. Here the records of all molecules are located in lockstep,
the first atoms of all molecules, then the second ones, so that numpy does the work. The layout follows
version 16 of RDKit's format:

    header  30 bytes, with the numbers of atoms and bonds at 20 and 24
    atom    element, flags, a mask of four bytes, then one byte for each bit of the mask (four for an isotope)
    bond    begin, end, flags, then type, direction, and stereo with its atoms, each if the flags say so
    rings   their number in four bytes, then size and atoms of each

The format is not a documented interface of RDKit. What is unknown here is left to RDKit's getters, and the
featurizer compares both once in each process.

Source: `Code/GraphMol/MolPickler.cpp` of RDKit.
"""

from collections.abc import Callable, Sequence

import numpy as np

from molslice.chem.vocabulary import (
    ATOMIC_NUMBER,
    BOND_TYPE,
    CHARGE,
    CHIRALITY,
    DEGREE,
    HYBRIDIZATION,
    HYDROGENS,
    RADICALS,
    STEREO,
)
from molslice.types import ManyArrays

HEADER = np.frombuffer(bytes.fromhex("efbeadde 00000000 10000000 04000000 00000000"), np.uint8)
BEGIN, ATOMS, BONDS, RINGS = 0x80, 0x01, 0x0B, 0x42
MOST_ATOMS = 250  # from 255 on, an index takes more than one byte
LONGEST = 64  # bytes, more than a record has
SP3, SINGLE = 4, 1

AROMATIC, NO_IMPLICIT = 0x40, 0x20  # flags of an atom
CHARGED, CHIRAL, HYBRID, EXPLICIT_HS, _, IMPLICIT_HS, RADICAL = (1 << bit for bit in range(1, 8))  # its mask
CONJUGATED, OTHER_TYPE, DIRECTED, HAS_STEREO, UNKNOWN = 0x20, 0x08, 0x04, 0x02, 0x91  # flags of a bond


Sizes = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _table(values: Sequence[int]) -> np.ndarray:
    return np.array((*values, *[0] * 256)[:256], np.uint8)


_ELEMENTS, _CHARGES, _CHIRALITIES = _table((*ATOMIC_NUMBER, *[118] * 138)), _table(CHARGE), _table(CHIRALITY)
_HYBRIDIZATIONS, _DEGREES, _HYDROGENS = _table(HYBRIDIZATION), _table(DEGREE), _table(HYDROGENS)
_RADICALS, _TYPES, _STEREOS = _table(RADICALS), _table(BOND_TYPE), _table(STEREO)
# bytes after a mask, without the isotope
_BITS = np.array([(mask & 0xFE).bit_count() for mask in range(256)])
_BOND_BYTES = np.array([bool(flags & OTHER_TYPE) + bool(flags & DIRECTED) for flags in range(256)])


def read_binaries(binaries: Sequence[bytes]) -> ManyArrays:
    """Read sanitized molecules, at least one, written with `Mol.ToBinary(0)`.

    A molecule that needs RDKit's getters has no atoms and no bonds, and no error.
    """
    data = np.frombuffer(b"".join([*binaries, bytes(LONGEST)]), np.uint8)
    lengths = np.array([len(binary) for binary in binaries])
    starts = np.cumsum(lengths) - lengths
    known = _headers_are_known(data, starts, lengths)
    atom_counts, bond_counts = (_number(data, starts + at) * known for at in (20, 24))
    known &= (atom_counts > 0) & (atom_counts <= MOST_ATOMS) & (bond_counts <= lengths)
    atom_counts, bond_counts = atom_counts * known, bond_counts * known
    ends = np.minimum(starts + lengths, len(data) - LONGEST)

    atom_places, after = _walk(data, starts + 30, ends, atom_counts, _atom_sizes)
    known &= data[after] == BONDS
    bond_places, after = _walk(data, after + 1, ends, bond_counts, _bond_sizes)
    known &= data[after] == RINGS
    of_atom, of_bond = (np.repeat(np.arange(len(binaries)), counts) for counts in (atom_counts, bond_counts))
    atoms, atoms_known = _atom_codes(data, atom_places)
    bonds, bonds_known = _bond_codes(data, bond_places)
    known[of_atom[~atoms_known]] = False
    known[of_bond[~bonds_known | (bonds[:, :2].max(1, initial=0) >= atom_counts[of_bond])]] = False

    firsts = np.cumsum(atom_counts) - atom_counts
    used = known[of_bond]
    touched = (firsts[of_bond[used], None] + bonds[used, :2]).ravel()
    degrees = np.bincount(touched, minlength=len(atoms))
    # the total degree counts neighbors in the graph and hydrogens, which `_atom_codes` has counted
    atoms[:, 2] = _DEGREES[np.minimum(degrees + atoms[:, 2], 255)]
    atoms[_ring_atoms(data, after + 1, ends, atom_counts, known), 8] = 1
    if known.all():
        return ManyArrays(atoms, bonds, atom_counts, bond_counts, {})
    return ManyArrays(atoms[known[of_atom]], bonds[used], atom_counts * known, bond_counts * known, {})


def _headers_are_known(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    heads = data[np.minimum(starts, len(data) - LONGEST)[:, None] + np.arange(30)]
    same = (heads[:, :20] == HEADER).all(1) & (heads[:, 28] == BEGIN) & (heads[:, 29] == ATOMS)
    return same & (lengths > 30)


def _number(data: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the unsigned integers of four bytes at some places."""
    return data[np.minimum(places, len(data) - LONGEST)[:, None] + np.arange(4)] @ (1 << np.arange(0, 32, 8))


def _walk(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, counts: np.ndarray, sizes: Sizes
) -> tuple[np.ndarray, np.ndarray]:
    """Find the places of all records, and the place after the last one of each molecule.

    Molecules with many records come first, so that those that still have records are always the first ones.
    A record of an unknown form may lead anywhere; places are kept inside of the data.
    """
    order = np.argsort(-counts, kind="stable")
    most = int(counts.max())
    places = np.empty((most, len(counts)), np.int64)
    place, bound = np.minimum(starts, ends)[order], ends[order]
    active = np.searchsorted(-counts[order], -np.arange(most), side="left")
    for step, number in enumerate(active):
        now = place[:number]
        places[step, :number] = now
        place[:number] = np.minimum(now + sizes(data, now), bound[:number])
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return places[steps, np.repeat(rank, counts)], place[rank]


def _atom_sizes(data: np.ndarray, places: np.ndarray) -> np.ndarray:
    return 6 + _BITS[data[places + 2]] + 4 * (data[places + 3] & 1)


def _bond_sizes(data: np.ndarray, places: np.ndarray) -> np.ndarray:
    flags = data[places + 2]
    sizes = 3 + _BOND_BYTES[flags]
    with_stereo = np.flatnonzero(flags & HAS_STEREO)
    sizes[with_stereo] += 2 + data[places[with_stereo] + sizes[with_stereo] + 1]  # its atoms
    return sizes


def _atom_codes(data: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes of atoms, uint8 [n, 9], and which records are known, bool [n].

    In place of the degree is the number of hydrogens; the column for rings is 0.
    """
    flags, mask = data[places + 1], data[places + 2]

    def value(bit: int, default: int) -> np.ndarray:
        given = np.flatnonzero(mask & bit)
        values = np.full(len(places), default, np.uint8)
        values[given] = data[places[given] + 6 + _BITS[mask[given] & (bit - 1)]]
        return values

    implicit = np.where(flags & NO_IMPLICIT, 0, value(IMPLICIT_HS, 0))
    hydrogens = np.minimum(value(EXPLICIT_HS, 0).astype(np.int64) + implicit, 255)
    codes = np.zeros((len(places), 9), np.uint8)
    codes[:, 0] = _ELEMENTS[data[places]]
    codes[:, 1] = _CHIRALITIES[value(CHIRAL, 0)]
    codes[:, 2] = hydrogens
    codes[:, 3] = _CHARGES[value(CHARGED, 0)]
    codes[:, 4] = _HYDROGENS[hydrogens]
    codes[:, 5] = _RADICALS[value(RADICAL, 0)]
    codes[:, 6] = _HYBRIDIZATIONS[value(HYBRID, SP3)]
    codes[:, 7] = (flags & AROMATIC) > 0
    unknown = (flags & ~np.uint8(AROMATIC | NO_IMPLICIT)) | (mask & 1) | (data[places + 3] & 0xFE)
    return codes, (unknown | data[places + 4] | data[places + 5]) == 0


def _bond_codes(data: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes of bonds, uint8 [m, 5], and which records are known, bool [m]."""
    flags = data[places + 2]
    codes = np.empty((len(places), 5), np.uint8)
    codes[:, 0], codes[:, 1] = data[places], data[places + 1]
    codes[:, 2] = _TYPES[np.where(flags & OTHER_TYPE, data[places + 3], SINGLE)]
    codes[:, 3] = _STEREOS[np.where(flags & HAS_STEREO, data[places + 3 + _BOND_BYTES[flags]], 0)]
    codes[:, 4] = (flags & CONJUGATED) > 0
    return codes, flags & UNKNOWN == 0


def _ring_atoms(
    data: np.ndarray, places: np.ndarray, ends: np.ndarray, atom_counts: np.ndarray, known: np.ndarray
) -> np.ndarray:
    """Return the indices of the atoms in rings of known molecules, with repetitions."""
    firsts = np.cumsum(atom_counts) - atom_counts
    places = np.minimum(places, ends)
    counts = np.where(known, np.minimum(_number(data, places), 255), 0)
    rings, _ = _walk(data, places + 4, ends, counts, lambda data, now: 1 + data[now].astype(np.int64))
    sizes = data[rings].astype(np.int64)
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    members = data[np.minimum(np.repeat(rings, sizes) + 1 + within, len(data) - 1)]
    molecules = np.repeat(np.repeat(np.arange(len(counts)), counts), sizes)
    inside = members < atom_counts[molecules]
    return firsts[molecules[inside]] + members[inside]
