"""Write a store of molecules chunk by chunk, atomically."""

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from molslice.data.molecules.header import HEADER, write_header
from molslice.data.molecules.packed import LAYOUT, OPTIONAL_LAYOUT, PackedMolecules, offsets
from molslice.files.atomic import UnwritableError, atomic_folder
from molslice.files.npy import ArrayFile


def write_store(
    path: Path,
    parts: Iterable[PackedMolecules],
    *,
    target_names: Sequence[str],
    target_units: Sequence[str],
    source: str,
    versions: Mapping[str, str],
    atom_target_names: Sequence[str] = (),
    grouped: bool = False,
    num_descriptors: int = 0,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write a store part by part. Only one part is in memory at a time.

    If two processes write the same store at the same time, the first one is kept.

    Args:
        path: The new folder.
        parts: Packed molecules, in order.
        target_names: Names of the targets.
        target_units: Unit of each target.
        source: Name of the origin of the molecules, for messages.
        versions: Library versions for the header.
        atom_target_names: Names of the targets of atoms, if the parts have any.
        grouped: Whether the parts have groups.
        num_descriptors: Number of descriptors of each row, if the parts have any.
        about: Other JSON values for the header, under `about`.

    Raises:
        UnwritableError: The folder cannot be written, or it exists (`EEXIST`).
    """
    if path.exists():
        raise UnwritableError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    try:
        with atomic_folder(path) as folder, ExitStack() as exits:
            header: dict[str, Any] = {"target_names": list(target_names), "target_units": list(target_units)}
            if atom_target_names:
                header["atom_target_names"] = list(atom_target_names)
            if about is not None:
                header["about"] = dict(about)
            writer = _StoreWriter(folder, header, grouped, num_descriptors, exits)
            for part in parts:
                writer.append(part)
            writer.finish(source, versions)
    except UnwritableError as error:
        if error.errno != errno.EEXIST or not (path / HEADER).is_file():
            raise


class _StoreWriter:
    """The open files of a store."""

    def __init__(
        self, folder: Path, header: dict[str, Any], grouped: bool, num_descriptors: int, exits: ExitStack
    ) -> None:
        self.folder, self.header = folder, header
        widths = {
            "targets": len(header["target_names"]),
            "atom_targets": len(header.get("atom_target_names", ())),
            "descriptors": num_descriptors,
        }
        present = {**widths, "groups": grouped}
        self.optional = [name for name in OPTIONAL_LAYOUT if present[name]]
        self.counts: dict[str, list[np.ndarray]] = {"atom": [], "bond": []}
        self.errors: dict[int, str] = {}
        self.rows = 0
        self.files: dict[str, ArrayFile] = {}
        for name in (*LAYOUT, *self.optional):
            dtype, columns = {**LAYOUT, **OPTIONAL_LAYOUT}[name]
            file = ArrayFile(folder / f"{name}.npy", dtype, widths.get(name, columns))
            exits.callback(file.close)
            self.files[name] = file

    def append(self, part: PackedMolecules) -> None:
        """Append molecules."""
        self.files["atoms"].append(part.atoms)
        self.files["bonds"].append(part.bonds)
        self.files["targets"].append(part.targets)
        for name in self.optional:
            values = getattr(part, name)
            if values is None:
                raise AssertionError(f"a part of the store has no {name}")
            self.files[name].append(values)
        self.counts["atom"].append(part.atom_counts)
        self.counts["bond"].append(part.bond_counts)
        self.errors |= {self.rows + row: reason for row, reason in part.errors.items()}
        self.rows += len(part.atom_counts)

    def finish(self, source: str, versions: Mapping[str, str]) -> None:
        """Write the offsets and the header."""
        for things, counts in self.counts.items():
            self.files[f"{things}_offsets"].append(offsets(counts))
        header = {
            "source": source,
            "rows": self.rows,
            "atoms": self.files["atoms"].rows,
            "bonds": self.files["bonds"].rows,
            **self.header,
            "target_units": self.header["target_units"] or [""] * len(self.header["target_names"]),
            "versions": dict(versions),
            "arrays": {name: file.finish() for name, file in self.files.items()},
            "errors": self.errors,
        }
        write_header(self.folder, header)
