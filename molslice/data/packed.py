"""Molecules end to end in flat arrays, as they travel from the featurizer to a store."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from molslice.types import MoleculeArrays, MolsliceError

ATOM_COLUMNS, BOND_COLUMNS = 9, 5
# name -> dtype, columns (None: one-dimensional; 0: as many as there are targets)
LAYOUT: dict[str, tuple[str, int | None]] = {
    "atoms": ("|u1", ATOM_COLUMNS),
    "bonds": ("|u1", BOND_COLUMNS),
    "atom_offsets": ("<i8", None),
    "bond_offsets": ("<i8", None),
    "targets": ("<f4", 0),
}


@dataclass(frozen=True, slots=True)
class PackedMolecules:
    """Consecutive rows, molecules end to end; a row that failed has no atoms and a reason in `errors`."""

    atoms: np.ndarray  # uint8 [sum n, 9]
    bonds: np.ndarray  # uint8 [sum m, 5]
    atom_counts: np.ndarray  # int64 [rows]
    bond_counts: np.ndarray  # int64 [rows]
    targets: np.ndarray  # float32 [rows, T]
    errors: dict[int, str]  # row within these -> reason

    @classmethod
    def pack(
        cls,
        molecules: Sequence[MoleculeArrays | str],
        targets: np.ndarray | None = None,
        num_targets: int = 0,
    ) -> Self:
        """Put molecules end to end; a string is the reason why its row has none.

        Raises:
            MolsliceError: targets of another shape than [rows, num_targets]; None stands for all missing.
        """
        good = [molecule for molecule in molecules if not isinstance(molecule, str)]
        rows = [isinstance(molecule, str) for molecule in molecules]
        counts = np.zeros((2, len(rows)), np.int64)
        kept = ~np.array(rows, dtype=bool)
        counts[0, kept] = [len(molecule.atoms) for molecule in good]
        counts[1, kept] = [len(molecule.bonds) for molecule in good]
        return cls(
            atoms=joined([molecule.atoms for molecule in good], ATOM_COLUMNS),
            bonds=joined([molecule.bonds for molecule in good], BOND_COLUMNS),
            atom_counts=counts[0],
            bond_counts=counts[1],
            targets=_checked_targets(targets, len(rows), num_targets),
            errors={row: reason for row, reason in enumerate(molecules) if isinstance(reason, str)},
        )


def joined(parts: list[np.ndarray], columns: int, dtype: type = np.uint8) -> np.ndarray:
    """The parts [n, columns] end to end, also when there is none."""
    return np.concatenate(parts) if parts else np.zeros((0, columns), dtype)


def offsets(counts: Iterable[np.ndarray]) -> np.ndarray:
    """int64 [rows + 1]: where each row begins, and the end of the last."""
    return np.concatenate([np.zeros(1, np.int64), *counts]).cumsum()


def _checked_targets(targets: np.ndarray | None, rows: int, columns: int) -> np.ndarray:
    if targets is None:
        targets = np.full((rows, columns), np.nan, np.float32)
    if targets.shape != (rows, columns):
        raise MolsliceError(f"targets must have shape {[rows, columns]}, got {list(targets.shape)}")
    return np.ascontiguousarray(targets, dtype=np.float32)
