"""Write .npy files piece by piece."""

import contextlib
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["ArrayFile"]


class ArrayFile:
    """An .npy file written piece by piece, with the number of rows in the header written last.

    NumPy pads the header so that a larger number of rows fits into the same bytes.

    Args:
        path: The file to write.
        dtype: Type of the values, such as `<f4`.
        columns: Number of columns; None for an array of one dimension.

    Raises:
        OSError: The file cannot be written, also from the methods.
    """

    def __init__(self, path: Path, dtype: str, columns: int | None) -> None:
        self.dtype, self.columns, self.rows = np.dtype(dtype), columns, 0
        self.digest = hashlib.sha256()
        self.file = path.open("wb")
        self._write_header()

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
