"""Read tables of separated values by the same rules for training and prediction.

The rules:

- A file with the first bytes of gzip is decompressed, whatever its name; all its members are read.
- The text is UTF-8, or UTF-16 or UTF-32 with a byte order mark. Line ends are LF, CRLF or CR.
- The first line that is not blank contains the column names. Other blank lines are skipped. In a table of one
  column, a blank line is a row with an empty cell, except at the end of the file.
- A row with another number of cells, a NUL character or a quoting error is kept. Its cells are `Unreadable`
  with the reason, and the other rows are unaffected.
- Damage to the whole file (gzip, encoding, a quote that is never closed) is an error.
- Messages name the row, counted from 1 after the column names, and the line, counted from 1 in the file.
"""

import codecs
import csv
import io
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, Self, cast

import numpy as np
import pandas as pd

from molslice.files.lines import READ_FAULTS, Unpacked, open_unpacked, read_error, read_fault
from molslice.registry import near_names
from molslice.types import MolsliceError

__all__ = ["Chunk", "Table", "Unreadable", "labels", "numbers", "open_table", "place_of", "read_columns"]

READER_VERSION = 2  # increased when the rules above change; part of the key of prepared stores
LONGEST = 2**24  # maximum characters of a row
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # first, because it begins with the mark of UTF-16
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
NUL = "contains a NUL character"
NOT_TEXT = "save the table as UTF-8, for instance with `iconv -f LATIN1 -t UTF-8` (or `-f UTF-16`)"
MISSING = ("", "nan", "na", "n/a", "null", "none")
TRUTH = {"true": "1", "false": "0"}
_CSV_LIMIT = threading.Lock()


class Unreadable(str):
    """A cell of an unreadable row: an empty text with the reason.

    Attributes:
        reason: Why the row cannot be read.
    """

    reason: str

    def __new__(cls, reason: str) -> Self:
        """Create an empty text with a reason."""
        cell = super().__new__(cls)
        cell.reason = reason
        return cell

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.reason,)


