"""Files that tables of predictions are written to, chunk by chunk: CSV, JSON lines, Parquet and NumPy."""

import csv
import gzip
import io
import json
import math
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import IO, Any, BinaryIO

import numpy as np

from molslice.files.atomic import atomic_file, atomic_path
from molslice.files.npy import ArrayFile
from molslice.files.tables.json_lines import as_value
from molslice.files.urls import File
from molslice.inference.predictions import TableRows, text_to_json
from molslice.types import MolsliceError

STDOUT = Path("-")  # standard output in place of a file
JSON = (".jsonl", ".jsonl.gz")
TABLES = (".csv", ".csv.gz", ".parquet", *JSON)
ENDINGS = (*TABLES, ".npy")
LONE = "backslashreplace"  # half of a surrogate pair, which only JSON lines can have, becomes its escape

Sink = Callable[[Sequence[Sequence[str]], TableRows], None]
"""Appends rows: the cells of the input, one list for each row, and their predictions."""


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
    """Open a file of rows that gets its final name when the block ends without an error.

    Args:
        path: The file or its URL. Its ending, one of `ENDINGS`, selects the format. A `.npy` file holds the
            numbers only. `-` is standard output, to which CSV is written.
        names: Names of the columns of the input.
        columns: Names of the columns of numbers.
        texts: Names of the columns of texts.
        reasons: Name of the column of reasons.
        schema: pyarrow's schema of the input if it is Parquet. A column keeps its type if its cells read
            back as their values, and is text otherwise.
        held: Whether standard output gets the rows when the block ends, instead of at once.

    Raises:
        MolsliceError: Parquet or JSON does not take the names.
        OSError: The file cannot be written. No partial file is left.
    """
    name, texts = path.name.lower(), [*texts, reasons]
    if name.endswith((".parquet", *JSON)):
        repeated = next((column for column in names if names.count(column) > 1), None)
        if repeated is not None:
            raise MolsliceError(
                f"{path}: the input has several columns named {repeated!r}, which this format does not allow"
            )
    if name.endswith(".npy"):
        with atomic_path(path) as partial:
            file = ArrayFile(partial, "<f4", len(columns))
            try:
                yield lambda cells, rows: file.append(rows.values)  # noqa: ARG005
                file.finish()
            finally:
                file.close()
    elif name.endswith(".parquet"):
        with atomic_file(path) as stream, _parquet_sink(stream, names, columns, texts, schema) as sink:
            yield sink
    elif path == STDOUT:
        with _held_output() if held else nullcontext(sys.stdout) as stream:
            yield _csv_sink(stream, [*names, *columns, *texts])
        sys.stdout.flush()
    else:
        with atomic_file(path) as raw, text_stream(raw, name.endswith(".gz")) as stream:
            if name.endswith(JSON):
                values = [_value_reader(schema, column) for column in names]
                yield _json_sink(stream, names, values, columns, texts)
            else:
                yield _csv_sink(stream, [*names, *columns, *texts])


@contextmanager
def _held_output() -> Iterator[IO[str]]:
    """Write a temporary file, and copy it to standard output if the block ends without an error."""
    with TemporaryFile("w+", encoding="utf-8", errors="surrogatepass", newline="") as stream:
        yield stream
        stream.seek(0)
        shutil.copyfileobj(stream, sys.stdout)


@contextmanager
def text_stream(raw: BinaryIO, packed: bool = False) -> Iterator[IO[str]]:
    """Yield a stream of text in UTF-8 to a binary one, which may be `packed` with gzip."""
    with ExitStack() as stack:
        if packed:
            # a header without time and name, so that the same predictions give the same bytes
            packer: Any = gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0)
            raw = stack.enter_context(packer)
        yield stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8", errors=LONE, newline=""))


def csv_row_writer(stream: IO[str]) -> Callable[[Sequence[str]], object]:
    r"""Return a function that writes a row; rows end in \n, and a cell with any line end is quoted."""
    # the csv module quotes the characters of its own line end, which is replaced
    lines: Any = SimpleNamespace(write=lambda line: stream.write(line[:-2] + "\n"))
    return csv.writer(lines, lineterminator="\r\n").writerow


def _csv_sink(stream: IO[str], header: Sequence[str]) -> Sink:
    """Write a header, and the rows as `csv_row_writer` does."""
    write_row = csv_row_writer(stream)
    write_row(header)

    def write(cells: Sequence[Sequence[str]], rows: TableRows) -> None:
        for row, (values, texts, reason) in zip(cells, rows, strict=True):
            write_row([*row, *map(format_value, values), *texts, reason or ""])

    return write


