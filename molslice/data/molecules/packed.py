"""Molecules concatenated in flat arrays, passed from the featurizer to a store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from molslice.types import MoleculeArrays, MolsliceError

ATOM_COLUMNS, BOND_COLUMNS = 9, 5
# name -> dtype, columns (None: one-dimensional; 0: one per target)
LAYOUT: dict[str, tuple[str, int | None]] = {
    "atoms": ("|u1", ATOM_COLUMNS),
    "bonds": ("|u1", BOND_COLUMNS),
    "atom_offsets": ("<i8", None),
    "bond_offsets": ("<i8", None),
    "targets": ("<f4", 0),
}
# arrays that a store may have besides; other versions of this package ignore them
OPTIONAL_LAYOUT: dict[str, tuple[str, int | None]] = {
    "atom_targets": ("<f4", 0),
    "groups": ("<u8", None),
    "descriptors": ("<f4", 0),
}
OFFSETS = {"atom_offsets": "atoms", "bond_offsets": "bonds"}  # array -> what it counts


@dataclass(frozen=True, slots=True)
class PackedMolecules:
    """Consecutive rows of concatenated molecules. A failed row has no atoms and a reason in `errors`.

    Attributes:
        atoms: uint8 [sum n, 9].
        bonds: uint8 [sum m, 5].
        atom_counts: Number of atoms of each row, int64 [rows].
        bond_counts: Number of bonds of each row, int64 [rows].
        targets: float32 [rows, T]; NaN if missing.
        errors: Reasons of failed rows, by row number in this chunk.
        atom_targets: Targets of each atom, float32 [sum n, K], NaN if missing; None without such targets.
        groups: Number of the group of each row, uint64 [rows]; rows of one group belong to the same split.
            None without groups.
        descriptors: Descriptors of each row, float32 [rows, D], NaN where not defined; None without them.
        replaced: Number of mixtures that were replaced by their largest molecule.
    """

    atoms: np.ndarray
    bonds: np.ndarray
    atom_counts: np.ndarray
    bond_counts: np.ndarray
    targets: np.ndarray
    errors: dict[int, str]
    atom_targets: np.ndarray | None = None
    groups: np.ndarray | None = None
    descriptors: np.ndarray | None = None
    replaced: int = 0

    @classmethod
    def pack(
        cls,
        molecules: Sequence[MoleculeArrays | str],
        targets: np.ndarray | None = None,
        num_targets: int = 0,
    ) -> Self:
        """Concatenate molecules.

        Args:
            molecules: Arrays of each row, or a string with the reason why the row has no molecule.
            targets: float32 [rows, num_targets]; None if all are missing.
            num_targets: Number of targets T.

        Raises:
            MolsliceError: The targets have another shape.
        """
        good = [molecule for molecule in molecules if not isinstance(molecule, str)]
        counts = [
            (0, 0) if isinstance(molecule, str) else (len(molecule.atoms), len(molecule.bonds))
            for molecule in molecules
        ]
        atom_counts, bond_counts = np.array(counts, np.int64).reshape(-1, 2).T
        if targets is None:
            targets = np.full((len(molecules), num_targets), np.nan, np.float32)
        if targets.shape != (len(molecules), num_targets):
            expected = [len(molecules), num_targets]
            raise MolsliceError(f"targets must have shape {expected}, got {list(targets.shape)}")
        return cls(
            atoms=joined([molecule.atoms for molecule in good], ATOM_COLUMNS),
            bonds=joined([molecule.bonds for molecule in good], BOND_COLUMNS),
            atom_counts=atom_counts,
            bond_counts=bond_counts,
            targets=np.ascontiguousarray(targets, dtype=np.float32),
            errors={row: reason for row, reason in enumerate(molecules) if isinstance(reason, str)},
        )


def joined(parts: list[np.ndarray], columns: int, dtype: type = np.uint8) -> np.ndarray:
    """Concatenate parts [n, columns] to [sum n, columns]. An empty list gives [0, columns]."""
    return np.concatenate(parts) if parts else np.zeros((0, columns), dtype)


def offsets(counts: Iterable[np.ndarray]) -> np.ndarray:
    """Compute the start of each row and the end of the last, int64 [rows + 1], from the lengths of rows."""
    return np.concatenate([np.zeros(1, np.int64), *counts]).cumsum()


def expected_shapes(
    arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]
) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array that the header of a store and the number of atoms and bonds imply."""
    rows, descriptors = header["rows"], arrays.get("descriptors")
    atoms, bonds = (arrays[name].shape[:1] for name in ("atoms", "bonds"))  # () without dimensions
    return {
        "atoms": (*atoms, ATOM_COLUMNS),
        "bonds": (*bonds, BOND_COLUMNS),
        "atom_offsets": (rows + 1,),
        "bond_offsets": (rows + 1,),
        "targets": (rows, len(header["target_names"])),
        "groups": (rows,),
        "atom_targets": (*atoms, len(header.get("atom_target_names", []))),
        "descriptors": (rows, 1 if descriptors is None else (*descriptors.shape, 1, 1)[1]),
    }