def place_of(path: Path, row: int, line: int | None = None) -> str:
    """Describe a row for messages.

    Args:
        path: The file.
        row: The row, from 1 after the column names.
        line: The line, from 1 in the file; None for a format without lines.
    """
    return f"{path}, row {row}" if line is None else f"{path}, row {row} (line {line})"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of a table.

    Attributes:
        path: The file.
        first: Number of the first row, from 1.
        columns: Index of each requested column by name.
        cells: All cells of each row. Those of an unreadable row are padded or cut to the number of columns.
        lines: The line on which each row starts, from 1.
        errors: Reasons of the unreadable rows by index in this chunk, from 0.
    """

    path: Path
    first: int
    columns: Mapping[str, int]
    cells: list[list[str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, column: str) -> list[str]:
        """Return the cells of a requested column; those of unreadable rows are `Unreadable`."""
        index = self.columns[column]
        texts = [row[index] for row in self.cells]
        for place, reason in self.errors.items():
            texts[place] = Unreadable(reason)
        return texts

    def where(self, place: int) -> str:
        """Describe the row at index `place` of this chunk by file, row and line for messages."""
        return place_of(self.path, self.first + place, self.lines[place])


class _Row(NamedTuple):
    cells: list[str]
    line: int
    error: str | None


class Table:
    """An open table.

    Args:
        path: The file, for messages.
        packed: The file as it is on the disk, for `position`.
        unpacked: Its decompressed contents.
        delimiter: The character between cells.

    Attributes:
        path: The file.
        names: The column names as in the file; they may repeat or be empty.

    Raises:
        MolsliceError: The file is empty, or the column names cannot be read.
    """

    def __init__(self, path: Path, packed: IO[bytes], unpacked: Unpacked, delimiter: str) -> None:
        self.path, self._packed = path, packed
        self._lines, self._delimiter = _Lines(path, unpacked), delimiter
        with _long_cells():
            header = next((row for row in self._rows(width=0) if row.cells), None)
        if header is None:
            raise MolsliceError(f"{path} is empty")
        if header.error is not None:
            hint = f"; {NOT_TEXT}" if header.error == NUL else ""
            raise MolsliceError(
                f"{path}, line {header.line}: cannot read the column names: {header.error}{hint}"
            )
        self.names = header.cells

    @property
    def position(self) -> int:
        """Number of bytes of the file read so far, for progress bars."""
        return self._packed.tell()

    def find(self, name: str) -> int:
        """Find a column by its exact name, or else by its name without surrounding blanks.

        Returns:
            The index of the column.

        Raises:
            MolsliceError: The column is missing or occurs more than once.
        """
        stripped = [column.strip() for column in self.names]
        found = [index for index, column in enumerate(self.names) if column == name]
        found = found or [index for index, column in enumerate(stripped) if column == name.strip()]
        if len(found) == 1:
            return found[0]
        if found:
            raise MolsliceError(f"{self.path} has {len(found)} columns named {name!r}")
        raise MolsliceError(f"{self.path} has no column {name!r}; {near_names(name, set(stripped))}")

    def chunks(self, size: int, columns: Sequence[str]) -> Iterator[Chunk]:
        """Yield all rows in chunks.

        Args:
            size: Maximum number of rows of a chunk.
            columns: Names of the requested columns.

        Raises:
            MolsliceError: A column is missing or not unique (raised by the call itself), or the file is
                damaged or has no rows (raised by the iteration).
        """
        return self._chunks(size, {column: self.find(column) for column in columns})

    def _chunks(self, size: int, columns: Mapping[str, int]) -> Iterator[Chunk]:
        rows, first = self._whole_rows(), 1
        while True:
            chunk = Chunk(self.path, first, columns)
            with _long_cells():
                for cells, line, error in itertools.islice(rows, size):
                    if error is not None:
                        chunk.errors[len(chunk)] = error
                    chunk.cells.append(cells)
                    chunk.lines.append(line)
            if not len(chunk):
                break
            yield chunk
            first += len(chunk)
        if first == 1:
            raise MolsliceError(f"{self.path} has a header and no rows")

    def _whole_rows(self) -> Iterator[_Row]:
        """Yield the rows, each as wide as the header, with the blank lines that are rows."""
        width, blank = len(self.names), []
        for row in self._rows(width):
            if not row.cells:
                if width == 1:
                    blank.append(row._replace(cells=[""]))
                continue
            yield from blank
            blank.clear()
            yield row._replace(cells=(row.cells + [""] * width)[:width]) if row.error else row

    def _rows(self, width: int) -> Iterator[_Row]:
        """Yield the rows as in the file, blank lines without cells. `width` 0 allows any number of cells."""
        lines = self._lines
        reader = csv.reader(lines, strict=True, delimiter=self._delimiter)
        while True:
            error, start = None, lines.start_row()
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as fault:
                if lines.ended:
                    raise MolsliceError(f"{self.path}, line {start}: a quote is never closed") from fault
                cells, error = next(csv.reader(lines.row, delimiter=self._delimiter)), str(fault)
            if len(cells) == 1 and lines.row[0].isspace():
                cells = []
            elif lines.has_nul:
                error = NUL
            elif width and cells and len(cells) != width and error is None:
                error = f"{len(cells)} cell{'s' * (len(cells) > 1)}, the header has {width}"
            yield _Row(cells, start, error)


class _Lines:
    """The lines of a file with their line ends, decoded one by one, so that an error can name its line."""

    def __init__(self, path: Path, unpacked: Unpacked) -> None:
        self.path, self.number, self.ended = path, 0, False
        self.row: list[str] = []  # the lines of the current row
        self.has_nul, self._size = False, 0
        try:
            beginning = unpacked.peek(4)[:4]
        except READ_FAULTS as error:
            raise read_error(path, 0, read_fault(error)) from error
        self.encoding = next(
            (name for mark, name in MARKS.items() if beginning.startswith(mark)), "utf-8-sig"
        )
        errors = "surrogateescape" if self.encoding == "utf-8-sig" else "strict"
        self._text = io.TextIOWrapper(cast("IO[bytes]", unpacked), self.encoding, errors, newline="")

    def start_row(self) -> int:
        """Discard the lines of the previous row and return the number of the next line."""
        self.row.clear()
        self.has_nul, self._size = False, 0
        return self.number + 1

    def __iter__(self) -> Iterator[str]:
        for line in iter(self._read, ""):
            self.number += 1
            self._size += len(line)
            if self._size > LONGEST:
                start = self.number - len(self.row)
                reason = f"a row of more than {LONGEST:,} characters; perhaps a quote is never closed"
                raise MolsliceError(f"{self.path}, line {start}: {reason}")
            if not line.isascii():
                self._check_encoding(line)
            self.has_nul |= "\0" in line
            self.row.append(line)
            yield line
        self.ended = True

    def _read(self) -> str:
        try:
            return self._text.readline(LONGEST + 1)
        except UnicodeDecodeError as error:
            reason = f"not {self.encoding.upper()}, as the byte order mark says: {error.reason}"
        except READ_FAULTS as error:
            reason = read_fault(error)
        raise read_error(self.path, self.number, reason)

    def _check_encoding(self, line: str) -> None:
        try:
            line.encode()
        except UnicodeEncodeError as error:
            byte = ord(line[error.start]) - 0xDC00
            raise MolsliceError(
                f"{self.path}, line {self.number}: byte 0x{byte:02x} is not UTF-8; {NOT_TEXT}"
            ) from error


@contextmanager
def open_table(path: Path, delimiter: str = ",") -> Iterator[Table]:
    """Open a table, plain or gzip.

    Raises:
        MolsliceError: The file does not exist, is empty or damaged, or the column names cannot be read.
    """
    with open_unpacked(path) as (packed, unpacked):
        yield Table(path, packed, unpacked, delimiter)


def read_columns(
    path: Path, columns: Sequence[str], *, chunk_rows: int = 100_000, delimiter: str = ","
) -> Iterator[Chunk]:
    """Yield some columns of a table in chunks.

    Args:
        path: The file, plain or gzip.
        columns: Names of the columns.
        chunk_rows: Maximum number of rows of a chunk.
        delimiter: The character between cells.

    Raises:
        MolsliceError: As in `open_table` and `Table.chunks`.
    """
    with open_table(path, delimiter) as table:
        yield from table.chunks(chunk_rows, columns)


def numbers(texts: Sequence[str], column: str, where: Callable[[int], str]) -> np.ndarray:
    """Convert cells to numbers. An empty cell and `nan`, `na`, `n/a`, `null` or `none` are NaN.

    Args:
        texts: The cells.
        column: Name of their column, for messages.
        where: Describes the row of a cell by its index, for messages.

    Returns:
        The numbers, float64 [len(texts)].

    Raises:
        MolsliceError: A cell is not a number, is infinite, or exceeds the range of float32. The message names
            its row, its column and its text.
    """
    text = pd.Series(texts, dtype=object).str.strip()
    missing = text.str.lower().isin(MISSING).to_numpy()
    wide = np.array(pd.to_numeric(text.where(~missing, None), errors="coerce"), dtype=np.float64)
    for wrong, complaint in (
        (np.isnan(wide) & ~missing, "is not a number"),
        (np.isinf(wide), "is infinite; leave the cell empty where the target is unknown"),
        (np.abs(wide) > np.finfo(np.float32).max, "is too large for 32-bit floating point"),
    ):
        if wrong.any():
            place = int(wrong.argmax())
            raise _complaint(where(place), column, texts[place], complaint)
    return wide


def labels(texts: Sequence[str], column: str, where: Callable[[int], str]) -> np.ndarray:
    """Convert cells to 0 and 1, also from `false` and `true`. Missing cells as in `numbers` are NaN.

    Args:
        texts: The cells.
        column: Name of their column, for messages.
        where: Describes the row of a cell by its index, for messages.

    Returns:
        The labels, float32 [len(texts)].

    Raises:
        MolsliceError: A cell has any other text. The message names its row, its column and its text.
    """
    words = [TRUTH.get(text.strip().lower(), text) for text in texts]
    values = numbers(words, column, where)
    wrong = ~np.isin(values, (0.0, 1.0)) & ~np.isnan(values)
    if wrong.any():
        place = int(wrong.argmax())
        raise _complaint(where(place), column, texts[place], "is neither 0 nor 1")
    return values.astype(np.float32)


def _complaint(place: str, column: str, text: str, complaint: str) -> MolsliceError:
    return MolsliceError(f"{place}, column {column!r}: {text!r} {complaint}")


@contextmanager
def _long_cells() -> Iterator[None]:
    """Raise the csv module's limit on the length of a cell, which applies to the whole process."""
    with _CSV_LIMIT:
        before = csv.field_size_limit(2 * LONGEST)
        try:
            yield
        finally:
            csv.field_size_limit(before)
