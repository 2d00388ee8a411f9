"""SD files: molecules as connection tables, with properties."""

import re
from collections.abc import Iterator
from pathlib import Path

from molslice.files.lines import READ_FAULTS, Opened, open_unpacked, read_error, read_fault
from molslice.files.tables.base import Row, Table
from molslice.types import MolsliceError

__all__ = ["STRUCTURE", "SdfTable"]

LONGEST = 2**24  # maximum bytes of a record
STRUCTURE, NAME = "structure", "name"
END = b"$$$$"
_PROPERTY = re.compile(r"^>.*?<(.*)>")
Record = tuple[int, list[str]]


class SdfTable(Table):
    """The records of an SD file.

    The first column is the connection table as text, up to `M  END`; the second is the name in the first line
    of the record. The other columns are all properties, in the order in which they first occur. A property
    that a record does not have is an empty cell. The lines of a property are joined by line ends.

    Args:
        path: The file.
        opened: The open file.

    Raises:
        MolsliceError: The file is empty or damaged.
    """

    format = "SDF"

    def __init__(self, path: Path, opened: Opened) -> None:
        super().__init__(path)
        self._opened = opened
        names: dict[str, None] = {STRUCTURE: None, NAME: None}
        empty = True
        with open_unpacked(path) as first:  # all properties, before the first row is written
            for _, lines in _records(path, first):
                empty = False
                names.update(dict.fromkeys(_properties(lines)))
        if empty:
            raise MolsliceError(f"{path} is empty")
        self.names = list(names)
        self._data = _records(path, opened)

    @property
    def position(self) -> int:
        """Number of bytes of the file read so far, for progress bars."""
        return self._opened.position

    def read_rows(self, size: int) -> list[Row]:
        """Read the next rows, at most `size`; an empty list at the end.

        Raises:
            MolsliceError: The file is damaged.
        """
        rows: list[Row] = []
        for number, lines in self._data:
            last = next((place for place, line in enumerate(lines) if line.startswith("M  END")), None)
            end = 0 if last is None else last + 1
            found = {STRUCTURE: "\n".join(lines[:end]), NAME: lines[0].strip(), **_properties(lines)}
            error = "a record without the line 'M  END'" if last is None else None
            rows.append(Row([found.get(name, "") for name in self.names], number, error))
            if len(rows) == size:
                break
        return rows


def _properties(lines: list[str]) -> dict[str, str]:
    """Return the properties of a record; of a name that occurs twice, the last."""
    found: dict[str, str] = {}
    name, values = None, []
    for line in [*lines, ""]:
        match = _PROPERTY.match(line) if name is None else None
        if match is not None:
            name, values = match[1], []
        elif name is not None and line.strip():
            values.append(line)
        elif name is not None:
            found[name], name = "\n".join(values), None
    return found


def _records(path: Path, opened: Opened) -> Iterator[Record]:
    """Yield the line on which each record starts, from 1, and its lines. Blank records are skipped."""
    number, content = 0, opened.content
    start, size, lines = 1, 0, []
    try:
        for number, line in enumerate(iter(lambda: content.readline(LONGEST + 1), b""), start=1):
            size += len(line)
            if size > LONGEST:
                raise MolsliceError(f"{path}, line {start}: a record of more than {LONGEST:,} bytes")
            if not line.startswith(END):
                lines.append(_decode(line))
                continue
            if any(text.strip() for text in lines):
                yield start, lines
            start, size, lines = number + 1, 0, []
    except READ_FAULTS as error:
        raise read_error(path, number, read_fault(error)) from error
    if any(text.strip() for text in lines):  # the last delimiter may be missing
        yield start, lines


def _decode(line: bytes) -> str:
    """Decode a line as UTF-8, or as Latin-1, which older programs write."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        text = line.decode("latin-1")
    return text.rstrip("\r\n")