def _json_sink(
    stream: IO[str],
    names: Sequence[str],
    readers: Sequence[Callable[[str], Any]],
    columns: Sequence[str],
    texts: Sequence[str],
) -> Sink:
    """Write one object for each row. Values of JSON lines and numbers of Parquet stay what they are.

    A failed row has null. `readers` convert the cells of `names` to JSON values.
    """

    def write(cells: Sequence[Sequence[str]], rows: TableRows) -> None:
        for row, (values, more, reason) in zip(cells, rows, strict=True):
            record = {name: read(cell) for name, read, cell in zip(names, readers, row, strict=True)}
            for name, value in zip(columns, values, strict=True):
                record[name] = float(format_value(value)) if math.isfinite(value) else None
            for name, text in zip(texts, (*more, reason), strict=True):
                record[name] = text_to_json(text)
            stream.write(_json_text(record) + "\n")

    return write


def _json_text(record: dict[str, Any]) -> str:
    try:
        return json.dumps(record, ensure_ascii=False, allow_nan=False)
    except ValueError:  # NaN or infinity in a list or a structure of Parquet
        return json.dumps(_finite(record), ensure_ascii=False, allow_nan=False)


def format_value(value: float | np.floating) -> str:
    """Return the shortest text that reads back as the same float32."""
    return str(np.float32(value))


@contextmanager
def _parquet_sink(
    stream: BinaryIO,
    names: Sequence[str],
    columns: Sequence[str],
    texts: Sequence[str],
    given: Any,  # noqa: ANN401
) -> Iterator[Sink]:
    """Write the columns of the input, float32 and text; the reason is null for a row with a prediction."""
    import pyarrow.parquet

    string, float32 = pyarrow.string(), pyarrow.float32()
    kinds = [string if given is None else _kept_type(given.field(name).type) for name in names]
    fields = list(zip(names, kinds, strict=True))
    fields += [(name, float32) for name in columns] + [(name, string) for name in texts]
    schema = pyarrow.schema([(_escaped(name), kind) for name, kind in fields])

    def write(cells: Sequence[Sequence[str]], rows: TableRows) -> None:
        # a chunk without rows has no columns
        arrays = [
            _as_array(column, kind) for column, kind in zip(zip(*cells, strict=True), kinds, strict=False)
        ]
        # NaN, as in CSV, and not null
        arrays += [pyarrow.array(column, float32) for column in rows.values.T]
        added = zip(*rows.texts, strict=True)
        arrays += [pyarrow.array([text or None for text in column], string) for column in added]
        arrays.append(pyarrow.array(rows.errors, string))
        writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))

    with pyarrow.parquet.ParquetWriter(stream, schema) as writer:
        yield write


def _kept_type(kind: Any) -> Any:  # noqa: ANN401
    """Return the type of a column of Parquet if its cells read back as their values, else text."""
    import pyarrow

    return kind if _is_text(kind) or _is_scalar(kind) or _is_nested(kind) else pyarrow.string()


def _is_text(kind: Any) -> bool:  # noqa: ANN401
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_scalar(kind: Any) -> bool:  # noqa: ANN401
    """Return whether texts can be converted to a type that is not text."""
    from pyarrow import types

    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return is_number or types.is_boolean(kind) or types.is_date(kind) or types.is_timestamp(kind)


def _is_nested(kind: Any) -> bool:  # noqa: ANN401
    """Return whether a type is a list or structure whose JSON has all of its values."""
    from pyarrow import types

    if types.is_struct(kind):
        inner_kinds = [field.type for field in kind]
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner_kinds = [kind.value_type]
    else:
        return False
    plain = (types.is_string, types.is_integer, types.is_boolean, types.is_float32, types.is_float64)
    return all(
        _is_nested(inner_kind) or any(is_kind(inner_kind) for is_kind in plain) for inner_kind in inner_kinds
    )


def _as_array(cells: Sequence[str], kind: Any) -> Any:  # noqa: ANN401
    """Return the cells of a column as pyarrow's array; an empty one is null unless it is a text."""
    import pyarrow

    if _is_nested(kind):
        return pyarrow.array([as_value(cell) if cell else None for cell in cells], kind)
    is_text = _is_text(kind)
    texts = [None if _is_null(cell, is_text) else _escaped(cell) for cell in cells]
    return pyarrow.array(texts, pyarrow.string()).cast(kind)


def _value_reader(schema: Any, name: str) -> Callable[[str], Any]:  # noqa: ANN401
    """Return what converts a cell of a column of the input to a JSON value."""
    if schema is None:
        return as_value
    from pyarrow import types

    kind = schema.field(name).type
    if types.is_boolean(kind):
        return text_to_json
    if not (types.is_integer(kind) or types.is_floating(kind)):
        return as_value
    read = int if types.is_integer(kind) else float
    return lambda cell: _finite(read(cell)) if cell else None


def _finite(value: Any) -> Any:  # noqa: ANN401
    """Return a JSON value with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _escaped(text: str) -> str:
    return text.encode(errors=LONE).decode()


def _is_null(cell: str, is_text: bool) -> bool:
    """Return whether a cell is null: in a column of text only one that was null in the input."""
    return not cell and (not is_text or as_value(cell) is None)
