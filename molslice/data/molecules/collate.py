"""Padded batches from rows of a molecule store."""

from collections.abc import Sequence

import numpy as np
import torch

from molslice.data.molecules.store import MoleculeStore
from molslice.data.sequences import checked_rows
from molslice.types import MoleculeBatch, MolsliceError


def collate(
    store: MoleculeStore,
    rows: np.ndarray | Sequence[int],
    *,
    pad_to: int | None = None,
    atom_permutation: int | None = None,
) -> MoleculeBatch:
    """Collate rows of a store into one padded batch, in the order given; padding is zero.

    Args:
        store: The molecules.
        rows: Row numbers [B] of rows with a molecule.
        pad_to: Number of atoms to pad to; by default the size of the largest molecule.
        atom_permutation: Seed for renumbering the atoms of each molecule. The permutation depends only on
            the seed and the row. Features are unchanged, including chirality tags.

    Raises:
        MolsliceError: There are no rows, a row is out of range or has no molecule, or `pad_to` is too small.
    """
    rows = checked_rows(rows, store.num_atoms, store.header["source"])
    num_atoms = store.num_atoms[rows]
    width = largest = int(num_atoms.max())
    if pad_to is not None:
        if pad_to < largest:
            raise MolsliceError(f"pad_to={pad_to} is less than the {largest} atoms of the largest molecule")
        width = pad_to
    molecule, position, source = _spread(store.atom_offsets[rows], num_atoms)
    first = num_atoms.cumsum() - num_atoms  # start of the atoms of each molecule in the flat arrays
    slots = position if atom_permutation is None else _permuted(molecule, position, rows, atom_permutation)

    def padded(values: np.ndarray, padding: float) -> torch.Tensor:
        """Return numbers of the atoms [sum n, K] as [B, A, K]."""
        columns = values.shape[1]
        flat = np.full((len(rows) * width, columns), padding, values.dtype)
        flat[molecule * width + slots] = values[source]
        return torch.from_numpy(flat.reshape(len(rows), width, columns))

    mask = np.arange(width) < num_atoms[:, None]

    num_bonds = store.bond_offsets[rows + 1] - store.bond_offsets[rows]
    bond_molecule, _, bond_source = _spread(store.bond_offsets[rows], num_bonds)
    bonds = store.bonds[bond_source]
    ends = bonds[:, :2].astype(np.int64)
    if atom_permutation is not None:
        ends = slots[first[bond_molecule, None] + ends]
    return MoleculeBatch(
        atoms=padded(store.atoms, 0),
        atom_mask=torch.from_numpy(mask),
        bond_index=torch.from_numpy(np.column_stack((bond_molecule, ends))),
        bond_features=torch.from_numpy(np.ascontiguousarray(bonds[:, 2:])),
        targets=torch.from_numpy(np.asarray(store.targets[rows])) if store.target_names else None,
        rows=torch.from_numpy(rows),
        atom_targets=None if store.atom_targets is None else padded(store.atom_targets, np.nan),
        coordinates=None if store.coordinates is None else padded(store.coordinates, np.nan),
        descriptors=None
        if store.descriptors is None
        else torch.from_numpy(np.asarray(store.descriptors[rows])),
    )


def _spread(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return molecule, position in the molecule and index in the store of each concatenated item."""
    molecule = np.repeat(np.arange(len(counts)), counts)
    ends = counts.cumsum()
    position = np.arange(ends[-1]) - (ends - counts)[molecule]
    return molecule, position, starts[molecule] + position


def _permuted(molecule: np.ndarray, position: np.ndarray, rows: np.ndarray, seed: int) -> np.ndarray:
    """Compute a new position for each atom: its rank in the molecule by a hash of (seed, row, position)."""
    with np.errstate(over="ignore"):
        key = mixed(np.full(1, seed % 2**64, np.uint64))
        key = mixed(key ^ rows.astype(np.uint64))[molecule]
        key = mixed(key ^ position.astype(np.uint64))
    slots = np.empty_like(position)
    slots[np.lexsort((key, molecule))] = position  # molecules stay in place; atoms move within them
    return slots


def mixed(values: np.ndarray) -> np.ndarray:
    """Hash uint64 values by one step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
