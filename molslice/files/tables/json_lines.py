"""Tables of JSON lines: one object on each line."""

import json
import math
from collections.abc import Iterator
from typing import Any

from molslice.errors import MolsliceError
from molslice.files.lines import Opened, open_unpacked, text_lines
from molslice.files.parsing import load_json
from molslice.files.tables.base import Row, Table
from molslice.files.urls import File

LONGEST = 2**24  # maximum bytes of a line


class _Value(str):
    """A cell with the JSON value that it was made from."""

    value: Any


def _as_cell(value: Any, text: str) -> _Value:  # noqa: ANN401
    cell = _Value(text)
    cell.value = value
    return cell


NULL = _as_cell(None, "")


def as_text(value: Any) -> str:  # noqa: ANN401
    """Convert a JSON value to a cell: text as it is, null to an empty text, everything else to JSON."""
    if isinstance(value, str):
        return value
    return NULL if value is None else _as_cell(value, json.dumps(value, ensure_ascii=False))


def as_value(cell: str) -> Any:  # noqa: ANN401
    """Return the JSON value of a cell from `as_text`; the text itself for any other cell."""
    return cell.value if isinstance(cell, _Value) else str(cell)


class JsonTable(Table):
    """JSON lines. The columns are the keys of all objects, in the order in which they first occur.

    A line that is not an object, or in which a name occurs twice, is an unreadable row; blank lines are
    skipped. A missing key is an empty cell, and so is `NaN`, which JSON does not have; `Infinity` is a text,
    and so is a number that is too large, such as `1e400`. An empty file has no columns.

    Raises:
        MolsliceError: The file is damaged, or has lines and no object.
    """

    format = "JSON lines"

    def __init__(self, path: File, opened: Opened) -> None:
        super().__init__(path, opened)
        with open_unpacked(path) as first:  # all keys, before the first row is written
            keys: dict[str, None] = {}
            empty, reason = True, ""
            for number, line in _lines(path, first):
                empty = False
                if isinstance(record := _parse(line), dict):
                    keys.update(dict.fromkeys(record))
                else:
                    reason = reason or f"; line {number}: {record}"
        if not keys and not empty:
            raise MolsliceError(f"{path} has no line with a JSON object{reason}")
        self.names = list(keys)
        self.rows = (self._row(number, _parse(line)) for number, line in _lines(path, opened))

    def _row(self, number: int, record: dict[str, Any] | str) -> Row:
        if isinstance(record, str):
            return Row([NULL] * len(self.names), number, record)
        return Row([as_text(record.get(name)) for name in self.names], number)


def _lines(path: File, opened: Opened) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    numbered = enumerate(text_lines(opened, path, LONGEST), start=1)
    return ((number, line) for number, line in numbered if line.strip())


def _constant(name: str) -> str | None:
    return None if name == "NaN" else name


def _number(text: str) -> float | str:
    return value if math.isfinite(value := float(text)) else text


def _parse(line: bytes) -> dict[str, Any] | str:
    """Return the object of a line, or the reason why there is none."""
    try:
        value = load_json(line, _constant, _number)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    return value if isinstance(value, dict) else "not a JSON object"
