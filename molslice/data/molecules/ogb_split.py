"""Read OGB's `split_dict.pt` with torch's restricted unpickler, which never runs code from the file."""

import codecs
import pickle
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from molslice.types import MolsliceError

LARGEST_CONTENT = 1 << 28  # bytes when unpacked; the split of PCQM4Mv2 has 30 million
# what a pickled array of integers names, under the names of numpy 1 and of numpy 2
SAFE: list[Any] = [
    (np.ndarray, "numpy.ndarray"),
    (np.dtype, "numpy.dtype"),
    (codecs.encode, "_codecs.encode"),
    bytes,  # how protocol 2 writes an empty array
    *(
        (np.empty(0).__reduce__()[0], f"numpy.{package}.multiarray._reconstruct")  # type: ignore[index]
        for package in ("core", "_core")
    ),
    *{type(np.dtype(code)) for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")},
]

DAMAGES = (
    pickle.UnpicklingError,
    struct.error,  # a pickle that ends early
    *(ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError, OSError),
    *(RuntimeError, TypeError, ValueError, zipfile.BadZipFile, zlib.error),
)


def read_split_file(path: Path) -> dict[str, np.ndarray]:
    """Read the rows of each split from a dictionary of integer arrays written by `torch.save`.

    Returns:
        Row numbers of each split, int64.

    Raises:
        MolsliceError: The file is missing, has other contents, or names anything that is not allowed.
    """
    if not path.exists():
        raise MolsliceError(f"no such file: {path}")
    try:
        _check_size(path)
        with torch.serialization.safe_globals(SAFE):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except DAMAGES as error:
        # torch's messages advise to load the file without its restrictions
        named = re.search(r"GLOBAL (\S+)", str(error))
        detail = str(error).rpartition("WeightsUnpickler error:")[2].strip().partition("\n")[0]
        reason = f"it names {named[1]}, which is not allowed" if named else detail or type(error).__name__
        raise MolsliceError(f"cannot read {path} as a dictionary of splits: {reason}") from error
    if not isinstance(content, dict) or not content:
        kind = "an empty dict" if isinstance(content, dict) else type(content).__name__
        raise MolsliceError(f"{path} must hold a dictionary of splits, got {kind}")
    return {str(name): _rows(path, name, rows) for name, rows in content.items()}


def _check_size(path: Path) -> None:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > LARGEST_CONTENT:
                raise ValueError(f"its content is larger than {LARGEST_CONTENT} bytes")


def _rows(path: Path, name: object, rows: object) -> np.ndarray:
    if not isinstance(name, str):
        raise MolsliceError(f"the name of a split of {path} must be a string, got {type(name).__name__}")
    if isinstance(rows, list) and all(type(row) is int and -(2**63) <= row < 2**63 for row in rows):
        rows = np.array(rows, np.int64)
    array = rows.numpy() if isinstance(rows, torch.Tensor) else rows
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
        raise MolsliceError(f"the split {name!r} of {path} is not a list of integers")
    return array.astype(np.int64)
