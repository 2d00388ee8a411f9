"""Read files line by line, as text or bytes, plain or compressed; errors name file and line."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from molslice.types import MolsliceError

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LONGEST = 2**28  # maximum bytes of a line; a file of another format may have no line end
READ_FAULTS = (OSError, EOFError, zlib.error)  # errors of reading plain and gzip files

Unpacked = io.BufferedReader | gzip.GzipFile


def find_any(folder: Path, *names: str) -> Path | None:
    """Find the first of several files that exists in a folder, as `name` or `name.gz`."""
    paths = (folder / file for name in names for file in (name, f"{name}.gz"))
    return next((path for path in paths if path.is_file()), None)


def find_file(root: Path, name: str) -> Path:
    """Find a file in a folder, as `name` or `name.gz`.

    Raises:
        MolsliceError: The folder or the file does not exist.
    """
    if not root.is_dir():
        raise MolsliceError(f"no such folder: {root}")
    path = find_any(root, name)
    if path is None:
        raise MolsliceError(f"{root} holds neither {name} nor {name}.gz")
    return path


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    r"""Yield the lines of a text file, plain or gzip.

    Line ends (\n or \r\n) and a byte order mark are removed.

    Raises:
        MolsliceError: The file does not exist or is damaged, or a line has another encoding. The message
            names the file and the line.
    """
    for number, line in enumerate(read_byte_lines(path), start=1):
        try:
            yield line.decode(encoding)
        except UnicodeDecodeError as error:
            raise MolsliceError(
                f"{path}, line {number}: byte {error.start} is not {encoding}: {error.reason}"
            ) from error


def read_byte_lines(path: Path) -> Iterator[bytes]:
    r"""Yield the lines of a file, plain or gzip, as bytes.

    Line ends (\n or \r\n) and a byte order mark are removed.

    Raises:
        MolsliceError: The file does not exist or is damaged, or a line has more than `LONGEST` bytes.
    """
    with open_unpacked(path) as (_, file):
        number = 0
        try:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST + 1), b""), start=1):
                if len(line) > LONGEST:
                    raise MolsliceError(
                        f"cannot read {path}: line {number} has more than {LONGEST:,} bytes; the file "
                        "may not be a text file"
                    )
                if number == 1:
                    line = line.removeprefix(BYTE_ORDER_MARK)
                yield line.removesuffix(b"\n").removesuffix(b"\r")
        except READ_FAULTS as error:
            raise read_error(path, number, read_fault(error)) from error


@contextmanager
def open_unpacked(path: Path) -> Iterator[tuple[IO[bytes], Unpacked]]:
    """Open a file and decompress it if its first bytes are those of gzip, whatever its name.

    Reading the contents may raise any of `READ_FAULTS`; `read_fault` describes them.

    Yields:
        The file as it is on the disk, for progress bars, and its contents.

    Raises:
        MolsliceError: The file does not exist or cannot be read.
    """
    try:
        packed = path.open("rb")
    except FileNotFoundError as error:
        raise MolsliceError(f"no such file: {path}") from error
    except OSError as error:
        raise MolsliceError(f"cannot read {path}: {read_fault(error)}") from error
    with packed:
        if not _begins_as_gzip(packed, path):
            yield packed, packed
            return
        with gzip.GzipFile(fileobj=packed) as unpacked:
            yield packed, unpacked


def read_error(path: Path, number: int, reason: str) -> MolsliceError:
    """Create the error for a file that cannot be read.

    Args:
        path: The file.
        number: Number of lines read before the error.
        reason: The reason, as given by `read_fault`.
    """
    return MolsliceError(f"cannot read {path}, {f'after line {number}' if number else 'line 1'}: {reason}")


def read_fault(error: Exception) -> str:
    """Describe one of `READ_FAULTS`."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"damaged gzip: {error}"


def _begins_as_gzip(file: io.BufferedReader, path: Path) -> bool:
    try:
        return file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
    except OSError as error:
        raise MolsliceError(f"cannot read {path}: {read_fault(error)}") from error
