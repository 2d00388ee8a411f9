"""The molecules and conditions that Python code gives to a model, in every usual form.

One row out for each molecule in, always: a missing or unusable value keeps its row and has a reason.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from molslice.data.molecules.conditions import Condition, Conditioned, conditioned_rows
from molslice.data.molecules.smiles_column import find_smiles_column
from molslice.files.tables import Row, Table, Unreadable
from molslice.types import MolsliceError

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Molecules = Any
"""One SMILES or RDKit molecule, or a list, array, pandas or polars Series or DataFrame of them."""

Conditions = Mapping[str, Any]
"""For each condition by name: one value for all molecules, or a list, array or Series of values."""

FORMS = "a SMILES, an RDKit molecule, or a list, array, Series or DataFrame of them"
MISSING = "no SMILES given"


def molecule_rows(molecules: Molecules) -> list[str]:
    """Return the SMILES of each molecule, in order.

    A string or an RDKit molecule is one row. An array has one dimension, or two with one column. In a
    DataFrame the column of SMILES is found as in files: by a usual name such as `smiles`, or as the only
    column of SMILES. A DataFrame of one column needs no name. The index of pandas is not used.

    Returns:
        One text for each row. It is an `Unreadable` with the reason if the value is missing (None, NaN,
        `pandas.NA`), is neither a string nor an RDKit molecule, or is a molecule without SMILES.

    Raises:
        MolsliceError: `molecules` is something else, or the column of SMILES is not clear.
    """
    if isinstance(molecules, str) or _is_rdkit_mol(molecules):
        return [_row(molecules)]
    if _is_frame(molecules):
        table = _FrameTable(molecules)
        molecules = table.column(find_smiles_column(table, alone=True))
    if isinstance(molecules, np.ndarray):
        if molecules.ndim > 1 and (molecules.ndim > 2 or molecules.shape[1] != 1):
            raise MolsliceError(
                f"an array of molecules must have one column, got the shape {molecules.shape}"
            )
        molecules = molecules.reshape(-1)
    wrong = bytes | bytearray | memoryview | Mapping | Set
    if not isinstance(molecules, Iterable) or isinstance(molecules, wrong):
        raise MolsliceError(f"molecules must be {FORMS}, got {type(molecules).__name__}")
    return [_row(value) for value in molecules]


def given_rows(
    molecules: Molecules,
    given: Conditions | None,
    wanted: Sequence[Condition],
    model: str,
    *,
    partner: str | None = None,
    smiles_column: str | None = None,
) -> list[str]:
    """Return the rows that a model takes: `molecule_rows` with conditions and second molecule of each.

    Args:
        molecules: The molecules.
        given: The conditions; None takes them from the columns of `molecules` if it is a DataFrame.
        wanted: The conditions that the model takes.
        model: The name of the model, for messages.
        partner: The name of the second molecule, which is given as a condition; None without one.
        smiles_column: The column of SMILES of a DataFrame; None finds it.

    Raises:
        MolsliceError: As in `molecule_rows`; a condition is missing or unknown, or has another number of
            values than molecules.
    """
    names = [*(condition.name for condition in wanted), *([] if partner is None else [partner])]
    is_frame = _is_frame(molecules)
    if is_frame and smiles_column is not None:
        rows = molecule_rows(frame_cells(molecules, [smiles_column])[smiles_column])
    else:
        rows = molecule_rows(molecules)
    if given is None and not (names and is_frame):
        return rows  # a model with conditions refuses rows without
    if given is None:
        cells = frame_cells(molecules, names)
    elif isinstance(given, Mapping):
        cells = {name: _values_of(name, given[name], len(rows)) for name in given}
    else:
        raise MolsliceError(f"conditions must be a dict of names and values, got {type(given).__name__}")
    check_conditions(cells, names, model)
    return conditioned_rows(rows, cells, wanted, partner)


def check_conditions(given: Iterable[str], names: Sequence[str], model: str) -> None:
    """Check that the given conditions are the conditions of a model.

    Raises:
        MolsliceError: One is missing or unknown.
    """
    given = list(given)
    if set(names) != set(given):
        takes = f"takes the conditions {', '.join(names)}" if names else "takes no conditions"
        raise MolsliceError(f"{model} {takes}, got {', '.join(map(str, given)) or 'no values of them'}")


def frame_cells(frame: Any, names: Sequence[str]) -> dict[str, Sequence[object]]:  # noqa: ANN401
    """Return the values of columns of a DataFrame, None where missing.

    Raises:
        MolsliceError: `frame` is not a DataFrame, or a column is missing.
    """
    if not _is_frame(frame):
        raise MolsliceError(f"a DataFrame with the columns {', '.join(names)} is needed")
    table = _FrameTable(frame)
    return {
        name: [None if is_missing_value(value) else value for value in table.column(name)] for name in names
    }


def _values_of(name: str, value: Any, count: int) -> list[object]:  # noqa: ANN401
    """Return a value of a condition for each of some rows, None where missing."""
    if isinstance(value, str) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        values = [value] * count
    else:
        values = list(value)
        if len(values) != count:
            raise MolsliceError(f"the condition {name!r} has {len(values)} values for {count} molecules")
    return [None if is_missing_value(cell) else cell for cell in values]


def _row(value: object) -> str:
    """Return the SMILES of one value, or an `Unreadable`."""
    if isinstance(value, str):
        return value if isinstance(value, Unreadable | Conditioned) else str(value)
    if _is_rdkit_mol(value):
        from molslice.chem.smiles import ChemError, mol_to_smiles  # needs rdkit

        try:
            return mol_to_smiles(value)
        except ChemError as error:
            return Unreadable(str(error))
    return Unreadable(MISSING if is_missing_value(value) else f"not a string but {type(value).__name__}")


def _is_rdkit_mol(value: object) -> "TypeGuard[Mol]":
    """Return whether a value is an RDKit molecule. Does not import rdkit."""
    chem = sys.modules.get("rdkit.Chem")
    return chem is not None and isinstance(value, chem.Mol)


def is_missing_value(value: object) -> bool:
    """Return whether a value is None, NaN, NaT, `pandas.NA` or masked."""
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _is_frame(value: object) -> bool:
    """Return whether a value is a DataFrame of pandas or polars, neither of which is imported."""
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if polars is not None and isinstance(value, polars.LazyFrame):
        raise MolsliceError("molecules must not be a LazyFrame; call collect() first")
    return any(library is not None and isinstance(value, library.DataFrame) for library in (pandas, polars))


class _FrameTable(Table):
    """A DataFrame as a table, to find its column of SMILES. Values that are not texts are empty cells."""

    format = "DataFrame"

    def __init__(self, frame: Any) -> None:  # noqa: ANN401
        super().__init__(Path("the DataFrame"))
        self._frame = frame
        self.names = [str(name) for name in frame.columns]
        values = zip(*map(self._values, range(len(self.names))), strict=True)
        self.rows = (Row([_row(value) for value in row], None) for row in values)

    def _values(self, index: int) -> Iterable[object]:
        return self._frame.iloc[:, index] if hasattr(self._frame, "iloc") else self._frame[:, index]

    def column(self, name: str) -> Iterable[object]:
        """Return the values of a column."""
        return self._values(self.find(name))
