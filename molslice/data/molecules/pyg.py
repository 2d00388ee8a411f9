"""Rows of a store as graphs of PyTorch Geometric, equal to the graphs of OGB.

An item equals the item of `ogb.lsc.PygPCQM4Mv2Dataset` for the same molecule with the same order of atoms.
This module imports PyTorch Geometric; `MoleculeStore.to_pyg` imports this module.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch_geometric.data import Data, Dataset

from molslice.types import MolsliceError

if TYPE_CHECKING:
    from molslice.data.molecules.store import MoleculeStore


def pyg_graph(store: "MoleculeStore", row: int) -> Data:
    """Convert a row to a graph.

    Returns:
        `x` int64 [n, 9], `edge_index` int64 [2, 2 m] with both directions of each bond next to each other,
        `edge_attr` int64 [2 m, 3], and `y` in the units of the targets: float32 [1] for one target, float32
        [1, T] for several, NaN if missing; none of it for a store without targets.

    Raises:
        MolsliceError: The row is out of range or has no molecule.
    """
    molecule = store.arrays(row)
    if not len(molecule.atoms):
        raise MolsliceError(
            f"row {row} of {store.path or store.header['source']} has no molecule: {store.errors.get(row)}; "
            "choose other rows, as in dataset[store.num_atoms > 0]"
        )
    ends = molecule.bonds[:, :2].astype(np.int64)
    graph = Data(
        x=torch.from_numpy(molecule.atoms.astype(np.int64)),
        edge_index=torch.from_numpy(np.stack([ends, ends[:, ::-1]], 1).reshape(-1, 2).T.copy()),
        edge_attr=torch.from_numpy(np.repeat(molecule.bonds[:, 2:].astype(np.int64), 2, axis=0)),
    )
    if store.target_names:
        targets = np.array(store.targets[row], np.float32)
        graph.y = torch.from_numpy(targets if len(targets) == 1 else targets[None])
    return graph


class PygMolecules(Dataset):
    """A store as a data set of PyTorch Geometric; item i is row i.

    A row without a molecule raises an error, so that a split can be used as it is.
    `dataset[store.num_atoms > 0]` has only the rows with a molecule. Processes of a data loader open the
    folder of the store by its path.
    """

    def __init__(self, store: "MoleculeStore") -> None:
        super().__init__()
        self.store = store

    def len(self) -> int:
        """Return the number of rows."""
        return len(self.store)

    def get(self, idx: int) -> Data:
        """Convert a row to a graph; see `pyg_graph`."""
        return pyg_graph(self.store, int(idx))
