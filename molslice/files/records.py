"""Read columns of a table in CSV, TSV, JSON lines or Parquet."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from molslice.errors import MolsliceError
from molslice.files.lines import read_lines
from molslice.files.parsing import load_json
from molslice.files.tables import place_of, read_columns
from molslice.files.tables.parquet import read_parquet
from molslice.registry import near_names

SEPARATED = (".csv", ".tsv")
CHOICES = ".csv, .tsv, .jsonl (also compressed with gzip) or .parquet"


@dataclass(frozen=True, slots=True)
class Records:
    """Some columns of a table.

    Attributes:
        path: The file.
        columns: The cells of each column by name. CSV and TSV have text, with `Unreadable` for the cells of
            an unreadable row; the other formats have values of their own types.
        lines: The line number of each row, from 1; empty for Parquet.
    """

    path: Path
    columns: Mapping[str, list[Any]]
    lines: Sequence[int | None] = ()

    def where(self, row: int) -> str:
        """Describe a row by file, row and line for messages. `row` counts from 0."""
        return place_of(self.path, row + 1, self.lines[row] if self.lines else None)

    def texts(self, column: str) -> list[str]:
        """Convert the cells of a column to text; a missing cell (None or NaN) is empty.

        Raises:
            MolsliceError: A cell is not text or a number. The message names its row and column.
        """
        return [self.text_of(value, row, column) for row, value in enumerate(self.columns[column])]

    def text_of(self, value: object, row: int, column: str) -> str:
        """Convert one value to text, as `texts` does; messages name its row (from 0) and column."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        if isinstance(value, str):
            return value
        if isinstance(value, int | float):
            return str(value)
        shown = f"{str(value)[:40]!r} is not a text or number"
        raise MolsliceError(f"{self.where(row)}, column {column!r}: {shown}")


def read_records(path: Path, columns: Sequence[str]) -> Records:
    """Read some columns of a table.

    Args:
        path: The file, with the suffix `.csv`, `.tsv`, `.jsonl` (each also with `.gz`) or `.parquet`.
        columns: Names of the columns, at least one.

    Raises:
        MolsliceError: The suffix is unknown, the file or a column does not exist, or the file is damaged or
            has no rows. The message names file, line and column.
    """
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if ending == ".jsonl":
        records = read_json_lines(path, columns)
    elif ending in SEPARATED:
        chunks = list(read_columns(path, columns))
        cells = {column: [cell for chunk in chunks for cell in chunk[column]] for column in columns}
        records = Records(path, cells, [line for chunk in chunks for line in chunk.lines])
    elif ending == ".parquet":
        batches = list(read_parquet(path, columns))
        records = Records(path, {name: [cell for rows in batches for cell in rows[name]] for name in columns})
    else:
        raise MolsliceError(f"{path} is not a table of a known format: {CHOICES}")
    if not any(records.columns.values()):
        raise MolsliceError(f"{path} has no rows")
    return records


def read_json_lines(path: Path, columns: Sequence[str]) -> Records:
    """Read some keys of the JSON object on each line; blank lines are skipped.

    Raises:
        MolsliceError: The file cannot be read, or a line is not a JSON object or lacks a key. The message
            names file, line and key.
    """
    cells: dict[str, list[Any]] = {column: [] for column in columns}
    lines: list[int] = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            record = load_json(line)
        except (ValueError, RecursionError) as error:
            raise MolsliceError(f"{path}, line {number} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise MolsliceError(f"{path}, line {number} is not an object: {str(record)[:40]!r}")
        for column in columns:
            if column not in record:
                raise MolsliceError(f"{path}, line {number} has no {column!r}; {near_names(column, record)}")
            cells[column].append(record[column])
        lines.append(number)
    return Records(path, cells, lines)
