"""The molecules that Python code gives to a model: texts, RDKit molecules, and collections of them.

One row out for each molecule in, always: a missing or unusable value keeps its row and has a reason.
"""

import sys
from collections.abc import Iterable, Mapping, Set
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from molslice.chem.rdkit_mol import is_rdkit_mol
from molslice.data.molecules.smiles_column import find_smiles_column
from molslice.files.tables import Row, Table, Unreadable
from molslice.types import MolsliceError

__all__ = ["Molecules", "molecule_rows"]

Molecules = Any
"""One SMILES or RDKit molecule, or a list, array, pandas or polars Series or DataFrame of them."""

FORMS = "a SMILES, an RDKit molecule, or a list, array, Series or DataFrame of them"
MISSING = "no SMILES given"


def molecule_rows(molecules: Molecules) -> list[str]:
    """Return the SMILES of each molecule, in order.

    A string or an RDKit molecule is one row. An array has one dimension, or two with one column. In a
    DataFrame the column of SMILES is found as in files: by a usual name such as `smiles`, or as the only
    column of SMILES. A DataFrame of one column needs no name. The index of pandas is not used.

    Args:
        molecules: One or several molecules: see `Molecules`.

    Returns:
        One text for each row. It is an `Unreadable` with the reason if the value is missing (None, NaN,
        `pandas.NA`), is neither a string nor an RDKit molecule, or is a molecule without SMILES.

    Raises:
        MolsliceError: `molecules` is something else, or the column of SMILES is not clear.
    """
    if isinstance(molecules, str) or is_rdkit_mol(molecules):
        return [_row(molecules)]
    if _is_frame(molecules):
        molecules = _column(molecules)
    if isinstance(molecules, np.ndarray):
        molecules = _flat(molecules)
    wrong = bytes | bytearray | memoryview | Mapping | Set
    if not isinstance(molecules, Iterable) or isinstance(molecules, wrong):
        raise MolsliceError(f"molecules must be {FORMS}, got {type(molecules).__name__}")
    return [_row(value) for value in molecules]


def _row(value: object) -> str:
    """Return the SMILES of one value, or an `Unreadable`."""
    if isinstance(value, str):
        return value if isinstance(value, Unreadable) else str(value)
    if is_rdkit_mol(value):
        from molslice.chem.rdkit_mol import mol_to_smiles
        from molslice.chem.smiles import ChemError  # needs rdkit

        try:
            return mol_to_smiles(value)  # type: ignore[arg-type]
        except ChemError as error:
            return Unreadable(str(error))
    return Unreadable(MISSING if _is_missing(value) else f"not a string but {type(value).__name__}")


def _is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, NaT, `pandas.NA` or masked."""
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _flat(array: np.ndarray) -> np.ndarray:
    """Return an array of rows.

    Raises:
        MolsliceError: It has more than one column.
    """
    if array.ndim <= 1:
        return array.reshape(-1)
    if array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    raise MolsliceError(f"an array of molecules must have one column, got the shape {array.shape}")


def _is_frame(value: object) -> bool:
    """Return whether a value is a DataFrame of pandas or polars, neither of which is imported."""
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if polars is not None and isinstance(value, polars.LazyFrame):
        raise MolsliceError("molecules must not be a LazyFrame; call collect() first")
    return any(library is not None and isinstance(value, library.DataFrame) for library in (pandas, polars))


def _column(frame: Any) -> Iterable[object]:  # noqa: ANN401
    """Return the column of SMILES of a DataFrame."""
    table = _FrameTable(frame)
    return table.column(find_smiles_column(table, alone=True))


class _FrameTable(Table):
    """A DataFrame as a table, to find its column of SMILES.

    Args:
        frame: The DataFrame.
    """

    format = "DataFrame"

    def __init__(self, frame: Any) -> None:  # noqa: ANN401
        super().__init__(Path("the DataFrame"))
        self._frame = frame
        self.names = [str(name) for name in frame.columns]
        self._rows = zip(*map(self._values, range(len(self.names))), strict=True)

    @property
    def position(self) -> int:
        """Not known."""
        return 0

    def _values(self, index: int) -> Iterable[object]:
        return self._frame.iloc[:, index] if hasattr(self._frame, "iloc") else self._frame[:, index]

    def read_rows(self, size: int) -> list[Row]:
        """Read the next rows, at most `size`. Values that are not texts are empty cells."""
        rows = islice(self._rows, size)
        return [Row([_row(value) for value in values], None) for values in rows]

    def column(self, name: str) -> Iterable[object]:
        """Return the values of a column."""
        return self._values(self.find(name))
