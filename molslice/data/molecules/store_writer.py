"""Write a store of molecules chunk by chunk, also in several runs of a program."""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from molslice.data.molecules.store_files import ARRAYS, LAYOUT, OFFSETS, OPTIONAL_LAYOUT, write_header
from molslice.files.npy import ArrayFile
from molslice.types import MolsliceError

if TYPE_CHECKING:
    from molslice.data.molecules.store import MoleculeStore

ERRORS = "errors.partial"  # the reasons of an unfinished store, one row on each line


class StoreWriter:
    """The open files of an unfinished store. Leaving the `with` block closes them.

    Its memory does not grow with the number of rows. Reasons are kept in a file until the header is written.

    Args:
        folder: The folder, which exists. Names, `grouped`, `num_descriptors` and `geometry` are as in
            `MoleculeStore.write`.
        saved: What `save` returned in an earlier run, to continue the store there; None starts a new one.

    Attributes:
        rows: Number of rows so far.

    Raises:
        OSError: A file cannot be written, also from the methods.
        MolsliceError: The folder does not contain what was saved.
    """

    def __init__(
        self,
        folder: Path,
        *,
        target_names: Sequence[str],
        target_units: Sequence[str] = (),
        atom_target_names: Sequence[str] = (),
        grouped: bool = False,
        num_descriptors: int = 0,
        geometry: bool = False,
        saved: Mapping[str, Any] | None = None,
    ) -> None:
        self._folder, self._names, self._units = folder, list(target_names), list(target_units)
        self._atom_names = list(atom_target_names)
        widths = {"targets": len(target_names), "atom_targets": len(atom_target_names)}
        widths |= {"descriptors": num_descriptors, "coordinates": 3 * geometry}
        self._optional = [name for name in OPTIONAL_LAYOUT if widths.get(name, grouped)]
        self._files: dict[str, ArrayFile] = {}
        self._errors, self._error_digest = folder / ERRORS, hashlib.sha256()
        self.rows = 0
        with ExitStack() as exits:
            for name in (*LAYOUT, *self._optional):
                dtype, columns = ARRAYS[name]
                before = None if saved is None else saved["arrays"][name]
                file = ArrayFile(folder / f"{name}.npy", dtype, widths.get(name, columns), before)
                exits.callback(file.close)
                self._files[name] = file
            self._error_file = self._errors.open("wb" if saved is None else "r+b")
            exits.callback(_close, self._error_file)
            if saved is None:
                for name in OFFSETS:
                    self._files[name].append(np.zeros(1, np.int64))
            else:
                self._continue(saved)
            self._exits = exits.pop_all()

    def _continue(self, saved: Mapping[str, Any]) -> None:
        self.rows, size = saved["rows"], saved["error_bytes"]
        self._error_digest.update(self._error_file.read(size))
        if self._error_digest.hexdigest() != saved["error_sha256"]:
            raise MolsliceError(f"{self._errors} does not contain the reasons that were saved")
        self._error_file.truncate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._exits.close()

    def append(self, store: "MoleculeStore") -> None:
        """Append the rows of a store in memory."""
        arrays = store.present
        for name, counted in OFFSETS.items():
            self._files[name].append(self._files[counted].rows + arrays[name][1:])
        for name in ("atoms", "bonds", "targets", *self._optional):
            self._files[name].append(arrays[name])
        for row, reason in store.errors.items():
            line = f"{json.dumps((self.rows + row, reason))}\n".encode()
            self._error_file.write(line)
            self._error_digest.update(line)
        self.rows += len(store)

    def save(self) -> dict[str, Any]:
        """Sync the rows so far to the disk, and return what is needed to continue after them."""
        self._error_file.flush()
        os.fsync(self._error_file.fileno())
        return {
            "rows": self.rows,
            "error_bytes": self._error_file.tell(),
            "error_sha256": self._error_digest.hexdigest(),
            "arrays": {name: file.save() for name, file in self._files.items()},
        }

    def finish(
        self, source: str, versions: Mapping[str, str], about: Mapping[str, Any] | None = None
    ) -> None:
        """Write the header with the arguments `source`, `versions` and `about` of `MoleculeStore.write`."""
        header = {
            "source": source,
            "rows": self.rows,
            "atoms": self._files["atoms"].rows,
            "bonds": self._files["bonds"].rows,
            "target_names": self._names,
            "target_units": self._units or [""] * len(self._names),
            **({"atom_target_names": self._atom_names} if self._atom_names else {}),
            **({"about": dict(about)} if about is not None else {}),
            "versions": dict(versions),
            "arrays": {name: file.finish() for name, file in self._files.items()},
        }
        self._error_file.close()
        lines = self._errors.read_text(encoding="utf-8").splitlines()
        header["errors"] = dict(json.loads(line) for line in lines)
        write_header(self._folder, header)
        self._errors.unlink()


def _close(file: IO[bytes]) -> None:
    """Close an unfinished file, ignoring errors: flushing the buffer fails on a full disk."""
    with contextlib.suppress(OSError):
        file.close()
