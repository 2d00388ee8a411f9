"""Parquet files: columns with their own types, and tables of text. Errors name the file."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from molslice.errors import MolsliceError
from molslice.files.tables.base import Row, Table
from molslice.files.tables.json_lines import NULL, as_text
from molslice.files.urls import File, Url, file_size
from molslice.registry import near_names

if TYPE_CHECKING:
    import pyarrow

BATCH_ROWS = 4096
BINARY = ("binary", "large_binary", "binary_view", "fixed_size_binary")  # names of types


@contextmanager
def open_parquet(path: File, columns: Sequence[str] = ()) -> Iterator[Any]:
    """Open a file as pyarrow's `ParquetFile`, in which each of `columns` must be there once.

    Raises:
        MolsliceError: The file or a column does not exist, a column is there more than once, or the file is
            damaged, also if pyarrow finds the damage inside of the block.
    """
    import pyarrow.parquet

    if not isinstance(path, Url) and not path.is_file():
        raise MolsliceError(f"no such file: {path}")
    try:
        with ExitStack() as stack:
            source = stack.enter_context(path.open()) if isinstance(path, Url) else path
            file = stack.enter_context(pyarrow.parquet.ParquetFile(source, page_checksum_verification=True))
            names = file.schema_arrow.names
            for column in columns:
                if names.count(column) > 1:
                    raise MolsliceError(f"{path} has {names.count(column)} columns named {column!r}")
                if column not in names:
                    raise MolsliceError(f"{path} has no column {column!r}; {near_names(column, names)}")
            yield file
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise MolsliceError(f"cannot read {path} as Parquet: {' '.join(str(error).split())}") from error


def read_parquet(
    path: File, columns: Sequence[str], *, batch_rows: int = 1024
) -> Iterator[dict[str, list[Any]]]:
    """Yield the values of some columns by name, at most `batch_rows` rows at a time.

    Raises:
        MolsliceError: As in `open_parquet`.
    """
    with open_parquet(path, columns) as file:
        for batch in file.iter_batches(batch_size=batch_rows, columns=list(columns)):
            yield batch.to_pydict()


class ParquetTable(Table):
    """The rows of a Parquet file as text. A null is an empty cell, and a nested value is JSON.

    Raises:
        MolsliceError: The file has no columns.
    """

    format = "Parquet"

    def __init__(self, path: File, file: Any) -> None:  # noqa: ANN401
        super().__init__(path)
        self._file, self.schema = file, file.schema_arrow
        self.names = list(file.schema_arrow.names)
        if not self.names:
            raise MolsliceError(f"{path} has no columns")
        self.rows, self._rows_read, self._size = self._read(), 0, file_size(path)

    @property
    def position(self) -> int:
        """Number of bytes of the file read so far, as a share of its rows."""
        return self._size * self._rows_read // max(self._file.metadata.num_rows, 1)

    def _read(self) -> Iterator[Row]:
        for batch in self._file.iter_batches(batch_size=BATCH_ROWS):
            for cells in zip(*map(_as_texts, batch.columns), strict=True):
                self._rows_read += 1
                yield Row(list(cells), None)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Convert a value to one of JSON: bytes as `_decoded` does, a date or a decimal to its text."""
    return json.loads(
        json.dumps(value, default=lambda item: _decoded(item) if isinstance(item, bytes) else str(item))
    )


def _decoded(value: bytes) -> str:
    """Return UTF-8 as text, and other bytes as `0x` and hexadecimal digits."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def _as_texts(column: "pyarrow.Array") -> list[str]:
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if str(column.type).partition("[")[0] in BINARY:
        return [NULL if value is None else _decoded(value) for value in column.to_pylist()]
    if pyarrow.types.is_duration(column.type):
        counts, unit = column.cast(pyarrow.int64()).to_pylist(), column.type.unit
        return [NULL if count is None else f"{count} {unit}" for count in counts]
    try:
        texts = column.cast(pyarrow.string())
    except (pyarrow.ArrowNotImplementedError, pyarrow.ArrowInvalid):
        return [as_text(_plain(value)) for value in column.to_pylist()]
    return [NULL if text is None else text for text in texts.to_pylist()]
