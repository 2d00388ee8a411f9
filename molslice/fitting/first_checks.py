"""What a fit is refused for within a second: the module imports nothing that takes longer."""

from collections.abc import Iterable, Sequence
from numbers import Real
from pathlib import Path

from molslice.data.molecules.input_files import check_rereadable, find_files
from molslice.data.molecules.side_columns import find_target
from molslice.data.molecules.tables import open_molecules
from molslice.errors import MolsliceError
from molslice.files.atomic import is_taken
from molslice.files.tables import trimmed
from molslice.files.urls import File
from molslice.registry import near_names

SPLITS = ("random", "scaffold", "cluster", "time", "all")  # any other is a column
MIN_FOLDS, MAX_FOLDS = 2, 20
MAX_SEED = 2**32 - 1 - MAX_FOLDS  # of scikit-learn; each model adds its number, below MAX_FOLDS


def refits_all(split: str, refit: bool | None) -> bool:
    """Return whether a fit is repeated with all rows: as asked, by default unless a column holds rows out."""
    return split in SPLITS if refit is None else refit


def check_times(minutes: float | None, tune: float | None) -> None:
    """Check the time limits of the whole fit and of its tuning, in minutes.

    Raises:
        MolsliceError: One is not a positive number, or the tuning takes all the time.
    """
    for name, value in (("minutes", minutes), ("tune", tune)):
        if value is not None and not (isinstance(value, Real) and value > 0):
            raise MolsliceError(f"{name} must be a positive number, got {value!r}")
    if minutes is not None and tune is not None and tune >= minutes:
        raise MolsliceError(f"tune must be less than the {minutes:g} minutes of the whole fit, got {tune:g}")


def check_split(split: str, columns: Iterable[str]) -> None:
    """Check that a split is one of `SPLITS` or a column.

    Raises:
        MolsliceError: It is neither.
    """
    names = [trimmed(name) for name in columns]
    if split not in SPLITS and trimmed(split) not in names:
        raise MolsliceError(f"unknown split {split!r}; {near_names(split, [*SPLITS, *names])}")


def check_table(
    table: File,
    targets: Iterable[str],
    columns: Iterable[str] = (),
    split: str | None = None,
    *,
    smiles_column: str | None = None,
    delimiter: str | None = None,
) -> None:
    """Check that a table can be opened and has a column of SMILES, some others, and the one that divides it.

    The table of a URL is not opened: `fit` reads it once.

    Raises:
        MolsliceError: It cannot be opened, or a column is missing.
    """
    files = find_files([table])
    check_rereadable(files)
    if not all(isinstance(file, Path) for file in files):
        return
    with open_molecules([table], smiles_column=smiles_column, delimiter=delimiter) as opened:
        for name in targets:
            find_target(opened, name)
        for name in columns:
            opened.find(name)
        if split is not None:
            check_split(split, opened.names)


def check_folder(folder: Path, tables: Sequence[File]) -> None:
    """Check that a folder is free for a model.

    Raises:
        MolsliceError: It exists, or is one of the tables.
    """
    for table in tables:
        if isinstance(table, Path) and folder.exists() and table.exists() and folder.samefile(table):
            raise MolsliceError(f"{folder} is the table; choose another folder for the model")
    if is_taken(folder):
        raise MolsliceError(f"{folder} exists; choose another folder, or remove it")
