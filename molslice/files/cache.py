"""Cache folders, checksums of files and arrays, and the message for a full or broken disk."""

import contextlib
import errno
import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from molslice.errors import MolsliceError
from molslice.files.urls import File, Url

FAILING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # others: the folder is not writable
MOST_BYTES = 1 << 30  # of a larger array only every k-th row is read, to save time


def failing_disk(error: OSError) -> str:
    """Create the message for an error of a full or broken disk, one of `FAILING`."""
    return (
        f"cannot write {error.filename or 'the cache'}: {error.strerror or error}; no partial file is left. "
        "Choose another folder with the option cache_dir or the environment variable MOLSLICE_CACHE"
    )


def cache_folders(cache_dir: str | os.PathLike[str] | None, beside: Path | None = None) -> list[Path]:
    """List the folders to try for prepared data, in order.

    Args:
        cache_dir: The only folder, if given.
        beside: The first folder otherwise, usually the one of the original data. The user's cache follows.
    """
    if cache_dir is not None:
        return [Path(cache_dir)]
    folders = [] if beside is None else [beside]
    asked = os.environ.get("MOLSLICE_CACHE")
    if asked:
        return [*folders, Path(asked)]
    # an account may have no home folder
    with contextlib.suppress(RuntimeError):
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folders.append(Path(base) / "molslice")
    return folders


def file_checksum(*paths: File) -> str:
    """Compute the SHA-256 of a file, or of several files joined, in hexadecimal.

    Raises:
        MolsliceError: A file cannot be read.
    """
    total = hashlib.sha256()
    for path in paths:
        try:
            with path.open() if isinstance(path, Url) else path.open("rb") as file:
                hashlib.file_digest(file, lambda: total)
        except FileNotFoundError as error:
            raise MolsliceError(f"no such file: {path}") from error
        except OSError as error:
            raise MolsliceError(f"cannot read {path}: {error.strerror}") from error
    return total.hexdigest()


def files_identity(paths: Sequence[Path], root: Path) -> str:
    """Compute a checksum of the paths below `root`, sizes and times of files without reading them."""
    total = hashlib.sha256(f"{root.resolve()}\n".encode())  # unpacked archives may share names and times
    for path in paths:
        state = path.stat()
        total.update(f"{path.relative_to(root).as_posix()}\n{state.st_size} {state.st_mtime_ns}\n".encode())
    return total.hexdigest()


def array_checksum(array: np.ndarray) -> str:
    """Compute the SHA-256 of an array in hexadecimal, above 1 GiB of evenly spaced rows only."""
    step = max(1, math.ceil(array.nbytes / MOST_BYTES))
    rows = np.ascontiguousarray(array[::step] if array.ndim else array)
    total = hashlib.sha256()
    if rows.dtype.hasobject:
        total.update(repr(rows.tolist()).encode())
    elif rows.size:
        total.update(rows.reshape(-1).view(np.uint8).data)
    return total.hexdigest()
