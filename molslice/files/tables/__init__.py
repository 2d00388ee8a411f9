"""Read tables in several formats by the same rules for training, fitting and prediction.

The rules:

- The ending of the name decides between JSON lines (`.jsonl`, `.ndjson`), Parquet (`.parquet`, `.pq`), SMILES
  on each line (`.smi`, `.smiles`, `.ism`, `.can`), SD files (`.sdf`, `.sd`), Excel workbooks (`.xlsx`,
  `.xlsm`, of which the first visible sheet is read) and separated values (any other ending). The content
  decides everything else. `-` is standard input.
- A file with the first bytes of gzip or Zstandard is decompressed, whatever its name; all its members are
  read.
- The text is UTF-8, or UTF-16 or UTF-32 with a byte order mark. UTF-16 without it is found by its NUL bytes.
  Line ends are LF, CRLF or CR.
- The delimiter is a comma (a tab in `.tsv`) if the header contains one. Otherwise it is the semicolon, tab or
  vertical bar that divides the header and the first rows into the same number of cells.
- A first line such as `sep=;`, by which Excel finds the delimiter, gives the delimiter and is skipped.
- The first line that is not blank contains the column names. Other blank lines are skipped. In a table of one
  column, a blank line is a row with an empty cell, except at the end of the file.
- A row with another number of cells, a NUL character or a quoting error is kept, and so is a line that is
  not a JSON object. Its cells are `Unreadable` with the reason, and the other rows are unaffected. If such a
  row has several lines, only its first line is unreadable; the next row starts on the second.
- Damage to the whole file (compression, encoding, a quote that is never closed) is an error.
- Blanks at the ends of a column name or of a cell have no meaning, whatever their kind (also no-break spaces
  and characters without a width). The output of a prediction keeps them.
- A name that occurs twice in an object or in a record makes it an unreadable row.
- A file with column names and no rows adds no rows. So does an empty file in a format without a line of names
  (JSON lines, SMILES lines, SD files).
- Messages name the row, counted from 1 after the column names, and the line, counted from 1 in the file. Of a
  workbook they name the row as Excel counts it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from molslice.errors import MolsliceError
from molslice.files.lines import STDIN, is_pipe, open_unpacked
from molslice.files.tables.base import SHEETS, Chunk, Row, Table, Unreadable, free_name, place_of, trimmed
from molslice.files.tables.cells import (
    DEFAULT_FORMAT,
    NumberFormat,
    class_words,
    is_missing,
    labels,
    numbers,
)
from molslice.files.tables.delimited import DelimitedTable
from molslice.files.tables.excel import ExcelTable, open_workbook
from molslice.files.tables.json_lines import JsonTable
from molslice.files.tables.parquet import ParquetTable, open_parquet
from molslice.files.tables.sdf import SdfTable
from molslice.files.tables.smiles_lines import SmilesLines
from molslice.files.urls import File

__all__ = [
    "DEFAULT_FORMAT",
    "READER_VERSION",
    "Chunk",
    "NumberFormat",
    "Row",
    "Table",
    "Unreadable",
    "class_words",
    "file_format",
    "free_name",
    "has_delimiter",
    "is_missing",
    "labels",
    "numbers",
    "open_table",
    "place_of",
    "read_columns",
    "trimmed",
]

READER_VERSION = 4  # increased when the rules above change; part of the key of prepared stores
JSON, PARQUET = (".jsonl", ".ndjson"), (".parquet", ".pq")
SMI, SDF = (".smi", ".smiles", ".ism", ".can"), (".sdf", ".sd")
TABS = (".tsv", ".tab")


def file_format(path: File) -> str:
    """Return the ending of a file name without `.gz` or `.zst`, in lower case."""
    name = path.name.lower()
    for ending in (".gz", ".zst"):
        name = name.removesuffix(ending)
    return Path(name).suffix


def has_delimiter(path: File) -> bool:
    """Return whether a file contains separated values, by its name."""
    return file_format(path) not in (*JSON, *PARQUET, *SMI, *SDF, *SHEETS)


@contextmanager
def open_table(path: File, delimiter: str | None = None) -> Iterator[Table]:
    """Open a table.

    Args:
        path: The file or its URL; `-` is standard input with separated values.
        delimiter: The character between cells; None finds it.

    Raises:
        MolsliceError: The file does not exist, is empty or damaged, is a pipe in a format that is read twice,
            or the column names cannot be read.
    """
    ending = file_format(path)
    if ending in (*JSON, *PARQUET, *SDF) and is_pipe(path):
        raise MolsliceError(
            f"cannot read {path}: a pipe can be read only once, and a file {ending} is read twice; write it "
            "to a file"
        )
    if ending in PARQUET:
        with open_parquet(path) as file:
            yield ParquetTable(path, file)
        return
    with open_unpacked(path) as opened:
        path = Path("standard input") if path == STDIN else path
        if ending in JSON:
            yield JsonTable(path, opened)
        elif ending in SMI:
            yield SmilesLines(path, opened)
        elif ending in SDF:
            yield SdfTable(path, opened)
        elif ending in SHEETS:
            with open_workbook(path, opened) as workbook:
                yield ExcelTable(path, opened, workbook)
        else:
            yield DelimitedTable(path, opened, delimiter, "\t" if ending in TABS else ",")


def read_columns(
    path: File, columns: Sequence[str], *, chunk_rows: int = 100_000, delimiter: str | None = None
) -> Iterator[Chunk]:
    """Yield some columns of a table in chunks of at most `chunk_rows` rows; a delimiter of None is found.

    Raises:
        MolsliceError: As in `open_table` and `Table.chunks`, or the table has no rows.
    """
    with open_table(path, delimiter) as table:
        chunk = None
        for chunk in table.chunks(chunk_rows, columns):
            yield chunk
    if chunk is None:
        raise MolsliceError(f"{path} has no rows")
