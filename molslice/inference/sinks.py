"""Files that tables of predictions are written to: CSV, Parquet and NumPy, chunk by chunk."""

import csv
import gzip
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from molslice.files.atomic import atomic_file, atomic_path
from molslice.files.npy import ArrayFile
from molslice.files.parquet import import_pyarrow
from molslice.inference.base import Predictions
from molslice.types import MolsliceError

__all__ = ["CSV", "ENDINGS", "Sink", "format_value", "open_sink"]

CSV = (".csv", ".csv.gz")
ENDINGS = (*CSV, ".parquet", ".npy")


class Sink(ABC):
    """A file of rows. Columns of text are followed by columns of numbers and one of reasons."""

    @abstractmethod
    def write(self, cells: Sequence[Sequence[str]], predictions: Predictions) -> None:
        """Append rows.

        Args:
            cells: The cells of the input, one list for each row.
            predictions: Their predictions.
        """


@contextmanager
def open_sink(path: Path, names: Sequence[str], columns: Sequence[str], reasons: str) -> Iterator[Sink]:
    """Open a file that gets its final name when the block ends without an error.

    Args:
        path: The file. Its ending, one of `ENDINGS`, selects the format. A `.npy` file holds the numbers
            only.
        names: Names of the columns of the input.
        columns: Names of the columns of numbers.
        reasons: Name of the column of reasons.

    Raises:
        MolsliceError: pyarrow is not installed, or Parquet does not take the names.
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
            atomic_path(path) as partial,
            _parquet_sink(partial, path, [*names], [*columns], reasons) as sink,
        ):
            yield sink
    else:
        with atomic_file(path) as raw, _text_stream(raw, name.endswith(".gz")) as stream:
            sink = _CsvSink(stream)
            sink.write_row([*names, *columns, reasons])
            yield sink


class _NumpySink(Sink):
    """The numbers as float32 [rows, columns]; NaN in failed rows."""

    def __init__(self, file: ArrayFile) -> None:
        self._file = file

    def write(self, cells: Sequence[Sequence[str]], predictions: Predictions) -> None:  # noqa: ARG002
        self._file.append(predictions.values)


class _CsvSink(Sink):
    r"""CSV rows that end in \n. A cell with any line end, also a lone \r, is quoted."""

    def __init__(self, stream: IO[str]) -> None:
        # the csv module quotes the characters of its own line end
        self.write_row = csv.writer(_LineEnds(stream), lineterminator="\r\n").writerow

    def write(self, cells: Sequence[Sequence[str]], predictions: Predictions) -> None:
        for row, values, reason in zip(cells, predictions.values, predictions.errors, strict=True):
            self.write_row([*row, *map(format_value, values), reason or ""])


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


@contextmanager
def _parquet_sink(
    partial: Path, path: Path, names: list[str], columns: list[str], reasons: str
) -> Iterator[Sink]:
    pyarrow = import_pyarrow(path)
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise MolsliceError(
            f"{path}: the input has several columns named {repeated!r}, which Parquet does not allow"
        )
    fields = [(name, pyarrow.string()) for name in names] + [(name, pyarrow.float32()) for name in columns]
    schema = pyarrow.schema([*fields, (reasons, pyarrow.string())])
    with pyarrow.parquet.ParquetWriter(partial, schema) as writer:
        yield _ParquetSink(writer, schema)


class _ParquetSink(Sink):
    """Text, float32 and text; the reason is null for a row with a prediction."""

    def __init__(self, writer: Any, schema: Any) -> None:  # noqa: ANN401
        self._writer, self._schema = writer, schema

    def write(self, cells: Sequence[Sequence[str]], predictions: Predictions) -> None:
        import pyarrow

        texts = [list(column) for column in zip(*cells, strict=True)]
        # NaN, as in the other formats, and not null
        numbers = [pyarrow.array(column, pyarrow.float32()) for column in predictions.values.T]
        arrays = [*(pyarrow.array(column, pyarrow.string()) for column in texts), *numbers]
        arrays.append(pyarrow.array(predictions.errors, pyarrow.string()))
        self._writer.write_table(pyarrow.Table.from_arrays(arrays, schema=self._schema))
