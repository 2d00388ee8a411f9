"""The molecules of a store in the memory of a device, which collates batches of fixed shapes."""

import warnings

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from molslice.data.base import RowNumbers
from molslice.data.molecules.store import MoleculeStore
from molslice.ops.path_codes import NO_BOND, bond_codes
from molslice.types import MoleculeBatch


class StoredRows:
    """The arrays of a store as tensors of one device. The host sends row numbers only."""

    def __init__(self, store: MoleculeStore, device: torch.device) -> None:
        self.device = device
        self._tensors: dict[str, Tensor] = {
            name: _on_device(array, device) for name, array in _needed_arrays(store).items()
        }
        bonds = np.diff(store.bond_offsets)
        most = np.zeros(int(store.num_atoms.max()) + 1, np.int64)
        np.maximum.at(most, store.num_atoms, bonds)
        self._most_bonds = np.maximum.accumulate(most)  # of a molecule with at most so many atoms

    @staticmethod
    def bytes_of(store: MoleculeStore) -> int:
        """Return the memory that the rows of a store take."""
        return sum(array.nbytes for array in _needed_arrays(store).values())

    def gather(self, numbers: RowNumbers) -> MoleculeBatch:
        """Collate molecules with their adjacency. Padding is zero, and empty rows have no atoms.

        The list of bonds has as many places for each molecule as any molecule of this width may need. At
        places without a bond the atoms are -1.
        """
        stored, width = self._tensors, numbers.width - 1
        present = numbers.rows >= 0
        rows = numbers.rows.clamp(min=0)
        places, mask = _places(stored["atom_offsets"], rows, present, width)

        def padded(values: Tensor, padding: float) -> Tensor:
            """Return numbers of the atoms [sum n, K] as [B, A, K]."""
            return _taken(values, places).masked_fill(~mask[..., None], padding)

        descriptors = stored.get("descriptors")
        ends, features = self._bonds(rows, present, width)
        molecule = torch.arange(len(rows), device=rows.device)[:, None].expand(ends.shape[:2])
        return MoleculeBatch(
            atoms=padded(stored["atoms"], 0),
            atom_mask=mask,
            bond_index=torch.cat([molecule[..., None], ends], -1).flatten(0, 1),
            bond_features=features.flatten(0, 1),
            targets=stored["targets"][rows].masked_fill(~present[:, None], torch.nan),
            rows=numbers.rows,
            atom_targets=padded(stored["atom_targets"], torch.nan) if "atom_targets" in stored else None,
            descriptors=None if descriptors is None else descriptors[rows],
            coordinates=padded(stored["coordinates"], torch.nan) if "coordinates" in stored else None,
            adjacency=_adjacency(ends, features, width),
        )

    def _bonds(
        self, rows: Int[Tensor, " B"], present: Bool[Tensor, " B"], width: int
    ) -> tuple[Int[Tensor, "B M 2"], UInt8[Tensor, "B M 3"]]:
        """Return the atoms and the features of the bonds; at places without a bond -1 and zero."""
        most = int(self._most_bonds[min(width, len(self._most_bonds) - 1)])
        if not most:
            return rows.new_empty(len(rows), 0, 2), self._tensors["bonds"].new_empty(len(rows), 0, 3)
        places, mask = _places(self._tensors["bond_offsets"], rows, present, most)
        bonds = _taken(self._tensors["bonds"], places)
        missing = ~mask[..., None]
        return bonds[..., :2].long().masked_fill(missing, -1), bonds[..., 2:].masked_fill(missing, 0)


def _adjacency(
    ends: Int[Tensor, "B M 2"], features: UInt8[Tensor, "B M 3"], width: int
) -> UInt8[Tensor, "B A A"]:
    """Write the codes of the bonds into matrices, `NO_BOND` elsewhere."""
    begin, end = ends.unbind(-1)
    # the last entry of a row of the matrix receives the bonds that are missing
    flat = features.new_full((len(ends), width * width + 1), NO_BOND)
    codes = bond_codes(features)
    for one, other in ((begin, end), (end, begin)):
        flat.scatter_(1, torch.where(one < 0, width * width, one * width + other), codes)
    # in one piece, so that a copy to a device is asynchronous
    return flat[:, :-1].reshape(len(ends), width, width).contiguous()


def _needed_arrays(store: MoleculeStore) -> dict[str, np.ndarray]:
    return {name: array for name, array in store.present.items() if name != "groups"}


def _on_device(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to a device. On the CPU the tensor shares its memory, which may be a mapped file."""
    with warnings.catch_warnings():  # nothing writes to the tensor
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.as_tensor(array, device=device)


def _places(
    offsets: Int[Tensor, " R"], rows: Int[Tensor, " B"], present: Bool[Tensor, " B"], width: int
) -> tuple[Int[Tensor, "B W"], Bool[Tensor, "B W"]]:
    """Return the places of the items of rows in a flat array, and a mask of the places that exist."""
    start = offsets[rows]
    count = torch.where(present, offsets[rows + 1] - start, 0)
    index = torch.arange(width, device=rows.device)
    return start[:, None] + index, index < count[:, None]


def _taken(values: Tensor, places: Int[Tensor, "B W"]) -> Tensor:
    """Return the items of a flat array; any item for a place outside of it."""
    return values[places.clamp(max=len(values) - 1)]
