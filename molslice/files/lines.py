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
LONGEST = 2**28  # bytes of a line: a file of another format may have no line end at all
READ_FAULTS = (OSError, EOFError, zlib.error)  # of a file that may be compressed; BadGzipFile is an OSError

Unpacked = io.BufferedReader | gzip.GzipFile


def find_any(folder: Path, *names: str) -> Path | None:
    """Find the first of these files in a folder, plain or as `name.gz`; None if there is none."""
    paths = (folder / file for name in names for file in (name, f"{name}.gz"))
    return next((path for path in paths if path.is_file()), None)


def find_file(root: Path, name: str) -> Path:
    """Find the file `name` in a folder, plain or as `name.gz`.

    Raises:
        MolsliceError: missing folder or file.
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
        MolsliceError: no such file, damaged, or a line of more than `LONGEST` bytes.
    """
    with open_unpacked(path) as (_, file):
        number = 0
        try:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST + 1), b""), start=1):
                if len(line) > LONGEST:
                    raise MolsliceError(
                        f"cannot read {path}: line {number} has more than {LONGEST:,} bytes; perhaps this is "
                        "no text file"
                    )
                if number == 1:
                    line = line.removeprefix(BYTE_ORDER_MARK)
                yield line.removesuffix(b"\n").removesuffix(b"\r")
        except READ_FAULTS as error:
            raise read_error(path, number, read_fault(error)) from error


@contextmanager
def open_unpacked(path: Path) -> Iterator[tuple[IO[bytes], Unpacked]]:
    """A file, and its contents, unpacked where it begins as gzip does, whatever its name.

    Reading the contents may raise any of `READ_FAULTS`; `read_fault` puts them into words.

    Raises:
        MolsliceError: the file is missing or cannot be read.
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
    """Create the error for a file that cannot be read after line `number`."""
    return MolsliceError(f"cannot read {path}, {f'after line {number}' if number else 'line 1'}: {reason}")


def read_fault(error: Exception) -> str:
    """Describe why a file cannot be read."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"damaged gzip: {error}"


def _begins_as_gzip(file: io.BufferedReader, path: Path) -> bool:
    try:
        return file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
    except OSError as error:
        raise MolsliceError(f"cannot read {path}: {read_fault(error)}") from error
