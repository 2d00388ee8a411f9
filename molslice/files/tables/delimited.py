"""Tables of separated values."""

import csv
import io
import re
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, cast

from molslice.errors import MolsliceError
from molslice.files.lines import READ_FAULTS, Opened, find_encoding, read_error
from molslice.files.tables.base import Row, Table
from molslice.files.urls import File
from molslice.number_text import counted

LONGEST = 2**24  # maximum characters of a row
DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "vertical bar"}
SAMPLED_LINES = 20
OTHER_FORMATS = {
    b"PK\3\4": "a ZIP archive or an Excel workbook; name a workbook .xlsx, or save the sheet as CSV in UTF-8",
    b"\xd0\xcf\x11\xe0": "an Excel workbook; save it as .xlsx, or the sheet as CSV in UTF-8",
}
SEPARATOR_LINE = re.compile(r'"?sep=([^"\r\n])"?\s*', re.IGNORECASE)  # written for and by Excel
NUL = "contains a NUL character"
NOT_CLOSED = "a quote is opened and not closed on this line"
NOT_TEXT = "save the table as UTF-8, for instance with `iconv -f LATIN1 -t UTF-8` (or `-f UTF-16`)"
_CSV_LIMIT = threading.Lock()


@contextmanager
def _long_cells() -> Iterator[None]:
    """Raise the csv module's limit on the length of a cell, which applies to the whole process."""
    with _CSV_LIMIT:
        before = csv.field_size_limit(2 * LONGEST)
        try:
            yield
        finally:
            csv.field_size_limit(before)


class DelimitedTable(Table):
    """A table of separated values.

    Args:
        path: The file, for messages.
        opened: The open file.
        delimiter: The character between cells; None finds it.
        usual: The delimiter that the ending of the file suggests.

    Attributes:
        delimiter: The character between cells.
        encoding: The encoding of the text.

    Raises:
        MolsliceError: The file is empty or a workbook, or the column names cannot be read.
    """

    reading = staticmethod(_long_cells)

    def __init__(self, path: File, opened: Opened, delimiter: str | None, usual: str = ",") -> None:
        super().__init__(path, opened)
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            raise MolsliceError(f"the delimiter must be one character, got {delimiter!r}")
        self._lines = _Lines(path, opened.content)
        sample = self._lines.sample()
        if sample and (written := SEPARATOR_LINE.fullmatch(sample[0])):
            self._lines.skip()
            sample, delimiter = sample[1:], delimiter or written[1]
        self.delimiter = delimiter or _find_delimiter(sample, usual)
        self.encoding = self._lines.encoding.removesuffix("-sig").upper()
        self.format = f"{self.encoding}, delimiter {DELIMITERS.get(self.delimiter, repr(self.delimiter))}"
        with self.reading():
            header = next((row for row in self._rows(width=0) if row.cells), None)
        if header is None:
            raise MolsliceError(f"{path} is empty")
        if header.error is not None:
            hint = f"; {NOT_TEXT}" if header.error == NUL else ""
            raise MolsliceError(
                f"{path}, line {header.line}: cannot read the column names: {header.error}{hint}"
            )
        self.names = header.cells
        self.rows = self._whole_rows()

    def _whole_rows(self) -> Iterator[Row]:
        """Yield the rows, each as wide as the header, with the blank lines that are rows."""
        width, blank = len(self.names), []
        for row in self._rows(width):
            if not row.cells:
                if width == 1:
                    blank.append(row._replace(cells=[""]))
                continue
            yield from blank
            blank.clear()
            yield row

    def _rows(self, width: int) -> Iterator[Row]:
        """Yield the rows as in the file, blank lines without cells. `width` 0 allows any number of cells."""
        lines = self._lines
        reader = csv.reader(lines, strict=True, delimiter=self.delimiter)
        while True:
            error, start = None, lines.start_row()
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as fault:
                if lines.ended:
                    raise MolsliceError(f"{self.path}, line {start}: a quote is never closed") from fault
                error = NOT_CLOSED if len(lines.row) > 1 else str(fault)
                lines.put_back()  # a stray quote must not take the rows up to the next quote with it
                cells, _ = self._parse_alone(lines.row[0])
            if len(lines.row) > 1 and width and len(cells) != width:
                # the last line may begin with the end of a quoted cell, which must not open another one
                for number, line in enumerate(lines.row, start):
                    yield self._checked_row(*self._parse_alone(line), [line], number, width)
                continue
            yield self._checked_row(cells, error, lines.row, start, width)

    def _checked_row(
        self, cells: list[str], error: str | None, lines: Sequence[str], number: int, width: int
    ) -> Row:
        """Return the row of some lines, a blank one without cells."""
        if len(cells) == 1 and lines[0].isspace():
            cells = []
        elif "\0" in "".join(lines):
            error = NUL
        elif width and cells and len(cells) != width and error is None:
            error = f"{counted(len(cells), 'cell')}, the header has {width}"
        return Row(cells, number, error)

    def _parse_alone(self, line: str) -> tuple[list[str], str | None]:
        """Return the cells of a line and what is wrong with its quotes."""
        try:
            return next(csv.reader([line], strict=True, delimiter=self.delimiter)), None
        except csv.Error:
            return next(csv.reader([line], delimiter=self.delimiter)), NOT_CLOSED


