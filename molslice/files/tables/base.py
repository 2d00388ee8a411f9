"""The interface of a table: named columns, and rows of text that are read in chunks."""

import itertools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from molslice.errors import MolsliceError
from molslice.files.lines import Opened
from molslice.files.urls import File
from molslice.registry import near_names

SHEETS = (".xlsx", ".xlsm")  # endings of Excel workbooks
INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"  # zero-width characters, which Unicode does not count as blanks


class MissingColumnError(MolsliceError):
    """A table has no column of a name."""

    def __init__(self, message: str, column: str = "") -> None:
        super().__init__(message)
        self.column = column


class Unreadable(str):
    """A cell of an unreadable row: an empty text with the reason.

    Attributes:
        reason: Why the row cannot be read.
        written: What the cell says, if that can be read.
    """

    reason: str
    written: str

    def __new__(cls, reason: str, written: str = "") -> Self:
        """Create an empty text with a reason."""
        cell = super().__new__(cls)
        cell.reason, cell.written = reason, written
        return cell

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (self.reason, self.written)


def trimmed(text: str) -> str:
    """Remove blanks from both ends, also no-break spaces and characters without a width."""
    before, text = "", text.strip()
    while text != before and not text.isascii():  # both kinds may alternate
        before, text = text, text.strip(INVISIBLE).strip()
    return text


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name for a new column: `name`, with as many underscores after it as make it new."""
    while name in taken:
        name += "_"
    return name


def place_of(path: File, row: int, line: int | None = None) -> str:
    """Describe a row for messages.

    Args:
        path: The file.
        row: The row, from 1 after the column names.
        line: The line, from 1 in the file; None for a format without lines. Of a workbook, the row in Excel.
    """
    if line is not None and path.name.lower().endswith(SHEETS):
        return f"{path}, row {line}"
    return f"{path}, row {row}" if line is None else f"{path}, row {row} (line {line})"


class Row(NamedTuple):
    """One row.

    Attributes:
        cells: One text for each column; of an unreadable row as far as known, else empty.
        line: The line on which the row starts, from 1; None for a format without lines.
        error: Why the row cannot be read, or None.
    """

    cells: list[str]
    line: int | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of a table.

    Attributes:
        path: The file.
        first: Number of the first row, from 1.
        columns: Index of each requested column by name.
        cells: The cells of each row, padded or cut to the number of columns if the row is unreadable.
        lines: The line on which each row starts, from 1; None for a format without lines.
        errors: Reasons of the unreadable rows by index in this chunk, from 0.
    """

    path: File
    first: int
    columns: Mapping[str, int]
    cells: list[list[str]] = field(default_factory=list)
    lines: list[int | None] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, column: str) -> list[str]:
        """Return the cells of a requested column; cells of unreadable rows are `Unreadable`.

        A text with other characters than ASCII is trimmed. A connection table is not: its first line may be
        blank.
        """
        index = self.columns[column]
        texts = [cell if (cell := row[index]).isascii() else _visible(cell) for row in self.cells]
        for place, reason in self.errors.items():
            texts[place] = Unreadable(reason)
        return texts

    def where(self, place: int) -> str:
        """Describe the row at index `place` of this chunk by file, row and line for messages."""
        return place_of(self.path, self.first + place, self.lines[place])


def _visible(cell: str) -> str:
    return trimmed(cell) if type(cell) is str else cell


class Table:
    """An open table. A subclass reads one format.

    Args:
        path: The file, for messages.
        opened: The open file; None if the rows are read in another way.

    Attributes:
        path: The file, for messages.
        opened: The open file.
        names: The column names as in the file; they may repeat or be empty.
        format: What was found about the format, for messages.
        schema: pyarrow's schema of a Parquet file; None for other formats.
        rows: The rows that are not read yet.
        reading: The context in which rows are read.
    """

    path: File
    names: list[str]
    format: str
    schema: Any = None
    rows: Iterator[Row]
    reading: Callable[[], AbstractContextManager[object]] = nullcontext

    def __init__(self, path: File, opened: Opened | None = None) -> None:
        self.path, self.opened = path, opened

    @property
    def position(self) -> int:
        """Number of bytes of the file read so far, for progress bars."""
        return 0 if self.opened is None else self.opened.position

    def read_rows(self, size: int) -> list[Row]:
        """Read the next rows, at most `size`; an empty list at the end.

        Raises:
            MolsliceError: The file is damaged.
        """
        with self.reading():
            return list(itertools.islice(self.rows, size))

    def peek(self, size: int) -> list[Row]:
        """Read the next rows as `read_rows` does, and keep them for `chunks`."""
        rows = self.read_rows(size)
        self.rows = itertools.chain(rows, self.rows)
        return rows

    def find(self, name: str) -> int:
        """Return the index of a column by its exact name, or else by its name without blanks at its ends.

        Raises:
            MissingColumnError: The column is missing.
            MolsliceError: The column occurs more than once.
        """
        stripped = [trimmed(column) for column in self.names]
        places = [index for index, column in enumerate(self.names) if column == name]
        places = places or [index for index, column in enumerate(stripped) if column == trimmed(name)]
        if len(places) == 1:
            return places[0]
        if places:
            raise MolsliceError(f"{self.path} has {len(places)} columns named {name!r}")
        raise MissingColumnError(
            f"{self.path} has no column {name!r}; {near_names(name, set(stripped))}", name
        )

    def chunks(self, size: int, columns: Sequence[str]) -> Iterator[Chunk]:
        """Yield all rows with some columns, in chunks of at most `size` rows; nothing without rows.

        Raises:
            MolsliceError: A column is missing or not unique (raised by the call itself), or the file is
                damaged (raised by the iteration).
        """
        return self._chunks(size, {column: self.find(column) for column in columns})

    def _chunks(self, size: int, columns: Mapping[str, int]) -> Iterator[Chunk]:
        first, width = 1, len(self.names)
        while rows := self.read_rows(size):
            chunk = Chunk(self.path, first, columns)
            for cells, line, error in rows:
                if error is not None:
                    chunk.errors[len(chunk)] = error
                    cells = (cells + [""] * width)[:width]
                chunk.cells.append(cells)
                chunk.lines.append(line)
            yield chunk
            first += len(chunk)
