"""Predictions of finished chunks, kept beside an output file until it is complete.

A prediction of millions of rows that is killed can then continue. The output itself is written from the
beginning, which takes little time, so that all formats give the bytes of an uninterrupted run.

A record is a checksum of all that follows, the length, a line of JSON and the values as float32. The records
from the first torn or damaged one on are computed again. The line has the checksum of the SMILES of the
chunk, so that another input is noticed.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from molslice.data.molecules.conditions import Conditioned
from molslice.files.atomic import write_atomically
from molslice.files.lock import LOCK, lock_folder
from molslice.files.parsing import read_json_object
from molslice.files.tables import Unreadable
from molslice.inference.predictions import TableRows
from molslice.types import MolsliceError

IDENTITY, RECORDS = "prediction.json", "chunks"
CHECKSUM_BYTES, LENGTH_BYTES = 32, 8  # before the content of a record
WORDS = {
    "model": "model",
    "columns": "choice of columns",
    "interval": "level of the interval",
    "calibration": "calibration",
    "fragment": "treatment of mixtures",
    "wildcards": "treatment of wildcards",
    "standardize": "standard form of molecules",
    "smiles_column": "column of SMILES",
    "delimiter": "delimiter",
    "chunk_rows": "number of rows in a chunk",
    "device": "device",
    "versions": "version of molslice or a library",
}


def log_folder(target: Path) -> Path:
    """Return the folder beside an output file that keeps its finished chunks."""
    return target.with_name(f"{target.name}.partial")


def unfinished_error(folder: Path) -> MolsliceError:
    """Create the error for finished chunks that are not to be continued."""
    return MolsliceError(f"{folder} is an unfinished prediction; continue it with --resume, or delete it")


class ChunkLog:
    """The finished chunks of one output file. Use it in a `with` block.

    The folder appears with the second chunk, because one chunk takes little time. It is removed by `discard`,
    and otherwise stays.

    Args:
        target: The output file; None for an output whose chunks are not kept.
        identity: JSON values on which the predictions depend, besides the input.
        resume: Whether to continue with the chunks that are there.

    Raises:
        MolsliceError: There are finished chunks and `resume` is false, they belong to another prediction,
            or another process is writing them.
    """

    def __init__(self, target: Path | None, identity: Mapping[str, Any], *, resume: bool) -> None:
        self.folder = None if target is None else log_folder(target)
        self.identity, self._target, self._resume = dict(identity), target, resume
        self._exits = contextlib.ExitStack()
        self._file: BinaryIO | None = None
        self._end = 0  # of the complete records
        self._first = b""  # the record of the first chunk, until there is a second

    def __enter__(self) -> Self:
        if self.folder is not None and self.folder.exists():
            self._check(self.folder)
            if self._resume:
                self._open(self.folder)
        return self

    def __exit__(self, *error: object) -> None:
        self._exits.close()
        self._file = None

    @property
    def is_kept(self) -> bool:
        """Whether there are finished chunks."""
        return self._file is not None

    def finished(self) -> Iterator[tuple[str, TableRows]]:
        """Yield the checksum of the SMILES and the predictions of each finished chunk, in order."""
        if self._file is None:
            return
        while (record := self._read(self._file)) is not None:
            yield record
        self._file.truncate(self._end)
        self._file.seek(self._end)

    def add(self, smiles: Sequence[str], rows: TableRows) -> None:
        """Keep the predictions of a chunk.

        Raises:
            OSError: The disk is full or broken.
        """
        if self.folder is None:
            return
        values = np.ascontiguousarray(rows.values, "<f4")
        reasons = {row: reason for row, reason in enumerate(rows.errors) if reason is not None}
        header = {
            "shape": values.shape,
            "smiles": smiles_checksum(smiles),
            "errors": reasons,
            "replaced": rows.replaced,
            **({"texts": rows.texts} if rows.texts else {}),
        }
        content = json.dumps(header).encode() + b"\n" + values.tobytes()
        checked = len(content).to_bytes(LENGTH_BYTES) + content
        record = hashlib.sha256(checked).digest() + checked
        if self._file is None and not self._first:
            self._first = record
            return
        file = self._file or self._open(self.folder)
        file.write(self._first + record)
        file.flush()
        self._first = b""

    def discard(self) -> None:
        """Remove the folder, because the output is complete."""
        self.__exit__()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _check(self, folder: Path) -> None:
        """Check that the folder belongs to this prediction, or is left from a start without a finished chunk.

        Raises:
            MolsliceError: It does not, or it is not to be continued.
        """
        if not folder.is_dir() or not set(os.listdir(folder)) - {LOCK, RECORDS}:
            return
        try:
            identity = read_json_object(folder / IDENTITY)
        except MolsliceError as error:
            raise MolsliceError(
                f"{folder} is not the unfinished prediction of {self._target}: {error}; choose another "
                "name for the output"
            ) from error
        words = describe_difference(identity, self.identity)
        if words and self._resume:
            raise MolsliceError(
                f"{folder} is an unfinished prediction with another {words}; delete it, or choose "
                "another name for the output"
            )
        if not self._resume:
            raise unfinished_error(folder)

    def _open(self, folder: Path) -> BinaryIO:
        folder.mkdir(exist_ok=True)
        self._exits.enter_context(lock_folder(folder))
        path = folder / RECORDS
        if not (folder / IDENTITY).exists():
            path.write_bytes(b"")
            write_atomically(folder / IDENTITY, json.dumps(self.identity, indent=1) + "\n")
        self._file = self._exits.enter_context(path.open("r+b"))
        return self._file

    def _read(self, file: BinaryIO) -> tuple[str, TableRows] | None:
        """Read one record; None at the end, and for a record that is torn or damaged."""
        checksum, length = file.read(CHECKSUM_BYTES), file.read(LENGTH_BYTES)
        left = os.fstat(file.fileno()).st_size - file.tell()
        content = file.read(min(int.from_bytes(length), left))  # a damaged length may be enormous
        if hashlib.sha256(length + content).digest() != checksum:
            return None
        self._end = file.tell()
        line, _, data = content.partition(b"\n")
        header = json.loads(line)
        values = np.frombuffer(data, "<f4").reshape(header["shape"]).astype(np.float32)
        errors = [header["errors"].get(str(row)) for row in range(len(values))]
        return header["smiles"], TableRows(values, errors, header.get("texts", ()), header["replaced"])


def describe_difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return in words what differs between the identities of two predictions; empty if they are equal.

    Another model is named alone, because it has other columns too.
    """
    keys = [key for key in {**then, **now} if then.get(key) != now.get(key)]
    return WORDS["model"] if "model" in keys else " and ".join(WORDS.get(key, key) for key in keys)


def smiles_checksum(smiles: Sequence[str]) -> str:
    """Return a checksum of the SMILES of a chunk, and of what its rows have besides."""
    texts = json.dumps(list(map(_content, smiles)))
    return hashlib.sha256(texts.encode()).hexdigest()


def _content(row: str) -> str | list[Any]:
    """Return a row as JSON values."""
    if isinstance(row, Conditioned):
        return [str(row), row.values, row.partner]
    return [row.reason] if isinstance(row, Unreadable) else row
