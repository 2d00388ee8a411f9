"""Predict a CSV file of any length: read, predict and write chunk by chunk, in bounded memory."""

import csv
import gzip
import io
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from molslice.files.atomic import UnwritableError, atomic_file
from molslice.files.tables import Chunk, Table, open_table
from molslice.inference.base import Predictions, SmilesPredictor
from molslice.inference.columns import ERROR, distinct_columns
from molslice.inference.progress import progress_bar
from molslice.types import MolsliceError

__all__ = ["TableReport", "predict_table"]

SUFFIXES = (".csv", ".csv.gz")
SHOWN = 60  # characters of a SMILES in a message


@dataclass(slots=True)
class TableReport:
    """The outcome of a prediction of a table.

    Attributes:
        columns: The names of the columns with predictions, one for each target.
        error_column: The name of the column with reasons.
        rows: Number of rows read.
        failed: Number of rows without a prediction.
        first_failure: Place, SMILES and reason of the first row that failed.
    """

    columns: tuple[str, ...]
    error_column: str
    rows: int = 0
    failed: int = 0
    first_failure: str = ""


def predict_table(
    predictor: SmilesPredictor,
    source: Path,
    target: Path,
    *,
    smiles_column: str = "smiles",
    workers: int = 0,
    progress: bool = True,
) -> TableReport:
    """Write the rows of `source` with predictions appended to `target`, in the same order.

    All columns are kept. The columns of `predictor.columns` and `error` are appended under names that are not
    in `source` yet (see `distinct_columns`). An unreadable row keeps its cells, up to the number of columns,
    and has the reason in the error column. The file gets its final name when it is complete.

    Args:
        predictor: The model.
        source: The table, CSV or gzip-compressed CSV.
        target: The file to write.
        smiles_column: The name of the column with SMILES.
        workers: Number of worker processes; 0 reads SMILES in this process.
        progress: Whether to show a bar on standard error.

    Raises:
        MolsliceError: The column is missing, the table has no rows, the file is damaged, or a file name is
            invalid. The message says that `target` is not written.
        OSError: The file cannot be written. No partial file is left.
    """
    _check_names(source, target)
    with open_table(source) as table:
        table.find(smiles_column)
        *columns, error_column = distinct_columns([*predictor.columns, ERROR], taken=table.names)
        report = TableReport(tuple(columns), error_column)
        try:
            with atomic_file(target) as raw, _text_stream(raw, target.name.lower().endswith(".gz")) as stream:
                writer = _RowWriter(stream)
                writer.write_row([*table.names, *columns, error_column])
                _stream(predictor, table, smiles_column, writer, report, workers, progress)
        except UnwritableError:
            raise
        except MolsliceError as error:
            done = f" although {report.rows} rows were predicted" if report.rows else ""
            raise MolsliceError(f"{error}; {target} is not written{done}") from error
    return report


class _RowWriter:
    r"""Writes CSV rows that end in \n. A cell with any line end, also a lone \r, is quoted."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        # the csv module quotes the characters of its own line end
        self.write_row = csv.writer(self, lineterminator="\r\n").writerow

    def write(self, line: str) -> int:
        """Write a line of the csv module with another line end."""
        return self._stream.write(line[:-2] + "\n")


def _stream(
    predictor: SmilesPredictor,
    table: Table,
    column: str,
    writer: _RowWriter,
    report: TableReport,
    workers: int,
    progress: bool,
) -> None:
    kept: deque[Chunk] = deque()  # read but not yet written

    def smiles() -> Iterator[list[str]]:
        for chunk in table.chunks(reader.chunk_rows, [column]):
            kept.append(chunk)
            yield chunk[column]

    size = table.path.stat().st_size
    bar = progress_bar(size, "B", progress, desc="predict", unit_divisor=1024)
    with predictor.reader(workers) as reader, bar:
        for part in reader.read(smiles()):
            predictions = predictor.predict_part(part)
            chunk = kept.popleft()
            for cells, values, reason in zip(
                chunk.cells, predictions.values, predictions.errors, strict=True
            ):
                writer.write_row([*cells, *map(format_value, values), reason or ""])
            _count(report, chunk, chunk[column], predictions)
            bar.set_postfix_str(f"{report.rows} molecules", refresh=False)
            bar.update(table.position - bar.n)


def format_value(value: float | np.floating) -> str:
    """Return the shortest text that reads back as the same float32."""
    return str(np.float32(value))


def _count(report: TableReport, chunk: Chunk, smiles: list[str], predictions: Predictions) -> None:
    for place, reason in enumerate(predictions.errors):
        if reason is not None:
            report.failed += 1
            text = smiles[place][:SHOWN] + "…" * (len(smiles[place]) > SHOWN)
            shown = "" if place in chunk.errors else f"{text!r}: "
            report.first_failure = report.first_failure or f"{chunk.where(place)}: {shown}{reason}"
    report.rows += len(chunk)


def _check_names(source: Path, target: Path) -> None:
    for path in (source, target):
        if not path.name.lower().endswith(SUFFIXES):
            raise MolsliceError(f"{path}: the name must end in {' or '.join(SUFFIXES)}")
    if not target.parent.is_dir():
        raise MolsliceError(f"{target}: the folder {target.parent} does not exist")
    if target.exists() and source.exists() and target.samefile(source):
        raise MolsliceError(f"{target}: the output would replace the input; choose another name")
    if target.exists() and not target.is_file():
        raise MolsliceError(f"{target}: not a regular file")


@contextmanager
def _text_stream(raw: BinaryIO, packed: bool) -> Iterator[IO[str]]:
    if not packed:
        stream = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        try:
            yield stream
            stream.flush()
        finally:
            with suppress(OSError):  # keep the first error
                stream.detach()
        return
    # a gzip header without time and name, so that the same predictions give the same bytes
    with (
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as archive,
        io.TextIOWrapper(archive, encoding="utf-8", newline="") as stream,
    ):
        yield stream
