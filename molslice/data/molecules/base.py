"""The base class of data sets of molecules."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from molslice.chem import DESCRIPTORS_VERSION, FEATURIZER_VERSION
from molslice.data.base import Dataset
from molslice.data.molecules.collate import collate
from molslice.data.molecules.prepare import count_descriptors
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.stored_rows import StoredRows
from molslice.files.cache import file_checksum
from molslice.files.urls import File
from molslice.types import DataSpec, MoleculeArrays, MoleculeBatch, MolsliceError

DESCRIBED = {"descriptors_version": DESCRIPTORS_VERSION}
DESCRIBED_ROWS = 50_000  # rows that are measured, at most; each takes about 6 KB of memory
COMPARED_ROWS = 2_000_000  # rows that are searched for repeated molecules, at most
SCANNED_ATOMS = 1 << 22  # at once
HYDROGEN, NEUTRAL = 0, 5  # codes of the element and of the charge
SHARE_OF_MEMORY = 0.25  # of a device, for the rows
TAILS = 0.005, 0.995  # quantiles of a descriptor to which values outside are moved


class MoleculeDataset(Dataset):
    """Molecules with targets.

    Attributes:
        store: Molecules and targets of every row of the source, including unreadable rows.
    """

    store: MoleculeStore
    row_name = "molecules"
    has_fixed_shapes: ClassVar[bool] = True

    @property
    def spec(self) -> DataSpec:
        """One output per target, and the descriptors with their range and spread in the training rows."""
        values, described = self.store.descriptors, dict[str, Any]()
        if values is not None:
            described = {"num_descriptors": values.shape[1], "statistics": self._descriptor_statistics}
        has_geometry = self.store.coordinates is not None
        return DataSpec(len(self.target_names), has_geometry=has_geometry, **described)

    @cached_property
    def _descriptor_statistics(self) -> dict[str, tuple[float, ...]]:
        """Range and spread of the descriptors in evenly spaced training rows; see `describe_columns`."""
        assert self.store.descriptors is not None
        rows = self.labeled_rows("train")
        step = max(1, -(-len(rows) // DESCRIBED_ROWS))
        return describe_columns(np.asarray(self.store.descriptors[rows[::step]]))

    @property
    def num_tokens(self) -> np.ndarray:
        """Number of atoms plus one for the graph token, int [rows]; 0 for an unreadable row."""
        atoms = np.asarray(self.store.num_atoms)
        return np.where(atoms > 0, atoms + 1, 0)

    @property
    def targets(self) -> np.ndarray:
        """Targets of the store, float32 [rows, T]; NaN if missing."""
        return self.store.targets

    @property
    def errors(self) -> Mapping[int, str]:
        """Reasons why rows are unreadable, by row number."""
        return self.store.errors

    @property
    def repeats(self) -> str:
        """Message with the number of valid and test molecules that equal a training molecule.

        Data of more than two million rows are not searched.
        """
        if len(self) > COMPARED_ROWS or "train" not in self.splits:
            return ""
        trained = self.number_molecules(self._usable_rows("train"))
        repeated = []
        for split in (name for name in ("valid", "test") if name in self.splits):
            numbers = self.number_molecules(self._usable_rows(split))
            if count := int(np.isin(numbers, trained).sum()):
                repeated.append(f"{count:,} of {len(numbers):,} {split} molecules")
        return f"{' and '.join(repeated)} are also training molecules" if repeated else ""

    def number_molecules(self, rows: np.ndarray) -> np.ndarray:
        """Return a number for the molecule of each row, int64 [k], the same for equal arrays."""
        molecules = map(self.store.arrays, rows.tolist())
        return np.array(
            [hash((molecule.atoms.tobytes(), molecule.bonds.tobytes())) for molecule in molecules], np.int64
        )

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The versions of the features, which the weights of a model depend on."""
        features = {"featurizer_version": FEATURIZER_VERSION}
        return features if self.store.descriptors is None else {**features, **DESCRIBED}

    def content_checksums(self, checksum: Callable[[np.ndarray], str]) -> dict[str, str]:
        """Compute the checksums of the molecules, or take them from the header of a prepared store."""
        known = {name: stated["sha256"] for name, stated in self.store.header.get("arrays", {}).items()}
        inputs = {
            name: array for name, array in self.store.present.items() if name not in ("targets", "groups")
        }
        return {name: known.get(name) or checksum(array) for name, array in inputs.items()}

    def collate(self, rows: np.ndarray | Sequence[int], draw: int | None = None) -> MoleculeBatch:  # noqa: ARG002
        """Collate molecules into one padded batch; nothing in it is random."""
        return collate(self.store, rows)

    def rows_on(self, device: torch.device) -> StoredRows | None:
        """Copy the store to a device if it takes at most a quarter of the free memory."""
        if device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            # torch keeps the memory of freed tensors
            free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
            if StoredRows.bytes_of(self.store) > SHARE_OF_MEMORY * free:
                return None
        return StoredRows(self.store, device)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Derive the number of outputs from `target_columns`."""
        columns = options.get("target_columns", "")
        described = count_descriptors() if options.get("descriptors") else 0
        outputs = 1 if isinstance(columns, str) else max(1, len(columns))
        geometry = bool(options.get("geometry"))
        return DataSpec(outputs, num_descriptors=described, has_geometry=geometry)

    @abstractmethod
    def smiles(self) -> list[str]:
        """Read the original SMILES of every row from the source.

        Raises:
            MolsliceError: The source has no SMILES, or has changed since the rows were read.
        """

    def side_cells(self, columns: Sequence[str]) -> dict[str, list[str]]:
        """Read the cells of every row in other columns of the source.

        Raises:
            MolsliceError: A column is missing, or the source has changed since the rows were read.
        """
        raise MolsliceError(f"{self.source} has no columns of conditions ({', '.join(columns)})")

    @staticmethod
    def _refuse_if_changed(files: Sequence[File], then: Sequence[str], source: object) -> None:
        """Refuse files that no longer have the checksums of the time when their rows were read."""
        if [file_checksum(file) for file in files] != list(then):
            raise MolsliceError(f"{source} has changed since its rows were read")

    def _refuse_if_all_failed(self) -> None:
        if not self.store.num_atoms.any():
            row, reason = next(iter(self.store.errors.items()))
            what = f"cannot read any of the {len(self.store)} SMILES of {self.source}"
            raise MolsliceError(f"{what}; {self.where(row)}: {reason}")


def refuse_hydrogens(store: MoleculeStore, source: str, advice: str) -> None:
    """Refuse arrays in canonical order of an older featurizer that differ from the arrays of the current one.

    Raises:
        MolsliceError: A hydrogen is an atom, but belongs to one heavy atom, or has hydrogens itself. The
            message has the `source` and the `advice`.
    """
    offsets = np.asarray(store.atom_offsets)
    for start in range(0, len(store.atoms), SCANNED_ATOMS):
        atoms = np.asarray(store.atoms[start : start + SCANNED_ATOMS])
        hydrogens = np.flatnonzero((atoms[:, 0] == HYDROGEN) & (atoms[:, 3] == NEUTRAL)) + start
        for row in np.unique(np.searchsorted(offsets, hydrogens, side="right") - 1).tolist():
            if _keeps_hydrogens(store.arrays(row)):
                raise MolsliceError(
                    f"{source}, row {row + 1}: a hydrogen is an atom, as in older versions of molslice; "
                    f"{advice}"
                )


def _keeps_hydrogens(molecule: MoleculeArrays) -> bool:
    elements, ends = molecule.atoms[:, 0], molecule.bonds[:, :2].astype(int)
    for place in np.flatnonzero((elements == HYDROGEN) & (molecule.atoms[:, 3] == NEUTRAL)):
        neighbors = ends[(ends == place).any(1)].sum(1) - place
        if molecule.atoms[place, 4] or (len(neighbors) == 1 and elements[neighbors[0]] != HYDROGEN):
            return True
    return False


class ArraysOnly(MoleculeDataset):
    """Molecules of a source that keeps their arrays, but not their SMILES."""

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> None:  # noqa: ARG003
        """Return None: the targets are known only from the source."""
        return

    def smiles(self) -> list[str]:
        """Refuse."""
        raise MolsliceError(f"{self.source} holds the arrays of molecules, not their SMILES")


def describe_columns(values: np.ndarray) -> dict[str, tuple[float, ...]]:
    """Measure what a model needs to standardize descriptors, [n, D] of the training rows, NaN if undefined.

    Returns:
        D numbers each: `descriptor_low` and `descriptor_high`, two quantiles, and `descriptor_mean` and
        `descriptor_std` of the values between them. A constant column has the deviation 1, and a column that
        is not defined in any row is zero.
    """
    known = values.astype(np.float64)
    known[:, np.isnan(known).all(0)] = 0.0
    low, high = np.nanquantile(known, TAILS, axis=0)
    clipped = np.clip(known, low, high)
    mean, std = np.nanmean(clipped, axis=0), np.nanstd(clipped, axis=0)
    std = np.where(std > 1e-6 * np.maximum(np.abs(mean), 1e-6), std, 1.0)
    columns = {"low": low, "high": high, "mean": mean, "std": std}
    return {f"descriptor_{name}": tuple(column.tolist()) for name, column in columns.items()}
