"""CSV files as columns of text, and the numbers in them, with errors that name row, column and value.

Rows count from 0, the header not counted.
"""

import contextlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from molslice.registry import near_names
from molslice.types import MolsliceError

MISSING = ("", "nan", "na", "n/a", "null", "none")
TRUTH = {"true": "1", "false": "0"}


def column_names(path: Path) -> list[str]:
    """The header of a CSV file, which may be compressed with gzip.

    Raises:
        MolsliceError: no such file, nothing in it, or not readable as CSV.
    """
    with _reading(path):
        return pd.read_csv(path, nrows=0, encoding="utf-8-sig").columns.tolist()


def read_columns(
    path: Path, columns: Sequence[str], *, chunk_rows: int | None = None
) -> Iterator[dict[str, list[str]]]:
    """The text of some columns, chunk by chunk; an empty cell is an empty string.

    Raises:
        MolsliceError: as `column_names`, or no such column (the message names those there are), or no rows.
    """
    known = column_names(path)
    for column in columns:
        if column not in known:
            raise MolsliceError(f"{path} has no column {column!r}; {near_names(column, known)}")
    rows = 0
    with (
        _reading(path),
        pd.read_csv(
            path,
            usecols=list(dict.fromkeys(columns)),
            dtype=str,
            keep_default_na=False,
            encoding="utf-8-sig",
            index_col=False,
            chunksize=chunk_rows or 1_000_000,
        ) as reader,
    ):
        for frame in reader:
            rows += len(frame)
            yield {column: frame[column].fillna("").tolist() for column in columns}
    if not rows:
        raise MolsliceError(f"{path} has a header and no rows")


def numbers(texts: Sequence[str], *, path: Path, column: str, first_row: int = 0) -> np.ndarray:
    """Text as float32, NaN where it is empty or says so.

    Raises:
        MolsliceError: not a number, infinite, or beyond float32; names file, row, column and text.
    """
    text = pd.Series(texts, dtype=object).str.strip()
    missing = text.str.lower().isin(MISSING).to_numpy()
    wide = np.array(pd.to_numeric(text.where(~missing, None), errors="coerce"), dtype=np.float64)
    with np.errstate(over="ignore"):
        values = wide.astype(np.float32)
    for wrong, complaint in (
        (np.isnan(wide) & ~missing, "is not a number"),
        (np.isinf(wide), "is infinite; leave the cell empty where the target is unknown"),
        (np.isinf(values), "is too large for 32-bit floating point"),
    ):
        if wrong.any():
            row = int(wrong.argmax())
            raise _complaint(path, first_row + row, column, texts[row], complaint)
    return values


def labels(texts: Sequence[str], *, path: Path, column: str, first_row: int = 0) -> np.ndarray:
    """Text as float32 zeros and ones, NaN where it is empty; true and false are read too.

    Raises:
        MolsliceError: anything else; names file, row, column and text.
    """
    words = [TRUTH.get(text.strip().lower(), text) for text in texts]
    values = numbers(words, path=path, column=column, first_row=first_row)
    wrong = ~np.isin(values, (0.0, 1.0)) & ~np.isnan(values)
    if wrong.any():
        row = int(wrong.argmax())
        raise _complaint(path, first_row + row, column, texts[row], "is neither 0 nor 1")
    return values


def _complaint(path: Path, row: int, column: str, text: str, complaint: str) -> MolsliceError:
    return MolsliceError(f"{path}, row {row} (counted from 0), column {column!r}: {text!r} {complaint}")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what goes wrong with a file into one line that names it."""
    try:
        yield
    except MolsliceError:
        raise
    except FileNotFoundError as error:
        raise MolsliceError(f"no such file: {path}") from error
    except pd.errors.EmptyDataError as error:
        raise MolsliceError(f"{path} is empty") from error
    except (OSError, EOFError, zlib.error, pd.errors.ParserError, UnicodeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise MolsliceError(f"{path} cannot be read as CSV: {reason}") from error
