"""A molecule whose atoms can be masked."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from molslice.chem.saturated import saturated_hydrocarbon
from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.types import MoleculeBatch

CPU_TOKENS, GPU_TOKENS = 2_048, 16_384  # tokens of a batch of copies


class MaskedMolecule:
    """Batches of copies of one molecule in which some atoms are masked.

    A masked atom is replaced by the atom of the saturated hydrocarbon with the same skeleton (see
    `saturated_hydrocarbon`). A bond with a masked atom becomes a single bond. The graph and the
    descriptors of the molecule stay. With all atoms masked, the copy is the baseline.

    Args:
        store: A store whose row 0 is the molecule.
        device: Where to make the batches.

    Attributes:
        num_atoms: Number of atoms n, in the order of the arrays.
        players: The atoms that masking changes, int64 [m]. Atoms identical in molecule and baseline, with
            their bonds, contribute nothing.
    """

    def __init__(self, store: MoleculeStore, device: torch.device | str = "cpu") -> None:
        arrays = store.arrays(0)
        masked = saturated_hydrocarbon(arrays)
        self.num_atoms, self.device = len(arrays.atoms), torch.device(device)
        self._visible = collate(store, [0]).to(device)
        baseline = collate(MoleculeStore.in_memory([masked]), [0]).to(device)
        self._masked_atoms, self._masked_bonds = baseline.atoms, baseline.bond_features
        changes = (arrays.atoms != masked.atoms).any(1)
        bonds = arrays.bonds[(arrays.bonds != masked.bonds).any(1), :2]
        changes[bonds.flatten()] = True
        self.players = np.flatnonzero(changes)

    @property
    def num_bonds(self) -> int:
        """Number of bonds."""
        return len(self._visible.bond_index)

    @property
    def bond_ends(self) -> np.ndarray:
        """Begin atom and end atom of each bond, int64 [m, 2]."""
        return self._visible.bond_index[:, 1:].cpu().numpy()

    @property
    def copies_at_once(self) -> int:
        """Number of copies of a batch that fit into the cache of a CPU, or into the memory of a GPU."""
        budget = CPU_TOKENS if self.device.type == "cpu" else GPU_TOKENS
        return max(1, budget // (self._visible.atoms.shape[1] + 1))

    def copies(self, count: int) -> MoleculeBatch:
        """Return `count` copies without masked atoms."""
        visible = self._visible
        molecule = torch.arange(count, device=self.device).repeat_interleave(self.num_bonds)
        index = visible.bond_index.repeat(count, 1)
        index[:, 0] = molecule
        descriptors = visible.descriptors
        return MoleculeBatch(
            atoms=visible.atoms.expand(count, -1, -1),
            atom_mask=visible.atom_mask.expand(count, -1),
            bond_index=index,
            bond_features=visible.bond_features.repeat(count, 1),
            descriptors=None if descriptors is None else descriptors.expand(count, -1),
        )

    def masked(self, visible: Bool[Tensor, "K n"]) -> MoleculeBatch:
        """Return a copy for each row of `visible`, which is True for atoms that are not masked."""
        batch = self.copies(len(visible))
        begin, end = self._visible.bond_index[:, 1:].unbind(1)
        bonds = (visible[:, begin] & visible[:, end]).flatten()
        return replace(
            batch,
            atoms=torch.where(visible[..., None], batch.atoms, self._masked_atoms),
            bond_features=torch.where(
                bonds[:, None], batch.bond_features, self._masked_bonds.repeat(len(visible), 1)
            ),
        )

    def masked_batches(self, visible: np.ndarray) -> Iterator[MoleculeBatch]:
        """Yield the copies of `masked` for `visible`, bool [K, n], in batches."""
        for rows in torch.from_numpy(visible).to(self.device).split(self.copies_at_once):
            yield self.masked(rows)

    @property
    def baseline(self) -> MoleculeBatch:
        """The baseline as a batch of one molecule."""
        return self.masked(torch.zeros(1, self.num_atoms, dtype=torch.bool, device=self.device))
