"""Read files of folders that another person may have made: models and stores.

Such a file may be a pipe, a device, a link to a file of the reader, or a pickle under another name. All of
these are refused before they are read.
"""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from molslice.errors import MolsliceError

LARGEST_HEADER = 1 << 24  # bytes of the description and the names of the tensors
LARGEST_ARRAYS = 1 << 32  # bytes of a file of arrays, which may be sparse and so larger than the memory
HUB_LINKS, HUB_FILES = "snapshots", "blobs"  # folders of the cache of the Hugging Face Hub
PICKLES = (b"\x80", b"PK\x03\x04")  # a pickle, and an archive of torch with pickles


def check_received(file: Path) -> None:
    """Check that a file is a regular one, and inside of its folder if it is a link; a missing file passes.

    Raises:
        MolsliceError: It cannot be read. The message names the file and the reason.
    """
    check_inside(file, file.parent)
    try:
        kind = file.stat().st_mode
    except OSError:
        return  # reading it reports the reason
    if not stat.S_ISREG(kind):
        raise MolsliceError(f"cannot read {file}: it is not a regular file")


def check_inside(path: Path, folder: Path) -> None:
    """Refuse a path that leads out of a folder by a link.

    In the cache of the Hugging Face Hub, the files of a model are links to the folder `blobs` of the model.

    Raises:
        MolsliceError: It does.
    """
    try:
        target, base = path.resolve(), folder.resolve()
    except (OSError, RuntimeError) as error:
        raise MolsliceError(f"cannot read {path}: {error}") from error
    if target.is_relative_to(base):
        return
    for ancestor in (base, *base.parents):
        if ancestor.parent.name == HUB_LINKS and target.is_relative_to(ancestor.parent.parent / HUB_FILES):
            return
    raise MolsliceError(f"cannot read {path}: it is a link to {target}, outside of {folder}")


@contextmanager
def open_tensors(file: Path, framework: str) -> Iterator[Any]:
    """Open a safetensors file for the framework `pt` or `numpy`; errors of the block are errors of the file.

    Raises:
        MolsliceError: The file cannot be read, is damaged or is not a safetensors file.
    """
    check_received(file)
    try:
        with file.open("rb") as stream:
            start = stream.read(9)
        if start.startswith(PICKLES) and start[8:] != b"{":
            raise MolsliceError(
                f"{file} is not a safetensors file but a pickle, or an archive of torch with pickles, which "
                "can run code; it was not opened"
            )
        if len(start) == 9 and start[8:] != b"{":
            raise MolsliceError(f"{file} is not a safetensors file")
        length = int.from_bytes(start[:8], "little")
        if len(start) == 9 and length > LARGEST_HEADER:
            raise MolsliceError(
                f"{file} is truncated or not a safetensors file: its header would have {length} bytes, more "
                f"than {LARGEST_HEADER}"
            )
        size = file.stat().st_size
        if framework == "numpy" and size > LARGEST_ARRAYS:  # read at once; torch maps its file into memory
            raise MolsliceError(f"cannot read {file}: {size:,} bytes are more than {LARGEST_ARRAYS:,}")
        with safe_open(file, framework=framework) as opened:
            yield opened
    except MolsliceError:
        raise
    except FileNotFoundError as error:
        raise MolsliceError(f"no such file: {file}; its folder is incomplete") from error
    except (SafetensorError, OSError, ValueError, TypeError, RuntimeError, MemoryError) as error:
        raise MolsliceError(f"{file} is truncated or not a safetensors file: {error}") from error


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """Read all arrays of a safetensors file by name.

    Raises:
        MolsliceError: As in `open_tensors`.
    """
    with open_tensors(file, "numpy") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