def _find_delimiter(sample: Sequence[str], usual: str) -> str:
    """Find the delimiter of a table by its first lines.

    The usual delimiter is taken if the header contains it. Otherwise another one is taken if it divides the
    header and all sampled rows into the same number of cells, and no other one does.
    """
    lines = [line for line in sample if not line.isspace()]
    if not lines or usual in lines[0]:
        return usual
    fitting = [delimiter for delimiter in DELIMITERS if delimiter in lines[0] and _divides(lines, delimiter)]
    return fitting[0] if len(fitting) == 1 else usual


def _divides(lines: Sequence[str], delimiter: str) -> bool:
    try:
        return len({len(cells) for cells in csv.reader(lines, delimiter=delimiter)}) == 1
    except csv.Error:
        return False


class _Lines:
    """The lines of a file with their line ends, decoded one by one, so that an error can name its line."""

    def __init__(self, path: File, content: IO[bytes]) -> None:
        self.path, self.number, self.ended = path, 0, False
        self.row: list[str] = []  # the lines of the current row
        self._size = 0
        self._ahead: deque[str | MolsliceError] = deque()
        self._decoded, self._again = 0, 0  # characters that were decoded, and that were put back
        try:
            beginning = cast("io.BufferedReader", content).peek(4)[:4]
        except READ_FAULTS as error:
            raise read_error(path, 0, error) from error
        if beginning in OTHER_FORMATS:
            raise MolsliceError(f"{path} is {OTHER_FORMATS[beginning]}")
        self.encoding = find_encoding(beginning)
        errors = "surrogateescape" if self.encoding == "utf-8-sig" else "strict"
        self._text = io.TextIOWrapper(content, self.encoding, errors, newline="")

    def sample(self) -> list[str]:
        """Return the first lines. They are read again by the iteration, which raises their errors."""
        lines = []
        while len(lines) < SAMPLED_LINES:
            try:
                line = self._decode()
            except MolsliceError as error:
                self._ahead.append(error)
                break
            if not line:
                break
            self._ahead.append(line)
            lines.append(line)
        return lines

    def skip(self) -> None:
        """Skip the first line of the sample."""
        self._ahead.popleft()
        self.number += 1

    def start_row(self) -> int:
        """Discard the lines of the previous row and return the number of the next line."""
        self.row.clear()
        self._size = 0
        return self.number + 1

    def put_back(self) -> None:
        """Give the lines of the row after its first to the next row.

        Raises:
            MolsliceError: Lines are put back again and again, which would take quadratic time.
        """
        self.number = start = self.number - len(self.row) + 1
        self._again += sum(map(len, self.row[1:]))
        if self._again > 4 * LONGEST + self._decoded:
            raise MolsliceError(f"{self.path}, line {start}: too many quotes from this line on do not match")
        self._ahead.extendleft(reversed(self.row[1:]))
        del self.row[1:]

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
            self.row.append(line)
            yield line
        self.ended = True

    def _read(self) -> str:
        if not self._ahead:
            return self._decode()
        line = self._ahead.popleft()
        if isinstance(line, MolsliceError):
            raise line
        return line

    def _decode(self) -> str:
        try:
            line = self._text.readline(LONGEST + 1)
        except (*READ_FAULTS, UnicodeDecodeError) as error:
            raise read_error(self.path, self.number + len(self._ahead), error) from error
        self._decoded += len(line)
        return line

    def _check_encoding(self, line: str) -> None:
        try:
            line.encode()
        except UnicodeEncodeError as error:
            byte = ord(line[error.start]) - 0xDC00
            raise MolsliceError(
                f"{self.path}, line {self.number}: byte 0x{byte:02x} is not UTF-8; {NOT_TEXT}"
            ) from error
