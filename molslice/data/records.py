"""Columns of a table, whatever its format: CSV, TSV, JSON lines or Parquet."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from molslice.data import table
from molslice.data.lines import read_lines
from molslice.data.parquet import read_parquet
from molslice.registry import near_names
from molslice.types import MolsliceError

__all__ = ["read_json_lines", "read_records", "text_of"]

LONGEST_CELL = 2**31 - 1
DELIMITERS = {".csv": ",", ".tsv": "\t"}
CHOICES = ".csv, .tsv, .jsonl (also compressed with gzip) or .parquet"


def read_records(path: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Some columns of a table: text of CSV and TSV, the values as they are of the other formats.

    Raises:
        MolsliceError: another ending, no such file or column, a file that is damaged or has no rows; names
            file, line and column.
    """
    name = path.name.lower().removesuffix(".gz")
    ending = Path(name).suffix
    if ending in DELIMITERS:
        found = _read_delimited(path, columns, DELIMITERS[ending])
    elif ending == ".jsonl":
        found = read_json_lines(path, columns)
    elif ending == ".parquet":
        found = {column: [] for column in columns}
        for rows in read_parquet(path, columns):
            for column in columns:
                found[column] += rows[column]
    else:
        raise MolsliceError(f"{path} is not one of the tables that are read: {CHOICES}")
    if not found[columns[0]]:
        raise MolsliceError(f"{path} has no rows")
    return found


def _read_delimited(path: Path, columns: Sequence[str], delimiter: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {column: [] for column in columns}
    before = csv.field_size_limit(LONGEST_CELL)  # a document may be longer than the 128 kB that csv expects
    try:
        for chunk in table.read_columns(path, list(columns), delimiter=delimiter):
            for column in columns:
                found[column] += chunk[column]
    finally:
        csv.field_size_limit(before)
    return found


def read_json_lines(path: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Some keys of each line's object; an empty line is no row.

    Raises:
        MolsliceError: a line that is not JSON, is no object, or lacks a key; names file, line and key.
    """
    found: dict[str, list[Any]] = {column: [] for column in columns}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise MolsliceError(f"{path}, line {number} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise MolsliceError(f"{path}, line {number} is no object but {str(record)[:40]!r}")
        for column in columns:
            if column not in record:
                raise MolsliceError(f"{path}, line {number} has no {column!r}; {near_names(column, record)}")
            found[column].append(record[column])
    return found


def text_of(value: object, path: Path, row: int, column: str) -> str:
    """A cell as text; a missing one is empty.

    Raises:
        MolsliceError: a cell that holds several values, or bytes; names file, row and column.
    """
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int | float):
        return str(value)
    raise MolsliceError(
        f"{path}, row {row} (counted from 0), column {column!r}: {str(value)[:40]!r} is no text or number"
    )
