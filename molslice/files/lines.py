"""Read files line by line, as text or bytes, plain or compressed; errors name file and line."""

import codecs
import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, AnyStr, cast

from molslice.errors import MolsliceError
from molslice.files.urls import File, Url

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
UTF8 = "utf-8-sig"
STDIN = Path("-")  # standard input in place of a file
COMPRESSED = {  # in other ways, by the first bytes
    "bzip2": re.compile(rb"BZh[1-9]1AY&SY"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "gzip twice": re.compile(GZIP_MAGIC),
}
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # first, because it begins with the mark of UTF-16
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SKIPPED_FRAME = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")  # of Zstandard, before the first one with data
_PEEKED = 16  # bytes
_BUFFER = 2**16  # bytes
LONGEST = 2**28  # maximum bytes of a line; a file of another format may have no line end
READ_FAULTS = (OSError, EOFError, zlib.error)  # errors of reading plain and compressed files


@dataclass(frozen=True, slots=True)
class Opened:
    """An open file.

    Attributes:
        content: Its decompressed content, with `peek`.
        packed: The file as it is on the disk.
    """

    content: IO[bytes]
    packed: IO[bytes]

    @property
    def position(self) -> int:
        """Number of bytes of the file on the disk read so far; 0 for a pipe."""
        return self.packed.tell() if self.packed.seekable() else 0


def is_pipe(file: File) -> bool:
    """Return whether a file is standard input or a pipe, which can be read only once."""
    if file == STDIN:
        return True
    with suppress(OSError, ValueError):  # opening it names the reason
        return isinstance(file, Path) and file.is_fifo()
    return False


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


def read_lines(path: File, encoding: str = "utf-8") -> Iterator[str]:
    r"""Yield the lines of a text file, plain, gzip or Zstandard.

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


def read_byte_lines(path: File) -> Iterator[bytes]:
    r"""Yield the lines of a file, plain, gzip or Zstandard, as bytes.

    Line ends (\n or \r\n) and a byte order mark are removed.

    Raises:
        MolsliceError: The file does not exist or is damaged, or a line has more than `LONGEST` bytes.
    """
    with open_unpacked(path) as opened:
        yield from byte_lines(opened, path, LONGEST)


def byte_lines(opened: Opened, path: File, longest: int) -> Iterator[bytes]:
    """Yield the lines of an open file as `read_byte_lines` does.

    Raises:
        MolsliceError: The file is damaged, or a line has more than `longest` bytes.
    """
    for number, line in _numbered(opened.content.readline, path, longest):
        line = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def text_lines(opened: Opened, path: File, longest: int) -> Iterator[bytes]:
    r"""Yield the lines of an open text file in UTF-8 as `byte_lines` does.

    UTF-16 and UTF-32 are found as `find_encoding` does. A file whose beginning has no \n may have \r as its
    line ends. Bytes that are not UTF-8 are kept.

    Raises:
        MolsliceError: The file is damaged or has another encoding than its beginning says, or a line has more
            than `longest` bytes.
    """
    try:
        beginning = cast("io.BufferedReader", opened.content).peek(_BUFFER)
    except READ_FAULTS as error:
        raise read_error(path, 0, error) from error
    encoding = find_encoding(beginning[:4])
    if encoding == UTF8 and not (b"\r" in beginning and b"\n" not in beginning):
        yield from byte_lines(opened, path, longest)
        return
    keep = "surrogateescape" if encoding == UTF8 else "strict"
    text = io.TextIOWrapper(opened.content, encoding, keep, newline=None)
    try:
        for number, line in _numbered(text.readline, path, longest):
            line = line.removeprefix("\ufeff") if number == 1 else line
            yield line.removesuffix("\n").encode(errors="surrogateescape")
    finally:
        with suppress(ValueError):  # closed before
            text.detach()  # the file is not closed with its text


def _numbered(readline: Callable[[int], AnyStr], path: File, longest: int) -> Iterator[tuple[int, AnyStr]]:
    """Yield the lines of a file with their line ends, and their numbers from 1."""
    number = 0
    try:
        while line := readline(longest + 1):
            number += 1
            if len(line) > longest:
                length = f"line {number} has more than {longest:,} bytes"
                raise MolsliceError(f"cannot read {path}: {length}; the file may not be a text file")
            yield number, line
    except (*READ_FAULTS, UnicodeDecodeError) as error:
        raise read_error(path, number, error) from error


def find_encoding(beginning: bytes) -> str:
    """Find the encoding by a byte order mark, or by the NUL bytes of UTF-16 in the first four bytes."""
    for mark, name in MARKS.items():
        if beginning.startswith(mark):
            return name
    match [byte > 0 for byte in beginning]:
        case [True, False, True, False]:
            return "utf-16-le"
        case [False, True, False, True]:
            return "utf-16-be"
    return UTF8


@contextmanager
def open_unpacked(path: File) -> Iterator[Opened]:
    """Open a file and decompress it if it begins as gzip or Zstandard does, whatever its name.

    Reading the content may raise any of `READ_FAULTS`; `read_error` converts them.

    Args:
        path: The file or its URL; `-` is standard input.

    Raises:
        MolsliceError: The file does not exist or cannot be read.
    """
    if path == STDIN:
        with _unpacked(sys.stdin.buffer, Path("standard input")) as opened:
            yield opened
        return
    try:
        packed = path.open() if isinstance(path, Url) else path.open("rb")
    except FileNotFoundError as error:
        raise MolsliceError(f"no such file: {path}") from error
    except OSError as error:
        raise MolsliceError(f"cannot read {path}: {_reason(error)}") from error
    with packed, _unpacked(packed, path) as opened:
        yield opened


@contextmanager
def _unpacked(packed: IO[bytes], path: File) -> Iterator[Opened]:
    try:
        beginning = cast("io.BufferedReader", packed).peek(_PEEKED)
    except OSError as error:
        raise MolsliceError(f"cannot read {path}: {_reason(error)}") from error
    if beginning.startswith(GZIP_MAGIC):
        with gzip.GzipFile(fileobj=packed) as content:
            try:
                _check_compression(content.peek(_PEEKED), path)
            except READ_FAULTS as error:
                raise read_error(path, 0, error) from error
            yield Opened(cast("IO[bytes]", content), packed)
    elif beginning.startswith(ZSTD_MAGIC) or _SKIPPED_FRAME.match(beginning):
        import pyarrow

        with io.BufferedReader(pyarrow.CompressedInputStream(packed, "zstd"), _BUFFER) as content:
            yield Opened(content, packed)
    else:
        _check_compression(beginning, path)
        yield Opened(packed, packed)


def _check_compression(beginning: bytes, path: File) -> None:
    for name, magic in COMPRESSED.items():
        if magic.match(beginning):
            raise MolsliceError(f"{path} is compressed with {name}; decompress it, or use gzip or Zstandard")


def read_error(path: File, number: int, fault: Exception) -> MolsliceError:
    """Create the error for a file of which `number` lines could be read.

    The fault is one of `READ_FAULTS`, or the error of decoding a file whose beginning names its encoding.
    """
    place = f"after line {number}" if number else "line 1"
    return MolsliceError(f"cannot read {path}, {place}: {_reason(fault)}")


def _reason(fault: Exception) -> str:
    if isinstance(fault, UnicodeDecodeError):
        encoding = fault.encoding.upper().removesuffix("-LE").removesuffix("-BE")
        return f"not {encoding}, as its beginning says: {fault.reason}"
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror
    packed_as = "gzip" if isinstance(fault, gzip.BadGzipFile | EOFError | zlib.error) else "Zstandard"
    return f"damaged {packed_as}: {fault}"
