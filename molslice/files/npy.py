"""Write .npy files piece by piece, also in several runs of a program."""

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from molslice.errors import MolsliceError

_HEADER = re.compile(
    rb"\{'descr': '([<|=>][biufc][1-9]\d?)', 'fortran_order': False, 'shape': \(([\d, ]*)\), \} *\n"
)
_MAGIC = b"\x93NUMPY\x01\x00"


def read_array_header(stream: BinaryIO) -> tuple[int, tuple[int, ...], str]:
    """Read the header of an .npy file as `ArrayFile` writes it, with any padding.

    NumPy's own reader evaluates the header as Python, and damage can raise many kinds of errors there.

    Returns:
        The place of the first value in bytes, the shape, and the type such as `<f4`.

    Raises:
        ValueError: Any byte of the header is not as expected.
    """
    start = stream.read(len(_MAGIC) + 2)
    length = int.from_bytes(start[len(_MAGIC) :], "little")
    text = stream.read(length)
    match = _HEADER.fullmatch(text)
    sizes = match[2].decode().split(",") if match is not None else []
    shape = tuple(int(size) for size in sizes if size.strip())
    if match is None or start[: len(_MAGIC)] != _MAGIC or repr(shape)[1:-1].encode() != match[2]:
        raise ValueError("the header of the array is damaged")
    return len(start) + length, shape, match[1].decode()


_BLOCK = 1 << 22  # bytes


class ArrayFile:
    """An .npy file written piece by piece, with the number of rows in the header written last.

    NumPy pads the header so that a larger number of rows fits into the same bytes.

    Args:
        path: The file to write.
        dtype: Type of the values, such as `<f4`.
        columns: Number of columns; None for an array of one dimension.
        saved: What `save` returned in an earlier run, to continue the file there; None starts a new file.

    Raises:
        OSError: The file cannot be written, also from the methods.
        MolsliceError: The file does not contain the values that were saved.
    """

    def __init__(
        self, path: Path, dtype: str, columns: int | None, saved: Mapping[str, Any] | None = None
    ) -> None:
        self.dtype, self.columns, self.rows = np.dtype(dtype), columns, 0
        self.digest = hashlib.sha256()
        self.file = path.open("wb" if saved is None else "r+b")
        self._write_header()
        if saved is not None:
            try:
                self._continue(path, saved)
            except BaseException:
                self.close()
                raise

    def _continue(self, path: Path, saved: Mapping[str, Any]) -> None:
        """Read the saved values again, for their checksum, and cut off what follows them."""
        self.rows = int(saved["rows"])
        left = self.rows * (1 if self.columns is None else self.columns) * self.dtype.itemsize
        while left and (block := self.file.read(min(left, _BLOCK))):
            self.digest.update(block)
            left -= len(block)
        if left or self.digest.hexdigest() != saved["sha256"]:
            raise MolsliceError(f"{path} does not contain the {self.rows} rows that were saved")
        self.file.truncate()

    def _write_header(self) -> tuple[int, ...]:
        shape = (self.rows,) if self.columns is None else (self.rows, self.columns)
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self.file, header)
        return shape

    def append(self, values: np.ndarray) -> None:
        """Append rows."""
        data = np.ascontiguousarray(values, dtype=self.dtype).tobytes()
        self.file.write(data)
        self.digest.update(data)
        self.rows += len(values)

    def save(self) -> dict[str, Any]:
        """Sync the rows so far to the disk; returns their number and the SHA-256 of their values."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return {"rows": self.rows, "sha256": self.digest.hexdigest()}

    def finish(self) -> dict[str, Any]:
        """Write the number of rows and close the file; returns its shape and the SHA-256 of its values."""
        self.file.seek(0)
        shape = self._write_header()
        self.file.close()
        return {"shape": list(shape), "sha256": self.digest.hexdigest()}

    def close(self) -> None:
        """Close an unfinished file, ignoring errors: flushing the buffer fails on a full disk."""
        with contextlib.suppress(OSError):
            self.file.close()
