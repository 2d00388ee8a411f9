"""The columns of a table that a fit uses: their names, and what each is for."""

from collections import Counter
from collections.abc import Iterable, Sequence

from molslice.data.molecules.input_files import name_of
from molslice.data.molecules.tables import MoleculeTable
from molslice.files.tables import trimmed
from molslice.files.urls import File
from molslice.fitting.data import SPLITS, FitOptions
from molslice.registry import near_names
from molslice.types import MolsliceError

__all__ = ["check_names", "check_side_columns", "checked_columns", "checked_targets", "columns_of_targets"]


def checked_targets(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the measured columns.

    Raises:
        MolsliceError: There is no name, a name occurs twice, or one is not text.
    """
    names = checked_columns("target", columns)
    if not names:
        raise MolsliceError("give at least one target column")
    return names


def checked_columns(role: str, columns: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns, which have the role `target` or `condition`.

    Raises:
        MolsliceError: A name occurs twice, or one is not text.
    """
    names = (columns,) if isinstance(columns, str) or not isinstance(columns, Iterable) else tuple(columns)
    if not all(isinstance(name, str) for name in names):
        raise MolsliceError(f"{role}s must be names of columns, got {names!r}")
    if twice := [name for name, count in Counter(name.strip() for name in names).items() if count > 1]:
        raise MolsliceError(f"the {role} {twice[0]!r} is given twice")
    return names


def columns_of_targets(
    option: str, columns: str | Sequence[str | None] | None, names: Sequence[str]
) -> tuple[str | None, ...] | None:
    """Return the column beside each target that an option names; None if it is not given.

    A target whose column is None or "" has no column, None.

    Raises:
        MolsliceError: It is not one column, or one for each target.
    """
    if columns is None:
        return None
    given = (columns,) * len(names) if isinstance(columns, str) else tuple(columns)
    if len(given) == 1:
        given *= len(names)
    if len(given) != len(names) or not all(column is None or isinstance(column, str) for column in given):
        raise MolsliceError(
            f"{option} must be one column, or one for each target ({len(names)}), got {columns!r}"
        )
    return tuple(column or None for column in given)


def check_names(path: File, table: MoleculeTable, names: Sequence[str], split: str) -> None:
    """Refuse targets that are the column of SMILES, and a split that is no column."""
    if (column := table.smiles_column) in names:
        raise MolsliceError(
            f"{path}: the column {column!r} cannot be both the SMILES and a target; name the column of "
            "SMILES with --smiles-column"
        )
    known = [trimmed(name) for name in table.names]
    if split not in SPLITS and trimmed(split) not in known:
        raise MolsliceError(f"unknown split {split!r}; {near_names(split, [*SPLITS, *known])}")


def check_side_columns(table: MoleculeTable, targets: Sequence[str], options: FitOptions) -> None:
    """Check the columns of dates and groups.

    Raises:
        MolsliceError: A column is missing, is used for something else, or is given without need.
    """
    if options.split == "time" and options.by is None:
        raise MolsliceError("the split time needs the column of the dates: --by COLUMN (by)")
    if options.by is not None and options.split != "time":
        raise MolsliceError(f"--by (by) is for the split time, but the split is {options.split!r}")
    for use, name in options.side_columns.items():
        if use == "split":  # it may be a target, as in older versions
            continue
        place = table.find(name)
        if place in (table.find(target) for target in targets) or place == table.find(table.smiles_column):
            other = "the SMILES" if place == table.find(table.smiles_column) else "a target"
            raise MolsliceError(
                f"{name_of(table.paths)}: the column {name!r} cannot be both {other} and the {use}"
            )
