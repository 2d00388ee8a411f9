"""Excel workbooks, read by openpyxl, which the extra `excel` installs."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from typing import Any
from zipfile import BadZipFile, ZipFile

from molslice.errors import MolsliceError
from molslice.files.lines import Opened
from molslice.files.tables.base import Row, Table
from molslice.files.urls import File

OLD = b"\xd0\xcf\x11\xe0"  # of .xls, and of any workbook with a password
LARGEST = 2**32  # bytes of the unpacked workbook
NOT_AVAILABLE = "#N/A"
MIDNIGHT = time()


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore warnings about parts of a sheet that are no cells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def open_workbook(path: File, opened: Opened) -> Iterator[Any]:
    """Open a workbook for reading, with the values of formulas that Excel has stored last.

    Raises:
        MolsliceError: openpyxl is not installed, or the file is damaged, has a password, or is too large.
    """
    try:
        import openpyxl
    except ImportError as error:
        raise MolsliceError(
            f"cannot read {path}: Excel workbooks need openpyxl: pip install 'molslice[excel]'; or save the "
            "sheet as CSV in UTF-8"
        ) from error
    try:
        content = opened.content.read()
        if content.startswith(OLD):
            raise MolsliceError(
                f"cannot read {path}: it has a password, or is a workbook of Excel 2003 or older; save it "
                "without a password as .xlsx"
            )
        if sum(member.file_size for member in ZipFile(io.BytesIO(content)).infolist()) > LARGEST:
            raise MolsliceError(f"cannot read {path}: it has more than {LARGEST:,} bytes when unpacked")
        with _quiet():
            workbook = openpyxl.load_workbook(
                io.BytesIO(content), read_only=True, data_only=True, keep_links=False
            )
    except MolsliceError:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged file raises errors of many kinds
        raise _damage(path, error) from error
    try:
        yield workbook
    finally:
        workbook.close()


class ExcelTable(Table):
    """The first visible sheet of a workbook.

    The first row with a cell has the column names. Rows without a cell are skipped. Numbers, dates and truth
    values become text; the error `#N/A` is an empty cell. Of merged cells, only the first has a value. The
    line of a row is its number in Excel.

    Raises:
        MolsliceError: The file is damaged, or has no sheet or an empty one.
    """

    reading = staticmethod(_quiet)

    def __init__(self, path: File, opened: Opened, workbook: Any) -> None:  # noqa: ANN401
        super().__init__(path, opened)
        if not workbook.worksheets:
            raise MolsliceError(f"{path} has no sheet with cells")
        sheets = [sheet for sheet in workbook.worksheets if sheet.sheet_state == "visible"]
        self._sheet = sheet = (sheets or workbook.worksheets)[0]
        titles = ", ".join(repr(other.title) for other in workbook.worksheets if other is not sheet)
        self.format = f"Excel, sheet {sheet.title!r}" + (f"; not read: {titles}" if titles else "")
        sheet.reset_dimensions()  # some programs write wrong ones
        filled = self._filled_rows()
        with self.reading():
            header = next(filled, None)
        if header is None:
            raise MolsliceError(f"{path}, sheet {sheet.title!r} is empty")
        self.names = header.cells
        self.rows = map(self._fitted, filled)

    def _filled_rows(self) -> Iterator[Row]:
        """Yield the rows with a cell, without the empty cells at their ends, and with their numbers."""
        try:
            for number, values in enumerate(self._sheet.iter_rows(values_only=True), start=1):
                cells = list(map(_as_text, values))
                while cells and not cells[-1].strip():
                    cells.pop()
                if cells:
                    yield Row(cells, number)
        except Exception as error:  # noqa: BLE001 - a damaged file raises errors of many kinds
            raise _damage(self.path, error) from error

    def _fitted(self, row: Row) -> Row:
        """Return a row that is as wide as the header, or unreadable."""
        width, count = len(self.names), len(row.cells)
        if count > width:
            return row._replace(error=f"{count} cells, the header has {width}")
        return row._replace(cells=row.cells + [""] * (width - count))


def _as_text(value: Any) -> str:  # noqa: ANN401
    """Return the text of a cell; a date without a time of day has none in its text."""
    if value is None or value == NOT_AVAILABLE:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime) and value.time() == MIDNIGHT:
        return value.date().isoformat()
    if isinstance(value, date):
        return str(value)
    return repr(value) if isinstance(value, float) else str(value)


def _damage(path: File, error: Exception) -> MolsliceError:
    reason = "it is no workbook" if isinstance(error, BadZipFile) else " ".join(f"{error!r}".split())
    return MolsliceError(f"cannot read {path} as an Excel workbook: {reason}")
