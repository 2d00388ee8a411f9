"""Files of the idx format, in which MNIST is distributed."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from molslice.files.lines import GZIP_MAGIC, find_any
from molslice.types import MolsliceError

__all__ = ["UNSIGNED_BYTES", "find_idx", "read_idx"]

UNSIGNED_BYTES = 8  # type code, the third byte of the idx format


def find_idx(folder: Path, name: str) -> Path | None:
    """Find an idx file in a folder, plain or gzip; None if it does not exist."""
    # some archives have a dot before the number of dimensions
    return find_any(folder, name, name.replace("-idx", ".idx"))


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Read an idx file of bytes, plain or gzip.

    The format is two zero bytes, the type, the number of dimensions, the sizes as big-endian int32, and the
    values.

    Args:
        path: The file.
        dimensions: Expected number of dimensions.

    Returns:
        The values, uint8, with the shape in the header.

    Raises:
        MolsliceError: The format, the type, the number of dimensions or the length is invalid.

    Source: LeCun, Cortes and Burges, the page of MNIST.
    """
    try:
        data = path.read_bytes()
        if data.startswith(GZIP_MAGIC):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise MolsliceError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    start = 4 + 4 * dimensions
    if len(data) < start or data[:4] != bytes([0, 0, UNSIGNED_BYTES, dimensions]):
        raise MolsliceError(
            f"{path} is not an idx file of bytes in {dimensions} dimensions: starts with {data[:4].hex(' ')}"
        )
    shape = np.frombuffer(data[4:start], ">i4").tolist()
    if len(data) - start != math.prod(shape):
        wanted = " x ".join(map(str, shape))
        raise MolsliceError(f"{path} holds {len(data) - start} bytes, but its header says {wanted}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
