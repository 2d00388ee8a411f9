"""Tables of JSON lines: one object on each line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from molslice.files.lines import BYTE_ORDER_MARK, READ_FAULTS, Opened, open_unpacked, read_error, read_fault
from molslice.files.tables.base import Row, Table
from molslice.types import MolsliceError

__all__ = ["JsonTable", "as_text", "as_value"]

LONGEST = 2**24  # maximum bytes of a line


class _Value(str):
    """A cell with the JSON value that it was made from."""

    value: Any


def as_text(value: Any) -> str:  # noqa: ANN401
    """Convert a JSON value to a cell: text as it is, null to an empty text, everything else to JSON."""
    if isinstance(value, str):
        return value
    cell = _Value("" if value is None else json.dumps(value, ensure_ascii=False))
    cell.value = value
    return cell


def as_value(cell: str) -> Any:  # noqa: ANN401
    """Return the JSON value of a cell from `as_text`; the text itself for any other cell."""
    return cell.value if isinstance(cell, _Value) else str(cell)


class JsonTable(Table):
    """JSON lines. The columns are the keys of all objects, in the order in which they first occur.

    A line that is not an object is an unreadable row; blank lines are skipped. A missing key is an empty
    cell.

    Args:
        path: The file.
        opened: The open file.

    Raises:
        MolsliceError: The file is empty, is damaged, or has no object.
    """

    format = "JSON lines"

    def __init__(self, path: Path, opened: Opened) -> None:
        super().__init__(path)
        self._opened = opened
        with open_unpacked(path) as first:  # all keys, before the first row is written
            keys: dict[str, None] = {}
            for _, line in _lines(path, first):
                if isinstance(record := _parse(line), dict):
                    keys.update(dict.fromkeys(record))
        if not keys:
            raise MolsliceError(f"{path} has no line with a JSON object")
        self.names = list(keys)
        self._data = _lines(path, opened)

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
        for number, line in self._data:
            record = _parse(line)
            if isinstance(record, dict):
                rows.append(Row([as_text(record.get(name)) for name in self.names], number))
            else:
                rows.append(Row([], number, record))
            if len(rows) == size:
                break
        return rows


def _lines(path: Path, opened: Opened) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    number, content = 0, opened.content
    try:
        for number, line in enumerate(iter(lambda: content.readline(LONGEST + 1), b""), start=1):
            if len(line) > LONGEST:
                raise MolsliceError(f"{path}, line {number}: a line of more than {LONGEST:,} bytes")
            text = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
            if text.strip():
                yield number, text
    except READ_FAULTS as error:
        raise read_error(path, number, read_fault(error)) from error


def _parse(line: bytes) -> dict[str, Any] | str:
    """Return the object of a line, or the reason why there is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    return found if isinstance(found, dict) else "not a JSON object"
