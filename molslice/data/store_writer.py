"""Writing a store of molecules chunk by chunk, whole or not at all."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from molslice.data.packed import LAYOUT, PackedMolecules, offsets

SCHEMA_VERSION = 1
HEADER = "header.json"
STALE_SECONDS = 24 * 3600  # what a killed process left is removed after a day


FAILING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # other errors: a place not to be written


def failing_disk(error: OSError) -> str:
    """What to say of a disk that is full or fails."""
    return (
        f"{error.filename or 'the cache'}: {error.strerror or error}; nothing is left there. Another place "
        "can be given by the option cache_dir or the environment variable MOLSLICE_CACHE"
    )


class _ArrayFile:
    """An .npy file written piece by piece; its length is put into the header when it is known."""

    HEADER_BYTES = 128

    def __init__(self, path: Path, dtype: str, columns: int | None) -> None:
        self.dtype, self.columns, self.rows = np.dtype(dtype), columns, 0
        self.digest = hashlib.sha256()
        self.file = path.open("wb")
        self.file.write(b"\0" * self.HEADER_BYTES)

    def append(self, values: np.ndarray) -> None:
        data = np.ascontiguousarray(values, dtype=self.dtype).tobytes()
        self.file.write(data)
        self.digest.update(data)
        self.rows += len(values)

    def finish(self) -> dict[str, Any]:
        shape = (self.rows,) if self.columns is None else (self.rows, self.columns)
        text = repr({"descr": self.dtype.str, "fortran_order": False, "shape": shape}).encode("latin1")
        magic = np.lib.format.magic(1, 0)
        room = self.HEADER_BYTES - len(magic) - 2
        self.file.seek(0)
        self.file.write(magic + room.to_bytes(2, "little") + text.ljust(room - 1) + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        return {"shape": list(shape), "sha256": self.digest.hexdigest()}


class StoreWriter:
    """Writes a store into a folder beside its final name, and renames it when it is whole.

    Leaving the `with` block without `finish`, by whatever exception, removes what was written.
    """

    def __init__(
        self, path: str | os.PathLike[str], target_names: Sequence[str], target_units: Sequence[str]
    ) -> None:
        self.path = Path(path)
        self.target_names, self.target_units = list(target_names), list(target_units)
        self.folder = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}.tmp")
        self.counts: dict[str, list[np.ndarray]] = {"atom": [], "bond": []}
        self.errors: dict[int, str] = {}
        self.rows = 0
        self.finished = False
        self.files: dict[str, _ArrayFile] = {}

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                raise FileExistsError(errno.EEXIST, "there is something already")
            self._remove_stale()
            self.folder.mkdir()
            for name, (_, columns) in LAYOUT.items():
                self.files[name] = self._file(name, len(self.target_names) if columns == 0 else columns)
        except OSError as error:
            self._remove()
            raise self._named(error) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not self.finished:
            self._remove()
        if isinstance(error, OSError):
            raise self._named(error) from error

    def _named(self, error: OSError) -> OSError:
        """The same error (read-only, full disk) with the path that the user knows."""
        return OSError(error.errno, f"{error.strerror or error}, while writing molecules", str(self.path))

    def _file(self, name: str, columns: int | None) -> _ArrayFile:
        return _ArrayFile(self.folder / f"{name}.npy", LAYOUT[name][0], columns)

    def _remove(self) -> None:
        for file in self.files.values():
            # a full disk may refuse the last bytes of a buffer; the folder goes either way
            try:
                file.file.close()
            except OSError:
                continue
        shutil.rmtree(self.folder, ignore_errors=True)

    def _remove_stale(self) -> None:
        for folder in self.path.parent.glob(f".{self.path.name}.*.tmp"):
            with contextlib.suppress(FileNotFoundError):  # its writer may remove it at this moment
                if time.time() - folder.stat().st_mtime > STALE_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)

    def append(self, part: PackedMolecules) -> None:
        """Write the next molecules."""
        self.files["atoms"].append(part.atoms)
        self.files["bonds"].append(part.bonds)
        self.files["targets"].append(part.targets)
        self.counts["atom"].append(part.atom_counts)
        self.counts["bond"].append(part.bond_counts)
        self.errors |= {self.rows + row: reason for row, reason in part.errors.items()}
        self.rows += len(part.atom_counts)

    def finish(self, source: str, versions: Mapping[str, str]) -> None:
        """Write offsets and header, and put the folder under its final name."""
        for things, counts in self.counts.items():
            self.files[f"{things}_offsets"].append(offsets(counts))
        header = {
            "schema_version": SCHEMA_VERSION,
            "source": source,
            "rows": self.rows,
            "atoms": self.files["atoms"].rows,
            "bonds": self.files["bonds"].rows,
            "target_names": self.target_names,
            "target_units": self.target_units or [""] * len(self.target_names),
            "versions": dict(versions),
            "arrays": {name: file.finish() for name, file in self.files.items()},
            "errors": self.errors,
        }
        (self.folder / HEADER).write_text(json.dumps(header, indent=1), encoding="utf-8")
        self._rename()
        self.finished = True

    def _rename(self) -> None:
        try:
            os.rename(self.folder, self.path)
        except OSError:
            if not (self.path / HEADER).is_file():
                raise
            # another process has put the same store there in the meantime: that one stays
            shutil.rmtree(self.folder, ignore_errors=True)
