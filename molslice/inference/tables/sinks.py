"""Files that tables of predictions are written to, chunk by chunk: CSV, JSON lines, Parquet and NumPy."""

import csv
import gzip
import io
import json
import math
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, BinaryIO

import numpy as np

from molslice.files.atomic import atomic_file, atomic_path
from molslice.files.npy import ArrayFile
from molslice.files.tables.json_lines import as_value
from molslice.files.urls import File
from molslice.inference.predictions import TableRows, text_to_json
from molslice.types import MolsliceError

__all__ = ["ENDINGS", "STDOUT", "TABLES", "Sink", "format_value", "open_sink"]

STDOUT = Path("-")  # standard output in place of a file
JSON = (".jsonl", ".jsonl.gz")
TABLES = (".csv", ".csv.gz", ".parquet", *JSON)
ENDINGS = (*TABLES, ".npy")
LONE = "backslashreplace"  # half of a surrogate pair, which only JSON lines can have, becomes its escape


class Sink(ABC):
    """A file of rows: cells of the input, then columns of numbers, of texts, and one of reasons."""

    @abstractmethod
    def write(self, cells: Sequence[Sequence[str]], rows: TableRows) -> None:
        """Append rows.

        Args:
            cells: The cells of the input, one list for each row.
            rows: Their predictions.
        """


@contextmanager
def open_sink(
    path: File,
    names: Sequence[str],
    columns: Sequence[str],
    texts: Sequence[str],
    reasons: str,
    schema: Any = None,  # noqa: ANN401
    *,
    held: bool = False,
) -> Iterator[Sink]:
    """Open a file that gets its final name when the block ends without an error.

    Args:
        path: The file or its URL. Its ending, one of `ENDINGS`, selects the format. A `.npy` file holds the
            numbers only. `-` is standard output, to which CSV is written.
        names: Names of the columns of the input.
        columns: Names of the columns of numbers.
        texts: Names of the columns of texts.
        reasons: Name of the column of reasons.
        schema: pyarrow's schema of the input if it is Parquet; its numbers stay numbers.
        held: Whether standard output gets the rows when the block ends, instead of at once.

    Raises:
        MolsliceError: Parquet or JSON does not take the names.
        OSError: The file cannot be written. No partial file is left.
    """
    name = path.name.lower()
    if name.endswith(".npy"):
        with atomic_path(path) as partial:
            file = ArrayFile(partial, "<f4", len(columns))
            try:
                yield _NumpySink(file)
                file.finish()
            finally:
                file.close()
    elif name.endswith(".parquet"):
        with (
            atomic_file(path) as stream,
            _parquet_sink(stream, path, [*names], [*columns], [*texts, reasons], schema) as sink,
        ):
            yield sink
    elif path == STDOUT:
        with _held_output() if held else nullcontext(sys.stdout) as stream:
            sink = _CsvSink(stream)
            sink.write_row([*names, *columns, *texts, reasons])
            yield sink
        sys.stdout.flush()
    elif name.endswith(JSON):
        _check_repeated(path, names)
        with atomic_file(path) as raw, _text_stream(raw, name.endswith(".gz")) as stream:
            values = [_value_reader(schema, name) for name in names]
            yield _JsonSink(stream, names, values, columns, [*texts, reasons])
    else:
        with atomic_file(path) as raw, _text_stream(raw, name.endswith(".gz")) as stream:
            sink = _CsvSink(stream)
            sink.write_row([*names, *columns, *texts, reasons])
            yield sink


@contextmanager
def _held_output() -> Iterator[IO[str]]:
    """Write a temporary file, and copy it to standard output if the block ends without an error."""
    with TemporaryFile("w+", encoding="utf-8", errors="surrogatepass", newline="") as stream:
        yield stream
        stream.seek(0)
        shutil.copyfileobj(stream, sys.stdout)


class _NumpySink(Sink):
    """The numbers as float32 [rows, columns]; NaN in failed rows."""

    def __init__(self, file: ArrayFile) -> None:
        self._file = file

    def write(self, cells: Sequence[Sequence[str]], rows: TableRows) -> None:  # noqa: ARG002
        self._file.append(rows.values)


class _CsvSink(Sink):
    r"""CSV rows that end in \n. A cell with any line end, also a lone \r, is quoted."""

    def __init__(self, stream: IO[str]) -> None:
        # the csv module quotes the characters of its own line end
        self.write_row = csv.writer(_LineEnds(stream), lineterminator="\r\n").writerow

    def write(self, cells: Sequence[Sequence[str]], rows: TableRows) -> None:
        for row, values, texts, reason in zip(cells, rows.values, rows.row_texts(), rows.errors, strict=True):
            self.write_row([*row, *map(format_value, values), *texts, reason or ""])


