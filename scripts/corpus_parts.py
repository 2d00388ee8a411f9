"""Compute arrays and descriptors of the selected rows of a shard, in a file that later runs continue."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from corpus_keys import Shard

from molslice.chem.descriptors import descriptor_names, finite_descriptors
from molslice.chem.featurize import molecule_arrays
from molslice.chem.smiles import ChemError
from molslice.data.molecules.store import MoleculeStore
from molslice.files.atomic import atomic_file
from molslice.types import MoleculeArrays


@dataclass(frozen=True, slots=True)
class Part:
    """The computed rows of one shard.

    Attributes:
        lines: Line of each row in its shard, int64 [n], ascending.
        molecules: Arrays of each row, or the reason why the row has no arrays.
        descriptors: float32 [n, D], NaN where a value is missing.
    """

    lines: np.ndarray
    molecules: list[MoleculeArrays | str]
    descriptors: np.ndarray

    def at(self, lines: np.ndarray) -> "Part":
        """Return the rows at some lines."""
        places = np.searchsorted(self.lines, lines)
        return Part(lines, [self.molecules[place] for place in places], self.descriptors[places])

    def write(self, path: Path) -> None:
        """Write the rows atomically."""
        store = MoleculeStore.in_memory(self.molecules)
        reasons = "\n".join(store.errors.get(row, "") for row in range(len(self.lines)))
        with atomic_file(path) as file:
            np.savez(
                file,
                lines=self.lines,
                atoms=store.atoms,
                bonds=store.bonds,
                atom_counts=store.num_atoms,
                bond_counts=np.diff(store.bond_offsets),
                reasons=np.frombuffer(reasons.encode(), np.uint8),
                descriptors=self.descriptors,
            )

    @classmethod
    def read(cls, path: Path) -> "Part":
        """Read the result of `write`; a missing file has no rows."""
        if not path.is_file():
            return cls(np.empty(0, np.int64), [], np.empty((0, len(descriptor_names())), np.float32))
        with np.load(path) as archive:
            arrays = dict(archive)
        atoms = np.split(arrays["atoms"], np.cumsum(arrays["atom_counts"])[:-1])
        bonds = np.split(arrays["bonds"], np.cumsum(arrays["bond_counts"])[:-1])
        reasons = arrays["reasons"].tobytes().decode().split("\n")
        molecules = [
            reason or MoleculeArrays(*pair)
            for reason, pair in zip(reasons, zip(atoms, bonds, strict=True), strict=True)
        ]
        return cls(arrays["lines"], molecules, arrays["descriptors"])


def write_part(shard: Path, lines: np.ndarray, path: Path) -> tuple[int, int]:
    """Compute the rows of a part that its file lacks, and add them to the file.

    Args:
        shard: The file of the shard.
        lines: The lines that are rows of the corpus.
        path: The file of the part. Its other rows are kept.

    Returns:
        Number of rows and number of atoms that were computed.
    """
    before = Part.read(path)
    missing = np.setdiff1d(lines, before.lines)
    if not len(missing):
        return 0, 0
    smiles = Shard.read(shard).smiles
    computed = [_compute(smiles[line]) for line in missing]
    together = np.concatenate([before.lines, missing])
    order = np.argsort(together)
    molecules = [*before.molecules, *(molecule for molecule, _ in computed)]
    values = np.concatenate([before.descriptors, np.array([row for _, row in computed], np.float32)])
    Part(together[order], [molecules[place] for place in order], values[order]).write(path)
    return len(missing), _count_atoms([molecule for molecule, _ in computed])


def _compute(smiles: str) -> tuple[MoleculeArrays | str, np.ndarray]:
    try:
        return molecule_arrays(smiles), finite_descriptors(smiles)
    except ChemError as error:
        return str(error).replace("\n", " "), np.full(len(descriptor_names()), np.nan)


def _count_atoms(molecules: Sequence[MoleculeArrays | str]) -> int:
    return sum(len(molecule.atoms) for molecule in molecules if not isinstance(molecule, str))
