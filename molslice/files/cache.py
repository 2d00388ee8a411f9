"""Cache folders, checksums of files, and messages for a disk that fails."""

import contextlib
import errno
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from molslice.types import MolsliceError

FAILING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # other errors: a place not to be written


def failing_disk(error: OSError) -> str:
    """Create the message for a disk that is full or fails."""
    return (
        f"{error.filename or 'the cache'}: {error.strerror or error}; nothing is left there. Another place "
        "can be given by the option cache_dir or the environment variable MOLSLICE_CACHE"
    )


def cache_folders(cache_dir: str | os.PathLike[str] | None, beside: Path | None = None) -> list[Path]:
    """List the folders for prepared data: `cache_dir` if given, otherwise `beside`, then the user's cache."""
    if cache_dir is not None:
        return [Path(cache_dir)]
    folders = [] if beside is None else [beside]
    asked = os.environ.get("MOLSLICE_CACHE")
    if asked:
        return [*folders, Path(asked)]
    # an account may have no home
    with contextlib.suppress(RuntimeError):
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folders.append(Path(base) / "molslice")
    return folders


def file_checksum(path: Path) -> str:
    """Compute the SHA-256 of a file.

    Raises:
        MolsliceError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise MolsliceError(f"no such file: {path}") from error
    except OSError as error:
        raise MolsliceError(f"cannot read {path}: {error.strerror}") from error


def files_identity(paths: Sequence[Path], root: Path) -> str:
    """Compute a checksum of the paths, sizes and modification times of files, without reading them."""
    total = hashlib.sha256(f"{root.resolve()}\n".encode())  # unpacked archives may share names and times
    for path in paths:
        state = path.stat()
        total.update(f"{path.relative_to(root).as_posix()}\n{state.st_size} {state.st_mtime_ns}\n".encode())
    return total.hexdigest()
