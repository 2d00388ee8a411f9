"""SD files: molecules as connection tables, with properties."""

import re
from collections.abc import Collection, Iterator

from molslice.errors import MolsliceError
from molslice.files.lines import Opened, open_unpacked, text_lines
from molslice.files.tables.base import Row, Table
from molslice.files.urls import File

LONGEST = 2**24  # maximum bytes of a record
STRUCTURE, NAME = "structure", "name"
END = b"$$$$"
_PROPERTY = re.compile(r"^>.*?<(.*)>")
Record = tuple[int, list[str]]


class SdfTable(Table):
    """The records of an SD file. An empty file has no columns.

    The first column is the connection table as text, up to `M  END`; the second is the name in the first line
    of the record. The other columns are all properties, in the order in which they first occur; those named
    `structure` and `name` have the suffix `_property`. A property that a record does not have is an empty
    cell. The lines of a property are joined by line ends. A record with a property twice is an unreadable
    row.
    """

    format = "SDF"

    def __init__(self, path: File, opened: Opened) -> None:
        super().__init__(path, opened)
        names: dict[str, None] = {}
        empty = True
        with open_unpacked(path) as first:  # all properties, before the first row is written
            for _, lines in _records(path, first):
                empty = False
                names.update(dict.fromkeys(name for name, _ in _properties(lines[_end(lines) or 0 :])))
        self._columns = {name: _free(name, names) for name in names}
        self.names = [] if empty else [STRUCTURE, NAME, *self._columns.values()]
        self.rows = (self._row(number, lines) for number, lines in _records(path, opened))

    def _row(self, number: int, lines: list[str]) -> Row:
        end = _end(lines) or 0
        properties = _properties(lines[end:])
        values = dict(properties)
        cells = ["\n".join(lines[:end]), lines[0].strip(), *(values.get(name, "") for name in self._columns)]
        error = None if end else "a record without the line 'M  END'"
        if len(values) < len(properties):
            names = [name for name, _ in properties]
            error = f"the property {next(name for name in names if names.count(name) > 1)!r} occurs twice"
        return Row(cells, number, error)


def _free(name: str, names: Collection[str]) -> str:
    """Return a unique name for the column of a property."""
    column = name
    while column in (STRUCTURE, NAME) or (column != name and column in names):
        column += "_property"
    return column


def _end(lines: list[str]) -> int | None:
    """Return the number of lines up to `M  END`; None without that line."""
    return next((place for place, line in enumerate(lines, start=1) if line.startswith("M  END")), None)


def _properties(lines: list[str]) -> list[tuple[str, str]]:
    """Return names and values of the properties in the lines after `M  END`."""
    properties: list[tuple[str, str]] = []
    name, values = None, []
    for line in [*lines, ""]:
        match = _PROPERTY.match(line) if name is None else None
        if match is not None:
            name, values = match[1], []
        elif name is not None and line.strip():
            values.append(line)
        elif name is not None:
            properties.append((name, "\n".join(values)))
            name = None
    return properties


def _records(path: File, opened: Opened) -> Iterator[Record]:
    """Yield the line on which each record starts, from 1, and its lines. Blank records are skipped."""
    start, size, lines = 1, 0, list[str]()
    for number, line in enumerate(text_lines(opened, path, LONGEST), start=1):
        size += len(line)
        if size > LONGEST:
            raise MolsliceError(f"{path}, line {start}: a record of more than {LONGEST:,} bytes")
        if not line.startswith(END):
            lines.append(_decode(line))
            continue
        if any(text.strip() for text in lines):
            yield start, lines
        start, size, lines = number + 1, 0, []
    if any(text.strip() for text in lines):  # the last delimiter may be missing
        yield start, lines


def _decode(line: bytes) -> str:
    """Decode a line as UTF-8, or as Latin-1, which older programs write."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")