class _JsonSink(Sink):
    """One object for each row. Values of JSON lines and numbers of Parquet stay what they are.

    A failed row has null.

    Args:
        stream: The file.
        names: Names of the columns of the input.
        values: For each of them, what converts a cell to a JSON value.
        columns: Names of the columns of numbers.
        texts: Names of the columns of texts.
    """

    def __init__(
        self,
        stream: IO[str],
        names: Sequence[str],
        values: Sequence[Callable[[str], Any]],
        columns: Sequence[str],
        texts: Sequence[str],
    ) -> None:
        self._stream, self._names, self._columns, self._texts = stream, names, columns, texts
        self._values = values

    def write(self, cells: Sequence[Sequence[str]], rows: TableRows) -> None:
        for row, values, texts, reason in zip(cells, rows.values, rows.row_texts(), rows.errors, strict=True):
            cells_of_row = zip(self._names, self._values, row, strict=True)
            record: dict[str, Any] = {name: convert(cell) for name, convert, cell in cells_of_row}
            for name, value in zip(self._columns, values, strict=True):
                record[name] = float(format_value(value)) if math.isfinite(value) else None
            for name, text in zip(self._texts, (*texts, reason), strict=True):
                record[name] = text_to_json(text)
            self._stream.write(json.dumps(record, ensure_ascii=False) + "\n")


class _LineEnds:
    """Writes the lines of the csv module with another line end."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, line: str) -> int:
        return self._stream.write(line[:-2] + "\n")


def format_value(value: float | np.floating) -> str:
    """Return the shortest text that reads back as the same float32."""
    return str(np.float32(value))


@contextmanager
def _text_stream(raw: BinaryIO, packed: bool) -> Iterator[IO[str]]:
    if not packed:
        stream = io.TextIOWrapper(raw, encoding="utf-8", errors=LONE, newline="")
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
        io.TextIOWrapper(archive, encoding="utf-8", errors=LONE, newline="") as stream,
    ):
        yield stream


def _check_repeated(path: File, names: Sequence[str]) -> None:
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise MolsliceError(
            f"{path}: the input has several columns named {repeated!r}, which this format does not allow"
        )


@contextmanager
def _parquet_sink(
    stream: BinaryIO,
    path: File,
    names: list[str],
    columns: list[str],
    texts: list[str],
    given: Any,  # noqa: ANN401
) -> Iterator[Sink]:
    import pyarrow.parquet

    _check_repeated(path, names)
    types = [_kept_type(given, name) for name in names]
    numbers = [(name, pyarrow.float32()) for name in columns]
    added = [(name, pyarrow.string()) for name in texts]
    fields = [*zip(names, types, strict=True), *numbers, *added]
    schema = pyarrow.schema([(_escaped(name), kind) for name, kind in fields])
    with pyarrow.parquet.ParquetWriter(stream, schema) as writer:
        yield _ParquetSink(writer, schema)


def _kept_type(schema: Any, name: str) -> Any:  # noqa: ANN401
    """Return the type of a column of the input if text can be converted to it, else text."""
    import pyarrow

    kind = pyarrow.string() if schema is None else schema.field(name).type
    numeric = pyarrow.types.is_integer(kind) or pyarrow.types.is_boolean(kind)
    floating = pyarrow.types.is_float32(kind) or pyarrow.types.is_float64(kind)
    return kind if numeric or floating else pyarrow.string()


def _value_reader(schema: Any, name: str) -> Callable[[str], Any]:  # noqa: ANN401
    """Return what converts a cell of a column of the input to a JSON value."""
    if schema is None:
        return as_value
    import pyarrow

    kind = _kept_type(schema, name)
    if kind == pyarrow.string():
        return as_value
    if pyarrow.types.is_boolean(kind):
        return text_to_json
    read = int if pyarrow.types.is_integer(kind) else _finite
    return lambda cell: read(cell) if cell else None


def _finite(cell: str) -> float | None:
    """Return a number; None for NaN and infinity, which JSON does not have."""
    value = float(cell)
    return value if math.isfinite(value) else None


def _escaped(text: str) -> str:
    return text.encode(errors=LONE).decode()


def _encodable(texts: Iterable[str | None]) -> Any:  # noqa: ANN401
    """Return an array of pyarrow; see `LONE`."""
    import pyarrow

    cells = list(texts)
    try:
        return pyarrow.array(cells, pyarrow.string())
    except UnicodeEncodeError:
        return pyarrow.array([None if text is None else _escaped(text) for text in cells], pyarrow.string())


def _is_null(cell: str, plain: bool) -> bool:
    """Return whether a cell is null: in a column of text only one that was null in the input."""
    return not cell and (not plain or as_value(cell) is None)


class _ParquetSink(Sink):
    """The columns of the input, float32 and text; the reason is null for a row with a prediction.

    Args:
        writer: The writer of the file.
        schema: Its columns.
    """

    def __init__(self, writer: Any, schema: Any) -> None:  # noqa: ANN401
        self._writer, self._schema = writer, schema

    def write(self, cells: Sequence[Sequence[str]], rows: TableRows) -> None:
        import pyarrow

        arrays = []
        for column, field in zip(zip(*cells, strict=True), self._schema, strict=False):
            plain = field.type == pyarrow.string()
            texts = _encodable(None if _is_null(text, plain) else text for text in column)
            arrays.append(texts if plain else texts.cast(field.type))
        # NaN, as in CSV, and not null
        arrays += [pyarrow.array(column, pyarrow.float32()) for column in rows.values.T]
        added = zip(*rows.row_texts(), strict=True)
        arrays += [pyarrow.array([text or None for text in column], pyarrow.string()) for column in added]
        arrays.append(pyarrow.array(rows.errors, pyarrow.string()))
        self._writer.write_table(pyarrow.Table.from_arrays(arrays, schema=self._schema))
