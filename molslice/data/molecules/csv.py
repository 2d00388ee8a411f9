"""Molecules from a user's CSV file with a column of SMILES and columns of targets."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from molslice.data import splits
from molslice.data.base import Kind
from molslice.data.molecules import prepare
from molslice.data.molecules.base import MoleculeDataset
from molslice.data.molecules.store import MoleculeStore
from molslice.files import cache, tables
from molslice.types import MolsliceError

COARSE = 0.01  # largest rounding error of a target, relative to its standard deviation
CONSTANT = 1e-12  # spread of a constant target relative to its value: rounding of the mean


class Csv(MoleculeDataset):
    """Molecules and targets from `.csv` or `.csv.gz`. An empty cell is a missing target.

    Args:
        path: The file; the training file if `valid_path` or `test_path` is given.
        smiles_column: Name of the column of SMILES. A row whose SMILES cannot be read, or with more or fewer
            cells than the header, keeps its row number and gets no prediction and no target.
        target_columns: Name or names of the columns of targets.
        units: Unit of all targets, or one unit per target; by default no unit.
        kind: `regression`, or `classification` with targets 0 and 1 (or false and true).
        split: How to divide the rows: `random` (or `{kind: random, fractions: [0.8, 0.1, 0.1], seed: 0}`),
            `{kind: scaffold, fractions: …}` (all molecules with one Bemis-Murcko scaffold in one split), or
            `{kind: column, column: name}` (a column that holds train, valid or test). By default random.
            Not used with `valid_path`.
        valid_path: A file with the same columns to validate on.
        test_path: A file with the same columns to test on. Without `valid_path`, `split` divides `path` into
            train and valid only.
        atom_order: `canonical`, or `input` to keep the order of the atoms in the SMILES.
        max_atoms: Maximum number of atoms; the row of a larger molecule is unreadable.
        descriptors: Whether a model gets RDKit's descriptors of each molecule too. They take several times
            as long as the arrays.
        workers: Number of processes for the preparation; by default all cores for large files.
        cache_dir: Folder for the prepared store; by default the user's cache.

    Raises:
        MolsliceError: An option or a file is invalid. The message names file, row, column and value.
    """

    def __init__(
        self,
        *,
        path: str | os.PathLike[str],
        target_columns: str | Sequence[str],
        smiles_column: str = "smiles",
        units: str | Sequence[str] | None = None,
        kind: Kind = "regression",
        split: str | Mapping[str, Any] | None = None,
        valid_path: str | os.PathLike[str] | None = None,
        test_path: str | os.PathLike[str] | None = None,
        atom_order: str = "canonical",
        max_atoms: int = 256,
        descriptors: bool = False,
        workers: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.source, self.smiles_column = str(path), smiles_column
        self.target_names = _checked_columns(target_columns, smiles_column)
        self.target_units = _checked_units(units, self.target_names)
        if kind not in ("regression", "classification"):
            raise MolsliceError(f"kind must be regression or classification, got {kind!r}")
        self.kind = kind
        self.files = {"train": Path(path)}
        self.files |= {
            name: Path(file)
            for name, file in (("valid", valid_path), ("test", test_path))
            if file is not None
        }
        choice = splits.checked_choice(split, set(self.files))
        smiles, targets, words, sizes = self._read(choice.column)
        self.store = self._prepare(
            smiles, targets, prepare.Featurizing(max_atoms, atom_order, workers, descriptors), cache_dir
        )
        self._refuse_if_all_failed()
        if choice.column is not None:
            self.splits = splits.column_split(words, choice.column, self.where)
        else:
            groups = _scaffolds(smiles[: sizes["train"]]) if choice.kind == "scaffold" else None
            self.splits = choice.division.divide(splits.consecutive_rows(sizes), self.source, groups=groups)

    def smiles(self) -> list[str]:
        """Read the SMILES of every row: those of `path`, then `valid_path`, then `test_path`."""
        return [
            text
            for file in self.files.values()
            for chunk in tables.read_columns(file, [self.smiles_column])
            for text in chunk[self.smiles_column]
        ]

    def where(self, row: int) -> str:
        """Describe a row, an index from 0, by file, row and line for messages."""
        for file, lines in zip(self.files.values(), self._lines, strict=True):
            if row < len(lines):
                return tables.place_of(file, row + 1, int(lines[row]))
            row -= len(lines)
        raise IndexError(row)

    def _read(self, split_column: str | None) -> tuple[list[str], np.ndarray, list[str], dict[str, int]]:
        """Read SMILES, targets [rows, T], the split column, and the number of rows of each file."""
        extra = [] if split_column is None else [split_column]
        smiles: list[str] = []
        targets: list[np.ndarray] = []
        words: list[str] = []
        self._lines: list[np.ndarray] = []  # the line number of each row, by file
        for file in self.files.values():
            lines: list[int] = []
            for chunk in tables.read_columns(file, [self.smiles_column, *self.target_names, *extra]):
                targets.append(self._numbers(chunk))
                smiles += chunk[self.smiles_column]
                words += chunk[split_column] if split_column is not None else []
                lines += chunk.lines
            self._lines.append(np.array(lines))
        values = np.concatenate(targets)
        for column, known in zip(self.target_names, np.isfinite(values).T, strict=True):
            if not known.any():
                raise MolsliceError(f"the column {column!r} of {self.source} has no value in any row")
        values = _as_float32(values, self.target_names, self.source)
        sizes = dict(zip(self.files, map(len, self._lines), strict=True))
        return smiles, values, words, sizes

    def _numbers(self, chunk: tables.Chunk) -> np.ndarray:
        read = tables.labels if self.kind == "classification" else tables.numbers
        return np.stack([read(chunk[name], name, chunk.where) for name in self.target_names], axis=1)

    def _prepare(
        self,
        smiles: list[str],
        targets: np.ndarray,
        how: prepare.Featurizing,
        cache_dir: str | os.PathLike[str] | None,
    ) -> MoleculeStore:
        def chunks() -> Iterator[tuple[list[str], np.ndarray]]:
            for start in range(0, len(smiles), prepare.CHUNK_ROWS):
                part = slice(start, start + prepare.CHUNK_ROWS)
                yield smiles[part], targets[part]

        identity = {
            "format": "csv",
            "reader": tables.READER_VERSION,
            "sha256": [cache.file_checksum(file) for file in self.files.values()],
            "smiles_column": self.smiles_column,
        }
        source = prepare.Source(
            self.source, chunks, len(smiles), self.target_names, self.target_units, identity
        )
        return prepare.prepare_store(source, how, cache.cache_folders(cache_dir))


def _as_float32(values: np.ndarray, columns: Sequence[str], source: str) -> np.ndarray:
    """Round targets to float32.

    Args:
        values: The targets, float64 [rows, T].
        columns: Their columns, for messages.
        source: Their file, for messages.

    Raises:
        MolsliceError: The values of a column differ by little more than their rounding.
    """
    rounded = values.astype(np.float32)
    largest, spread = np.nanmax(np.abs(values), axis=0), np.nanstd(values, axis=0)
    errors = np.nanmax(np.abs(rounded - values), axis=0)
    for column, name in enumerate(columns):
        if errors[column] > COARSE * spread[column] > COARSE * CONSTANT * largest[column]:
            raise MolsliceError(
                f"the column {name!r} of {source} has a spread of {spread[column]:.3g}, and 32-bit floating "
                f"point rounds it by up to {errors[column]:.3g}; subtract a constant or change the unit"
            )
    return rounded


def _checked_columns(target_columns: str | Sequence[str], smiles_column: str) -> tuple[str, ...]:
    columns = (target_columns,) if isinstance(target_columns, str) else tuple(target_columns)
    if not columns or not all(isinstance(column, str) for column in columns):
        raise MolsliceError(f"target_columns must name at least one column, got {target_columns!r}")
    if len({smiles_column, *columns}) <= len(columns):
        raise MolsliceError(
            f"target_columns must differ from each other and from {smiles_column!r}: {columns}"
        )
    return columns


def _checked_units(units: str | Sequence[str] | None, columns: tuple[str, ...]) -> tuple[str, ...]:
    if units is None or isinstance(units, str):
        return (units or "",) * len(columns)
    if len(units) != len(columns) or not all(isinstance(unit, str) for unit in units):
        raise MolsliceError(
            f"units must be one unit, or one for each of {len(columns)} targets, got {units!r}"
        )
    return tuple(units)


def _scaffolds(smiles: list[str]) -> list[str]:
    from molslice.chem.scaffold import scaffolds  # needs rdkit

    return scaffolds(smiles)
