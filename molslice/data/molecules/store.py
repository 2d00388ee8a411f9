"""Molecules as a folder of memory-mapped arrays with a JSON header.

An atom takes nine bytes and a bond five. Targets of atoms, groups of rows, descriptors and coordinates are
optional. A store is written to a temporary folder and renamed when complete, so that the final name never
holds a partial store.
"""

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast, overload

import numpy as np

from molslice.data.molecules.joined import find_shards, join_arrays, join_headers
from molslice.data.molecules.store_files import (
    ARRAYS,
    ATOM_COLUMNS,
    BOND_COLUMNS,
    HEADER,
    LAYOUT,
    OPTIONAL_LAYOUT,
    check_header_sum,
    current_versions,
    find_wrong_counts,
    read_array,
    read_header,
)
from molslice.data.molecules.store_writer import StoreWriter
from molslice.files.atomic import TAKEN, UnwritableError, atomic_folder
from molslice.types import ManyArrays, MoleculeArrays, MolsliceError

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from molslice.data.molecules.pyg import PygMolecules


class MoleculeStore:
    """Arrays and targets of molecules by row, and the reasons of rows without a molecule.

    Args:
        arrays: The arrays `atoms` to `coordinates` below by name; the last four are optional.
        header: Contents of `header.json`. A store in memory needs only names, units, `source` and `errors`.
        path: The folder; None for a store in memory.
        parts: The stores that are read as one; empty for a single store.

    Attributes:
        atoms: uint8 [sum n, 9], indices into OGB's vocabularies.
        bonds: uint8 [sum m, 5]: begin atom, end atom, type, stereo, conjugated.
        atom_offsets: int64 [rows + 1]; row r is `atoms[atom_offsets[r]:atom_offsets[r + 1]]`.
        bond_offsets: int64 [rows + 1]; row r is `bonds[bond_offsets[r]:bond_offsets[r + 1]]`.
        targets: float32 [rows, T] in the unit of the data set; NaN if missing.
        atom_targets: Targets of each atom, float32 [sum n, K], NaN if missing; None if the store has none.
        groups: Number of the group of each row, uint64 [rows]; None if the store has no groups. Rows of one
            group belong to the same split.
        descriptors: Descriptors of each row, float32 [rows, D], NaN where not defined; None without them.
        coordinates: Coordinates of each atom in Angstrom, float16 [sum n, 3], NaN where unknown; None without
            a geometry.
        header: Contents of `header.json`.
        path: The folder; None for a store in memory, and for stores of several folders.
        parts: The stores that are read as one; their arrays are `JoinedArray`. Empty for a single store.
        errors: Reasons of rows without a molecule, by row number.
        num_atoms: Number of atoms, int64 [rows]; 0 for a row without a molecule.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        header: Mapping[str, Any],
        path: Path | None = None,
        parts: Sequence["MoleculeStore"] = (),
    ) -> None:
        self.atoms, self.bonds = arrays["atoms"], arrays["bonds"]
        self.atom_offsets, self.bond_offsets = arrays["atom_offsets"], arrays["bond_offsets"]
        self.targets = arrays["targets"]
        self.atom_targets, self.groups = arrays.get("atom_targets"), arrays.get("groups")
        self.descriptors, self.coordinates = arrays.get("descriptors"), arrays.get("coordinates")
        self.header, self.path, self.parts = dict(header), path, tuple(parts)
        self.errors = {int(row): str(reason) for row, reason in header["errors"].items()}
        self.num_atoms: np.ndarray = np.diff(self.atom_offsets)

    def __len__(self) -> int:
        return len(self.atom_offsets) - 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the path of a folder, which a worker process opens again."""
        if self.parts:
            return MoleculeStore.join, (self.parts, self.path)
        if self.path is not None:
            return _reopen, (str(self.path),)
        return MoleculeStore, (self.present, self.header, None)

    @property
    def present(self) -> dict[str, np.ndarray]:
        """The arrays that the store has, by name."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        return {name: array for name, array in arrays.items() if array is not None}

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the columns of `targets`."""
        return tuple(self.header["target_names"])

    @property
    def target_units(self) -> tuple[str, ...]:
        """Unit of each column of `targets`; empty for a target without a unit."""
        return tuple(self.header["target_units"])

    @property
    def atom_target_names(self) -> tuple[str, ...]:
        """Names of the columns of `atom_targets`; empty without such targets."""
        return tuple(self.header.get("atom_target_names", ()))

    def arrays(self, row: int) -> MoleculeArrays:
        """Return the molecule of a row; empty arrays for a row without a molecule.

        Raises:
            MolsliceError: The row is out of range.
        """
        if not 0 <= row < len(self):
            raise MolsliceError(f"row {row} is out of range: the store has {len(self)} rows")
        atoms = slice(self.atom_offsets[row], self.atom_offsets[row + 1])
        bonds = slice(self.bond_offsets[row], self.bond_offsets[row + 1])
        return MoleculeArrays(np.asarray(self.atoms[atoms]), np.asarray(self.bonds[bonds]))

    @overload
    def to_pyg(self) -> "PygMolecules": ...

    @overload
    def to_pyg(self, row: int) -> "Data": ...

    def to_pyg(self, row: int | None = None) -> "PygMolecules | Data":
        """Convert a row to a graph of PyTorch Geometric, or all rows to a data set of it.

        Items equal the items of `ogb.lsc.PygPCQM4Mv2Dataset`; see `molslice.data.molecules.pyg`.

        Args:
            row: The row; None returns the data set.

        Raises:
            MolsliceError: The row is out of range or has no molecule.
        """
        from molslice.data.molecules.pyg import PygMolecules, pyg_graph  # importing PyG takes seconds

        return PygMolecules(self) if row is None else pyg_graph(self, row)

    @classmethod
    def in_memory(
        cls,
        molecules: Sequence[MoleculeArrays | str] | ManyArrays,
        targets: np.ndarray | None = None,
        *,
        target_names: Sequence[str] = (),
        target_units: Sequence[str] = (),
        atom_target_names: Sequence[str] = (),
        source: str = "memory",
        **optional: np.ndarray | None,
    ) -> Self:
        """Create a store in memory.

        Args:
            molecules: Arrays of each row, or a string with the reason why the row has no molecule.
            targets: float32 [rows, T]; None if all are missing.
            target_names: Names of the targets. The parts of a store that is written need none.
            target_units: Unit of each target; by default no units.
            atom_target_names: Names of the targets of atoms.
            source: Name of the origin of the molecules, for messages.
            optional: `atom_targets`, `groups`, `descriptors` and `coordinates`, as in the attributes.

        Raises:
            MolsliceError: The targets have another shape.
        """
        many = molecules if isinstance(molecules, ManyArrays) else _concatenated(molecules)
        rows, width = len(many.atom_counts), len(target_names)
        if targets is None:
            targets = np.full((rows, width), np.nan, np.float32)
        if targets.ndim != 2:
            raise MolsliceError(f"targets must have shape [{rows}, T], got {list(targets.shape)}")
        expected = rows, width or targets.shape[1]
        if targets.shape != expected:
            raise MolsliceError(f"targets must have shape {[*expected]}, got {list(targets.shape)}")
        arrays = {
            "atoms": many.atoms,
            "bonds": many.bonds,
            "atom_offsets": np.concatenate([np.zeros(1, np.int64), many.atom_counts.cumsum()]),
            "bond_offsets": np.concatenate([np.zeros(1, np.int64), many.bond_counts.cumsum()]),
            "targets": np.ascontiguousarray(targets, np.float32),
            **{name: values for name, values in optional.items() if values is not None},
        }
        header = {
            "source": source,
            "target_names": list(target_names),
            "target_units": list(target_units) or [""] * len(target_names),
            "errors": many.errors,
            **({"atom_target_names": list(atom_target_names)} if atom_target_names else {}),
        }
        return cls(arrays, header)

    @classmethod
    def write(
        cls,
        path: str | os.PathLike[str],
        parts: Iterable["MoleculeStore"],
        *,
        target_names: Sequence[str] = (),
        target_units: Sequence[str] = (),
        source: str = "",
        versions: Mapping[str, str] | None = None,
        atom_target_names: Sequence[str] = (),
        grouped: bool = False,
        num_descriptors: int = 0,
        geometry: bool = False,
        about: Mapping[str, Any] | None = None,
    ) -> Self:
        """Write a store to a folder and open it. Only one part is in memory at a time.

        Args:
            path: The new folder.
            parts: Stores in memory, in order.
            target_names: As in `in_memory`.
            target_units: As in `in_memory`.
            source: As in `in_memory`.
            versions: Versions for the header; by default the versions of this process.
            atom_target_names: As in `in_memory`.
            grouped: Whether the parts have groups.
            num_descriptors: Number of descriptors of each row, if the parts have any.
            geometry: Whether the parts have coordinates.
            about: Other JSON values for the header, under `about`.

        Raises:
            UnwritableError: The folder cannot be written, or it exists (`EEXIST`). No partial folder is left.
        """
        path = Path(path)
        if path.exists():
            raise UnwritableError(errno.EEXIST, TAKEN, str(path))
        try:
            with (
                atomic_folder(path) as folder,
                StoreWriter(
                    folder,
                    target_names=target_names,
                    target_units=target_units,
                    atom_target_names=atom_target_names,
                    grouped=grouped,
                    num_descriptors=num_descriptors,
                    geometry=geometry,
                ) as writer,
            ):
                for store in parts:
                    writer.append(store)
                writer.finish(source, current_versions() if versions is None else versions, about)
        except UnwritableError as error:  # another process may have written the same store first
            if error.errno != errno.EEXIST or not (path / HEADER).is_file():
                raise
        return cls.open(path, verify=False)

    @classmethod
    def join(cls, stores: Sequence["MoleculeStore"], path: Path | None = None) -> Self:
        """Read several stores as one, with the rows of all stores one after the other.

        The arrays stay in their files. A gather from many stores takes longer than from one.

        Args:
            stores: At least one store.
            path: The folder that contains all of them, if there is one.

        Raises:
            MolsliceError: The stores differ in their targets or arrays. The message names store and
                difference.
        """
        if not stores:
            raise MolsliceError("no store of molecules is given")
        names = [str(store.path or f"store {number}") for number, store in enumerate(stores, start=1)]
        arrays = [store.present for store in stores]
        header = join_headers(names, arrays, [store.header for store in stores])
        return cls(cast("dict[str, np.ndarray]", join_arrays(arrays)), header, path, stores)

    def contiguous(self) -> "MoleculeStore":
        """Return the store with each array in one piece in memory."""
        return MoleculeStore({name: np.asarray(values) for name, values in self.present.items()}, self.header)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, verify: bool = True
    ) -> Self:
        """Open a folder with memory-mapped arrays, or several folders as one store.

        A folder of stores is opened as one store, with the stores in the order of the numbers in their names.

        Args:
            path: The folder of a store, a folder of stores, or a list of such folders.
            verify: Whether to compare checksums, which reads every byte once. Shapes and types are always
                compared.

        Raises:
            MolsliceError: The folder is not a store, is damaged, or was written by a newer molslice, or the
                stores do not agree. The message names the file.
        """
        if not isinstance(path, str | os.PathLike):
            return cls.join([cls.open(folder, verify=verify) for folder in path])
        folder = Path(path)
        if shards := find_shards(folder):
            return cls.join([cls._open_one(shard, verify) for shard in shards], folder)
        return cls._open_one(folder, verify)

    @classmethod
    def _open_one(cls, folder: Path, verify: bool) -> Self:
        header = read_header(folder)
        names = (*LAYOUT, *(name for name in OPTIONAL_LAYOUT if name in header["arrays"]))
        advance = (lambda size: None) if verify else None
        arrays = {name: read_array(folder, name, header, advance) for name in names}
        for file, problem in find_wrong_counts(arrays, header):
            raise MolsliceError(f"{folder / file} {problem}")
        if verify:
            check_header_sum(folder, header)
        return cls(arrays, header, folder)


def _concatenated(molecules: Sequence[MoleculeArrays | str]) -> ManyArrays:
    """Concatenate molecules; a string is the reason why a row has none."""
    readable = [molecule for molecule in molecules if not isinstance(molecule, str)]
    sizes = [
        (0, 0) if isinstance(molecule, str) else (len(molecule.atoms), len(molecule.bonds))
        for molecule in molecules
    ]
    return ManyArrays(
        np.concatenate([np.empty((0, ATOM_COLUMNS), np.uint8), *(molecule.atoms for molecule in readable)]),
        np.concatenate([np.empty((0, BOND_COLUMNS), np.uint8), *(molecule.bonds for molecule in readable)]),
        *np.array(sizes, np.int64).reshape(-1, 2).T,
        errors={row: reason for row, reason in enumerate(molecules) if isinstance(reason, str)},
    )


def _reopen(path: str) -> MoleculeStore:
    return MoleculeStore.open(path, verify=False)
