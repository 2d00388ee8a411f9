"""Read columns of Parquet files with pyarrow; errors name the file."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from molslice.files.urls import File, Url
from molslice.registry import near_names
from molslice.types import MolsliceError

__all__ = ["open_parquet", "read_parquet"]

BATCH_ROWS = 1024


@contextmanager
def open_parquet(path: File, columns: Sequence[str] = ()) -> Iterator[Any]:
    """Open a file as pyarrow's `ParquetFile` and check its columns.

    Args:
        path: The file or its URL.
        columns: The columns that the file must have.

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
    path: File, columns: Sequence[str], *, batch_rows: int = BATCH_ROWS
) -> Iterator[dict[str, list[Any]]]:
    """Yield the values of some columns by name, at most `batch_rows` rows at a time.

    Raises:
        MolsliceError: As in `open_parquet`.
    """
    with open_parquet(path, columns) as file:
        for batch in file.iter_batches(batch_size=batch_rows, columns=list(columns)):
            yield batch.to_pydict()
