"""The base class of data sets of molecules."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from molslice.chem import FEATURIZER_VERSION
from molslice.data.base import Dataset
from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.types import DataSpec, MoleculeBatch, MolsliceError


class MoleculeDataset(Dataset):
    """Molecules with targets.

    Attributes:
        store: Molecules and targets of every row of the source, including unreadable rows.
    """

    store: MoleculeStore
    row_name = "molecules"

    @property
    def spec(self) -> DataSpec:
        """One output per target."""
        return DataSpec(len(self.target_names))

    @property
    def num_tokens(self) -> np.ndarray:
        """Number of atoms plus one for the graph token, int [rows]; 0 for an unreadable row."""
        atoms = np.asarray(self.store.num_atoms)
        return np.where(atoms > 0, atoms + 1, 0)

    @property
    def targets(self) -> np.ndarray:
        """Targets of the store, float32 [rows, T]; NaN if missing."""
        return np.asarray(self.store.targets)

    @property
    def errors(self) -> Mapping[int, str]:
        """Reasons why rows are unreadable, by row number."""
        return self.store.errors

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The version of the features, which the weights of a model depend on."""
        return {"featurizer_version": FEATURIZER_VERSION}

    def content_checksums(self, checksum: Callable[[np.ndarray], str]) -> dict[str, str]:
        """Compute the checksums of the molecules, or take them from the header of a prepared store."""
        names = ("atoms", "bonds", "atom_offsets", "bond_offsets")
        known = {name: about["sha256"] for name, about in self.store.header.get("arrays", {}).items()}
        return {name: known.get(name) or checksum(getattr(self.store, name)) for name in names}

    def collate(self, rows: np.ndarray | Sequence[int], draw: int | None = None) -> MoleculeBatch:  # noqa: ARG002
        """Collate molecules into one padded batch; nothing in it is random."""
        return collate(self.store, rows)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Derive the number of outputs from `target_columns`."""
        columns = options.get("target_columns", "")
        return DataSpec(1 if isinstance(columns, str) else max(1, len(columns)))

    @abstractmethod
    def smiles(self) -> list[str]:
        """Read the original SMILES of every row from the source."""

    def _refuse_if_all_failed(self) -> None:
        if not self.store.num_atoms.any():
            row, reason = next(iter(self.store.errors.items()))
            what = f"cannot read any of the {len(self.store)} SMILES of {self.source}"
            raise MolsliceError(f"{what}; {self.where(row)}: {reason}")
