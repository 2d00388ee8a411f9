"""Files line by line, as text or as bytes, also compressed with gzip, with errors that name file and line."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from molslice.types import MolsliceError

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def find_any(folder: Path, *names: str) -> Path | None:
    """The first of these files that a folder has, each as it is or compressed as `name.gz`."""
    paths = (folder / file for name in names for file in (name, f"{name}.gz"))
    return next((path for path in paths if path.is_file()), None)


def find_file(root: Path, name: str) -> Path:
    """The file `name` of a folder, or the same compressed as `name.gz`.

    Raises:
        MolsliceError: no such folder, or neither file in it.
    """
    if not root.is_dir():
        raise MolsliceError(f"no such folder: {root}")
    path = find_any(root, name)
    if path is None:
        raise MolsliceError(f"{root} holds neither {name} nor {name}.gz")
    return path


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    r"""The lines of a text file, without their ends (\n or \r\n) and without a byte order mark.

    Raises:
        MolsliceError: no such file, damaged, or a line that is not of this encoding; names file and line.
    """
    for number, line in enumerate(read_byte_lines(path), start=1):
        try:
            yield line.decode(encoding)
        except UnicodeDecodeError as error:
            raise MolsliceError(
                f"{path}, line {number}: byte {error.start} is not {encoding}: {error.reason}"
            ) from error


def read_byte_lines(path: Path) -> Iterator[bytes]:
    r"""The lines of a file as bytes, without their ends (\n or \r\n) and without a byte order mark.

    Raises:
        MolsliceError: no such file, or damaged.
    """
    try:
        with path.open("rb") as raw:
            is_compressed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        with gzip.open(path, "rb") if is_compressed else path.open("rb") as file:
            for number, line in enumerate(file):
                if number == 0:
                    line = line.removeprefix(BYTE_ORDER_MARK)
                yield line.removesuffix(b"\n").removesuffix(b"\r")
    except FileNotFoundError as error:
        raise MolsliceError(f"no such file: {path}") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise MolsliceError(f"{path} does not read: {reason}") from error
