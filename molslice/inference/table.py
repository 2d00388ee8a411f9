"""Predict a CSV file of any length: read, predict and write chunk by chunk, in bounded memory."""

import csv
import gzip
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from molslice.inference.load import Predictions, Predictor
from molslice.inference.progress import progress_bar
from molslice.registry import near_names
from molslice.types import MolsliceError

__all__ = ["TableReport", "predict_table"]

SUFFIXES = (".csv", ".csv.gz")
ERROR_COLUMN = "error"

WriteRow = Callable[[list[str]], object]


@dataclass(slots=True)
class TableReport:
    """What a prediction of a table did: rows written, rows that failed, the first failure."""

    rows: int = 0
    failed: int = 0
    first_failure: str = ""


@dataclass(slots=True)
class _Source:
    """An open CSV: its header, and its rows as they are asked for."""

    path: Path
    header: list[str]
    rows: Iterator[list[str]]
    raw: BinaryIO
    size: int
    kept: list[list[list[str]]] = field(default_factory=list)  # chunks read and not yet written

    def chunks(self, size: int) -> Iterator[list[list[str]]]:
        chunk: list[list[str]] = []
        for row in self.rows:
            chunk.append(row)
            if len(chunk) == size:
                yield chunk
                chunk = []
        if chunk:
            yield chunk


def predict_table(
    predictor: Predictor,
    source: Path,
    target: Path,
    *,
    smiles_column: str = "smiles",
    workers: int = 0,
    progress: bool = True,
) -> TableReport:
    """Write `source` with the predictions beside it to `target`, one row for each row, in order.

    Every column is kept as it stands; `<target>_<unit>` for each target and `error` are added. The file
    appears under its name only when it is complete.

    Raises:
        MolsliceError: no such column, a name that clashes, no rows, a damaged file, or an unfit name.
        OSError: reading or writing failed; nothing is left under the final name.
    """
    _check_names(source, target)
    report = TableReport()
    with _open_source(source) as table:
        column = _find_column(table, smiles_column)
        added = [*predictor.columns, ERROR_COLUMN]
        _refuse_clash(table, added)
        with _write_atomically(target) as stream:
            write_row = csv.writer(stream, lineterminator="\n").writerow
            write_row([*table.header, *added])
            _stream(predictor, table, column, write_row, report, workers, progress)
    return report


def _stream(
    predictor: Predictor,
    table: _Source,
    column: int,
    write_row: WriteRow,
    report: TableReport,
    workers: int,
    progress: bool,
) -> None:
    def smiles() -> Iterator[list[str]]:
        for chunk in table.chunks(reader.chunk_rows):
            table.kept.append(chunk)
            yield [row[column] for row in chunk]

    bar = progress_bar(table.size, "B", progress, desc="predict", unit_divisor=1024)
    with predictor.reader(workers) as reader, bar:
        for store in reader.read(smiles()):
            predictions = predictor.predict_store(store)
            chunk = table.kept.pop(0)
            _write_chunk(write_row, chunk, predictions)
            _count(report, table.path, [row[column] for row in chunk], predictions)
            bar.set_postfix_str(f"{report.rows} molecules", refresh=False)
            bar.update(table.raw.tell() - bar.n)
    if not report.rows:
        raise MolsliceError(f"{table.path}: a header and no rows, so there is nothing to predict")


def _write_chunk(write_row: WriteRow, chunk: list[list[str]], predictions: Predictions) -> None:
    for row, values, reason in zip(chunk, predictions.values, predictions.errors, strict=True):
        write_row([*row, *(format_value(value) for value in values), reason or ""])


def format_value(value: float | np.floating) -> str:
    """The shortest text that reads back as the same float32; `nan` where there is none."""
    return str(np.float32(value))


def _count(report: TableReport, path: Path, smiles: list[str], predictions: Predictions) -> None:
    for offset, reason in enumerate(predictions.errors):
        if reason is not None:
            report.failed += 1
            place = f"{path}, row {report.rows + offset + 1}: {smiles[offset]!r}: {reason}"
            report.first_failure = report.first_failure or place
    report.rows += len(smiles)


def _check_names(source: Path, target: Path) -> None:
    for path in (source, target):
        if not path.name.endswith(SUFFIXES):
            raise MolsliceError(f"{path}: the name must end in {' or '.join(SUFFIXES)}")
    if not source.exists():
        raise MolsliceError(f"{source}: no such file")
    if source.is_dir():
        raise MolsliceError(f"{source}: a folder, not a file")
    if not target.parent.is_dir():
        raise MolsliceError(f"{target}: the folder {target.parent} does not exist")
    if target.is_dir():
        raise MolsliceError(f"{target}: a folder, not a file")
    if target.exists() and target.samefile(source):
        raise MolsliceError(f"{target}: the output would replace the input; choose another name")


@contextmanager
def _open_source(path: Path) -> Iterator[_Source]:
    with path.open("rb") as raw:
        size = path.stat().st_size
        if not size:
            raise MolsliceError(f"{path}: an empty file")
        packed = path.name.endswith(".gz")
        binary = gzip.GzipFile(fileobj=raw, mode="rb") if packed else raw
        text = io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")
        rows = _checked_rows(path, text)
        header = next(rows, None)
        if header is None:
            raise MolsliceError(f"{path}: an empty file")
        yield _Source(path, header, rows, raw, size)


def _checked_rows(path: Path, text: IO[str]) -> Iterator[list[str]]:
    """The header, then rows of its width; reading errors come out naming file and line.

    A blank line is a row of one empty cell where the table has one column, else it is passed over, as are
    blank lines at the end.
    """
    width, blank = 0, 0
    lines = csv.reader(text, strict=True)
    try:
        for row in lines:
            if not row:
                blank += width == 1
                continue
            yield from ([""] for _ in range(blank))
            blank = 0
            width = width or len(row)
            if len(row) != width:
                raise MolsliceError(
                    f"{path}, line {lines.line_num}: {len(row)} cells, the header has {width}"
                )
            yield row
    except csv.Error as error:
        raise MolsliceError(f"{path}, line {lines.line_num}: not readable as CSV: {error}") from error
    except (EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise MolsliceError(f"{path}, after line {lines.line_num}: damaged: {error}") from error


def _find_column(table: _Source, name: str) -> int:
    found = [index for index, column in enumerate(table.header) if column == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise MolsliceError(f"{table.path}: {len(found)} columns are named {name!r}")
    raise MolsliceError(f"{table.path}: no column {name!r}; {near_names(name, table.header)}")


def _refuse_clash(table: _Source, added: list[str]) -> None:
    clash = sorted(set(table.header) & set(added))
    if clash:
        names = ", ".join(map(repr, clash))
        raise MolsliceError(
            f"{table.path}: has already a column {names}, which the prediction would add; rename it"
        )


@contextmanager
def _write_atomically(path: Path) -> Iterator[IO[str]]:
    """A text stream that becomes `path` when all of it is on the disk, and vanishes when anything fails."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as raw:
            with _text_stream(raw, path.name.endswith(".gz")) as stream:
                yield stream
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(partial, path)
    except OSError as error:
        if error.filename is None or error.filename == str(partial):  # a write that fails names no file
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _text_stream(raw: BinaryIO, packed: bool) -> Iterator[IO[str]]:
    if not packed:
        stream = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        try:
            yield stream
            stream.flush()
        finally:
            with suppress(OSError):  # the first failure is the one to tell
                stream.detach()
        return
    # No time and no name in the header: the same predictions give the same bytes.
    with (
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as archive,
        io.TextIOWrapper(archive, encoding="utf-8", newline="") as stream,
    ):
        yield stream
