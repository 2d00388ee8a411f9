"""Write rows of a table of predictions as CSV, as an SD file or as an Excel workbook."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from molslice.chem.molblock import sd_record
from molslice.data.molecules.identifiers import find_name_column
from molslice.files.atomic import atomic_file
from molslice.files.tables import open_table
from molslice.inference.columns import distinct_columns
from molslice.inference.tables.sinks import LONE, csv_row_writer, text_stream
from molslice.types import MolsliceError

FORMATS = (".csv", ".sdf", ".xlsx")
MOST_ROWS = 100_000  # of an SD file or a workbook
MOST_COLUMNS = 16_384  # of a workbook, in Excel
CHUNK_ROWS = 256  # between two reports of progress
LONGEST_CELL = 32_767  # characters, in Excel
EXACT_DIGITS = 15  # of a number in Excel
MISSING = "nan"  # a prediction of a failed row
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?(e[-+]\d+)?")  # "007" and the well "1E5" are names

Rows = Iterator[list[str]]


def write_rows(
    source: Path,
    target: Path,
    smiles_column: str,
    rows: Sequence[int] | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> None:
    """Write rows of a table in the format of the ending of `target`, one of `FORMATS`.

    CSV has the cells as they are. An SD file has a structure with coordinates in a plane, the name of the
    molecule and all cells as properties; an unreadable SMILES gives a record without atoms. In a workbook,
    cells that are numbers are numbers, and all others are texts, also those that begin as a formula.

    Args:
        source: The table.
        target: The file to write.
        smiles_column: The column of SMILES.
        rows: Numbers of the rows to write, from 1, in this order; None for all.
        columns: Further columns at the end, with a cell for each row that is written.
        report: Called with the number of rows written so far.

    Raises:
        MolsliceError: A row does not exist, there are too many rows or columns, a column
            has another number of cells, or openpyxl is not installed.
        OSError: The file cannot be written.
    """
    with open_table(source) as table:
        cells = (row for chunk in table.chunks(CHUNK_ROWS, []) for row in chunk.cells)
        chosen = cells if rows is None else _chosen(cells, rows)
        names = [*table.names, *distinct_columns(columns or (), table.names)]
        if columns:
            chosen = _widened(chosen, columns)
        if target.suffix == ".csv":
            _write_csv(target, names, _counted(chosen, report))
            return
        limited = _counted(chosen, report, MOST_ROWS)
        if target.suffix == ".sdf":
            _write_sdf(target, names, limited, smiles_column)
        else:
            _write_workbook(target, names, limited)


def _chosen(cells: Rows, rows: Sequence[int]) -> Rows:
    wanted = set(rows)
    kept = {number: row for number, row in enumerate(cells, start=1) if number in wanted}
    if missing := wanted - kept.keys():
        raise MolsliceError(f"row {min(missing)} is not available")
    return (kept[number] for number in rows)


def _widened(cells: Rows, columns: Mapping[str, Sequence[str]]) -> Rows:
    added = zip(*columns.values(), strict=True)
    try:
        for row, more in zip(cells, added, strict=True):
            yield [*row, *more]
    except ValueError as error:  # of zip
        raise MolsliceError(
            f"the columns {', '.join(columns)} have another number of cells than rows"
        ) from error


def _counted(cells: Rows, report: Callable[[int], None], most: float = math.inf) -> Rows:
    for done, row in enumerate(cells, start=1):
        if done > most:
            raise MolsliceError(f"more than {most:,} rows; write CSV")
        yield row
        if done % CHUNK_ROWS == 0:
            report(done)


def _write_csv(target: Path, names: Sequence[str], cells: Rows) -> None:
    with atomic_file(target) as raw, text_stream(raw) as stream:
        write_row = csv_row_writer(stream)
        write_row(names)
        for row in cells:
            write_row(row)


def _write_sdf(target: Path, names: Sequence[str], cells: Rows, smiles_column: str) -> None:
    name_column = find_name_column(names, smiles_column)
    names = distinct_columns(names, taken=())  # a record has each name once
    with atomic_file(target) as raw, text_stream(raw) as stream:
        for row in cells:
            by_name = {name: cell for name, cell in zip(names, row, strict=True) if cell != MISSING}
            name = "" if name_column is None else by_name.get(name_column, "")
            stream.write(sd_record(by_name.get(smiles_column, ""), name, by_name))


def _write_workbook(target: Path, names: Sequence[str], cells: Rows) -> None:
    try:
        from openpyxl import Workbook
        from openpyxl.cell import WriteOnlyCell
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
    except ImportError as error:
        raise MolsliceError("Excel workbooks need openpyxl: pip install 'molslice[excel]'") from error
    if len(names) > MOST_COLUMNS:  # openpyxl would write a file that Excel does not open
        raise MolsliceError(f"more than {MOST_COLUMNS:,} columns; write CSV")
    book = Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    sheet.freeze_panes = "A2"

    def as_text(text: str) -> Any:  # noqa: ANN401
        escaped = ILLEGAL_CHARACTERS_RE.sub(" ", text.encode(errors=LONE).decode())
        cell = WriteOnlyCell(sheet, escaped[:LONGEST_CELL])
        cell.data_type = "s"  # not a formula or an error, whatever it begins with
        return cell

    try:
        sheet.append([as_text(name) for name in names])
        for row in cells:
            sheet.append([_number(cell) if _is_number(cell) else as_text(cell) for cell in row])
        with atomic_file(target) as raw:
            book.save(raw)
    except BaseException:
        if not sheet.closed:
            sheet.close()
        with suppress(FileNotFoundError):  # openpyxl keeps its temporary file until the process ends
            sheet._writer.cleanup()
        raise


def _is_number(text: str) -> bool:
    """Return whether a cell is a number of which Excel keeps all digits, or stands for none."""
    plain = _NUMBER.fullmatch(text) is not None
    return (
        not text
        or text == MISSING
        or (plain and sum(map(str.isdecimal, text.partition("e")[0])) <= EXACT_DIGITS)
    )


def _number(text: str) -> float | None:
    value = float(text or MISSING)
    return value if math.isfinite(value) else None
