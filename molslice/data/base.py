"""What every data set of molecules offers."""

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np

from molslice.data.store import MoleculeStore
from molslice.types import MolsliceError

Kind = Literal["regression", "classification"]


class MoleculeDataset(ABC):
    """Molecules with targets, divided into splits.

    A subclass takes its options keyword-only and has set all attributes when it is constructed.

    Attributes:
        store: molecules and targets by row; every row of the source is there, also those that failed.
        splits: rows by the name of the split, int64; "train", "valid", "test" and others.
        target_names: names of the targets.
        target_units: their units, empty where there is none.
        kind: what the targets are; those of a classification are 0 and 1.
        source: the file that the molecules come from, for messages.
    """

    store: MoleculeStore
    splits: dict[str, np.ndarray]
    target_names: tuple[str, ...]
    target_units: tuple[str, ...]
    kind: Kind
    source: str

    def __len__(self) -> int:
        return len(self.store)

    def rows(self, split: str) -> np.ndarray:
        """The rows of a split, int64, also those that failed.

        Raises:
            MolsliceError: no such split; the message names those there are.
        """
        if split not in self.splits:
            raise MolsliceError(f"{self.source} has no split {split!r}; choices: {', '.join(self.splits)}")
        return self.splits[split]

    def labeled_rows(self, split: str) -> np.ndarray:
        """The rows of a split with a molecule and at least one target: what one can train on and score.

        Raises:
            MolsliceError: no such split, or none of its rows is such.
        """
        rows = self.rows(split)
        known = np.isfinite(self.store.targets[rows]).any(axis=1)
        rows = rows[(self.store.num_atoms[rows] > 0) & known]
        if not len(rows):
            raise MolsliceError(f"the split {split!r} of {self.source} has no molecule with a known target")
        return rows

    @abstractmethod
    def smiles(self) -> list[str]:
        """The SMILES of every row as the source has them, read from there again."""

    def _refuse_if_all_failed(self) -> None:
        if not self.store.num_atoms.any():
            row, reason = next(iter(self.store.errors.items()))
            raise MolsliceError(
                f"none of the {len(self.store)} SMILES of {self.source} can be read; row {row}: {reason}"
            )
