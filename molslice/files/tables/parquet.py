"""Tables in Parquet."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from molslice.files.parquet import open_parquet
from molslice.files.tables.base import Row, Table
from molslice.files.tables.json_lines import as_text
from molslice.types import MolsliceError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ParquetTable", "open_parquet_table"]

BATCH_ROWS = 4096


@contextmanager
def open_parquet_table(path: Path) -> Iterator["ParquetTable"]:
    """Open a Parquet file.

    Raises:
        MolsliceError: The file does not exist or is damaged, also if this is found inside of the block.
    """
    with open_parquet(path) as file:
        yield ParquetTable(path, file)


class ParquetTable(Table):
    """The rows of a Parquet file as text. A null is an empty cell, and a nested value is JSON.

    Args:
        path: The file.
        file: The open file.

    Attributes:
        schema: pyarrow's schema of the file.

    Raises:
        MolsliceError: The file has no columns.
    """

    format = "Parquet"

    def __init__(self, path: Path, file: Any) -> None:  # noqa: ANN401
        super().__init__(path)
        self._file, self.schema = file, file.schema_arrow
        self.names = list(file.schema_arrow.names)
        if not self.names:
            raise MolsliceError(f"{path} has no columns")
        self._batches = file.iter_batches(batch_size=BATCH_ROWS)
        self._batch, self._next, self._rows_read = None, 0, 0

    @property
    def position(self) -> int:
        """Number of bytes of the file read so far, as a share of its rows."""
        size, rows = self.path.stat().st_size, self._file.metadata.num_rows
        return size * self._rows_read // max(rows, 1)

    def read_rows(self, size: int) -> list[Row]:
        """Read the next rows, at most `size`; an empty list at the end."""
        rows: list[Row] = []
        while len(rows) < size:
            if self._batch is None or self._next == len(self._batch):
                batch = next(self._batches, None)
                if batch is None:
                    break
                columns = [_as_texts(column) for column in batch.columns]
                self._batch, self._next = [list(cells) for cells in zip(*columns, strict=True)], 0
            taken = self._batch[self._next : self._next + size - len(rows)]
            self._next += len(taken)
            rows += [Row(cells, None) for cells in taken]
        self._rows_read += len(rows)
        return rows


def _as_texts(column: "pyarrow.Array") -> list[str]:
    import pyarrow

    try:
        texts = column.cast(pyarrow.string())
    except (pyarrow.ArrowNotImplementedError, pyarrow.ArrowInvalid):
        return [as_text(value) for value in column.to_pylist()]
    return [text or "" for text in texts.to_pylist()]
