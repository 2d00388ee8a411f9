"""Molecules as a folder of memory-mapped arrays with a JSON header.

A molecule takes nine bytes an atom and five a bond. A store is written under another name and renamed when it
is whole, so nothing half-written ever stands under the final name.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from molslice.data.packed import (
    ATOM_COLUMNS,
    BOND_COLUMNS,
    LAYOUT,
    PackedMolecules,
    joined,
    offsets,
)
from molslice.data.store_writer import HEADER, SCHEMA_VERSION, StoreWriter
from molslice.types import MoleculeArrays, MolsliceError


class MoleculeStore:
    """Molecules by row: their arrays, targets, and the reasons of the rows that have none.

    Attributes:
        atoms: uint8 [sum n, 9], indices into OGB's vocabularies.
        bonds: uint8 [sum m, 5]: begin atom, end atom, type, stereo, conjugated.
        atom_offsets, bond_offsets: int64 [rows + 1]; row r owns `atoms[atom_offsets[r]:atom_offsets[r + 1]]`.
        targets: float32 [rows, T] in the data set's unit, NaN where missing.
        header: what the folder's `header.json` says.
        path: the folder, None for a store in memory.
    """

    def __init__(
        self, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any], path: Path | None = None
    ) -> None:
        self.atoms, self.bonds = arrays["atoms"], arrays["bonds"]
        self.atom_offsets, self.bond_offsets = arrays["atom_offsets"], arrays["bond_offsets"]
        self.targets = arrays["targets"]
        self.header, self.path = dict(header), path
        self.errors = {int(row): str(reason) for row, reason in header["errors"].items()}
        self.num_atoms: np.ndarray = np.diff(self.atom_offsets)  # int64 [rows], 0 for a failed row

    def __len__(self) -> int:
        return len(self.atom_offsets) - 1

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process opens the folder again instead of receiving its contents."""
        if self.path is not None:
            return _reopen, (str(self.path),)
        arrays = {name: getattr(self, name) for name in LAYOUT}
        return MoleculeStore, (arrays, self.header, None)

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the columns of `targets`."""
        return tuple(self.header["target_names"])

    @property
    def target_units(self) -> tuple[str, ...]:
        """Units of the columns of `targets`, empty where there is none."""
        return tuple(self.header["target_units"])

    def arrays(self, row: int) -> MoleculeArrays:
        """The molecule of a row; its arrays are empty for a row that failed.

        Raises:
            MolsliceError: no such row.
        """
        if not 0 <= row < len(self):
            raise MolsliceError(f"no row {row} in a store of {len(self)} rows")
        atoms = slice(self.atom_offsets[row], self.atom_offsets[row + 1])
        bonds = slice(self.bond_offsets[row], self.bond_offsets[row + 1])
        return MoleculeArrays(np.asarray(self.atoms[atoms]), np.asarray(self.bonds[bonds]))

    @classmethod
    def in_memory(
        cls,
        molecules: Sequence[MoleculeArrays | str],
        targets: np.ndarray | None = None,
        *,
        target_names: Sequence[str] = (),
        target_units: Sequence[str] = (),
        source: str = "memory",
    ) -> Self:
        """A store that is no folder. A string among the molecules is the reason why its row has none.

        Raises:
            MolsliceError: targets of another shape than [rows, T]; None stands for all missing.
        """
        packed = PackedMolecules.pack(molecules, targets, len(target_names))
        return cls.from_packed([packed], target_names=target_names, target_units=target_units, source=source)

    @classmethod
    def from_packed(
        cls,
        parts: Iterable[PackedMolecules],
        *,
        target_names: Sequence[str] = (),
        target_units: Sequence[str] = (),
        source: str = "memory",
    ) -> Self:
        """A store in memory from packed molecules, in their order."""
        parts, errors, rows = list(parts), {}, 0
        for part in parts:
            errors |= {rows + row: reason for row, reason in part.errors.items()}
            rows += len(part.atom_counts)
        arrays = {
            "atoms": joined([part.atoms for part in parts], ATOM_COLUMNS),
            "bonds": joined([part.bonds for part in parts], BOND_COLUMNS),
            "atom_offsets": offsets(part.atom_counts for part in parts),
            "bond_offsets": offsets(part.bond_counts for part in parts),
            "targets": joined([part.targets for part in parts], len(target_names), np.float32),
        }
        header = {
            "source": source,
            "target_names": list(target_names),
            "target_units": list(target_units) or [""] * len(target_names),
            "errors": errors,
        }
        return cls(arrays, header)

    @classmethod
    def write(
        cls,
        path: str | os.PathLike[str],
        parts: Iterable[PackedMolecules],
        *,
        target_names: Sequence[str] = (),
        target_units: Sequence[str] = (),
        source: str = "",
        versions: Mapping[str, str] | None = None,
    ) -> Self:
        """Write a store part by part and open it; memory holds one part at a time.

        Raises:
            OSError: it cannot be written; the message names the final path, under which nothing stands.
        """
        with StoreWriter(path, target_names, target_units) as writer:
            for part in parts:
                writer.append(part)
            writer.finish(source, versions or {})
        return cls.open(path, verify=False)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Self:
        """Open a folder, its arrays memory-mapped.

        Args:
            path: the folder.
            verify: compare checksums, which reads every byte once; sizes and types are always compared.

        Raises:
            MolsliceError: not a store, another schema, or not what was written; names file and reason.
        """
        folder = Path(path)
        header = _read_header(folder)
        arrays = {name: _open_array(folder, name, header, verify) for name in LAYOUT}
        _check_shapes(folder, arrays, header)
        return cls(arrays, header, folder)


def _reopen(path: str) -> MoleculeStore:
    return MoleculeStore.open(path, verify=False)


def _read_header(folder: Path) -> dict[str, Any]:
    file = folder / HEADER
    try:
        header = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MolsliceError(f"{folder} is not a store of molecules, {file}: {error}") from error
    if not isinstance(header, dict) or header.get("schema_version") != SCHEMA_VERSION:
        found = header.get("schema_version") if isinstance(header, dict) else header
        raise MolsliceError(f"{file} has schema version {found!r}, this program reads {SCHEMA_VERSION}")
    missing = {"arrays", "errors", "rows", "source", "target_names", "target_units"} - header.keys()
    if missing:
        raise MolsliceError(f"{file} lacks {', '.join(sorted(missing))}")
    return header


def _open_array(folder: Path, name: str, header: dict[str, Any], verify: bool) -> np.ndarray:
    file = folder / f"{name}.npy"
    stated = header["arrays"].get(name, {})
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise MolsliceError(f"{file} cannot be read: {error}") from error
    if array.dtype.str != LAYOUT[name][0] or list(array.shape) != stated.get("shape"):
        raise MolsliceError(
            f"{file} holds {array.dtype.str} {list(array.shape)}, its header says "
            f"{LAYOUT[name][0]} {stated.get('shape')}"
        )
    if verify and _checksum(array) != stated.get("sha256"):
        raise MolsliceError(f"{file} does not have the checksum in {folder / HEADER}; delete the folder")
    return array.view(np.ndarray)  # a plain view of the map is quicker to index


def _checksum(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()


def _check_shapes(folder: Path, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
    rows, targets = header["rows"], len(header["target_names"])
    sound = len(header["target_units"]) == targets and arrays["targets"].shape == (rows, targets)
    for things, columns in (("atom", ATOM_COLUMNS), ("bond", BOND_COLUMNS)):
        ends, values = arrays[f"{things}_offsets"], arrays[f"{things}s"]
        sound = sound and ends.shape == (rows + 1,) and values.shape[1:] == (columns,)
        sound = sound and ends[0] == 0 and ends[-1] == len(values)
        sound = sound and bool((np.diff(ends) >= 0).all())
    if not sound:
        raise MolsliceError(f"the arrays of {folder} do not fit each other")
