"""The rows of the table of a fit, which `table_rows.csv` of its folder holds."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from molslice.files.received import check_received
from molslice.folders.fitted import ORIGIN_COLUMNS, TABLE_ROWS, row_columns
from molslice.inference.fitted import FittedPredictor
from molslice.report.measure import read_value
from molslice.types import MolsliceError


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of the table of the fit, or of `rows.csv` if the folder does not know the table.

    Attributes:
        file: Name of the file.
        row: Number of the row, from 1 after the column names.
        line: The line in the file, of a workbook the row in Excel; None if it is not known.
        smiles: The SMILES.
        name: What the table calls it; "" if it has no names.
    """

    file: str
    row: int
    line: int | None
    smiles: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A row of the table with its values.

    Attributes:
        place: Where it is.
        row: Its row of `rows.csv`, from 0; a negative number for a molecule that has none.
        values: The values of the targets, NaN where missing or a limit.
    """

    place: TableRow
    row: int
    values: list[float]


def knows_table(predictor: FittedPredictor) -> bool:
    """Whether the folder of a fit knows the rows of the table; earlier versions did not keep them."""
    return (predictor.folder / TABLE_ROWS).is_file()


def read_table_rows(predictor: FittedPredictor, count: int) -> list[MeasuredRow]:
    """Read the rows of the table of a fit, in the order of the `count` rows of `rows.csv`.

    Raises:
        MolsliceError: The file is missing or damaged.
    """
    file, names = predictor.folder / TABLE_ROWS, predictor.target_names
    columns = row_columns(names, ORIGIN_COLUMNS)
    known, rows = [*ORIGIN_COLUMNS, *columns], []
    for cells in read_csv(file, known):
        try:
            line = int(cells["line"]) if cells["line"] else None
            name = ", ".join(cell for column, cell in cells.items() if cell and column not in known)
            place = TableRow(cells["file"], int(cells["table_row"]), line, cells["smiles"], name)
            number = int(cells["row"])
            if not number <= count:
                raise ValueError(f"row {number} of {count}")
            pairs = zip(columns, predictor.types, strict=True)
            values = [read_value(cells[column], of_target) for column, of_target in pairs]
            rows.append(MeasuredRow(place, number - 1 if number > 0 else number, values))
        except ValueError as error:
            raise MolsliceError(f"cannot read {file}: {error}") from error
    return rows


def read_csv(file: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Read a CSV of the folder of a fit, which needs some columns.

    Raises:
        MolsliceError: It is missing or damaged.
    """
    check_received(file)
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            if missing := [name for name in columns if name not in (reader.fieldnames or ())]:
                raise ValueError(f"no column {missing[0]!r}")
            rows = [*reader]
        if any(value is None for row in rows for value in row.values()):
            raise ValueError("a row has another number of cells")
        return rows
    except FileNotFoundError as error:
        raise MolsliceError(
            f"{file.parent} has no {file.name}, the rows of the fit; models that ship do not have it"
        ) from error
    except (OSError, ValueError, UnicodeDecodeError, csv.Error) as error:
        raise MolsliceError(f"cannot read {file}: {error}") from error
