"""One's own molecules: a CSV file with a column of SMILES and columns of targets."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from molslice.data import prepare, splits, table
from molslice.data.base import Kind, MoleculeDataset
from molslice.data.store import MoleculeStore
from molslice.types import MolsliceError


class Csv(MoleculeDataset):
    """Molecules and targets from `.csv` or `.csv.gz`; a target is missing where its cell is empty.

    Args:
        path: the file; with `valid_path` or `test_path` the one to train on.
        smiles_column: name of the column of SMILES. One that cannot be read keeps its row, with the reason.
        target_columns: name or names of the columns of targets.
        units: unit of all targets, or the unit of each; none by default.
        kind: `regression`, or `classification` with targets 0 and 1 (true and false).
        split: how to divide the rows: `random` (of `{kind: random, fractions: [0.8, 0.1, 0.1], seed: 0}`),
            `{kind: scaffold, fractions: …}` (molecules of one Bemis-Murcko scaffold stay together), or
            `{kind: column, column: name}` (whose cells say train, valid or test). By default random, or,
            where `valid_path` is given, not at all.
        valid_path: a file of the same columns to validate on.
        test_path: a file of the same columns to test on. Without `valid_path`, `split` then divides `path`
            into train and valid alone.
        atom_order: `canonical`, or `input` for the atoms as the SMILES lists them.
        max_atoms: larger molecules are refused, with that as their reason.
        workers: processes for the preparation; by default all cores where it pays.
        cache_dir: where the prepared store goes, by default the user's cache.

    Raises:
        MolsliceError: whatever is wrong with the options or the files; names file, row, column and value.
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
            smiles, targets, prepare.Featurizing(max_atoms, atom_order, workers), cache_dir
        )
        self._refuse_if_all_failed()
        self.splits = _divide(choice, sizes, smiles, words)

    def smiles(self) -> list[str]:
        """The SMILES of every row: those of `path`, then of `valid_path`, then of `test_path`."""
        chunks = (
            chunk for file in self.files.values() for chunk in table.read_columns(file, [self.smiles_column])
        )
        return [text for chunk in chunks for text in chunk[self.smiles_column]]

    def _read(
        self, split_column: str | None
    ) -> tuple[list[str], np.ndarray, list[str] | None, dict[str, int]]:
        """SMILES, targets [rows, T], the words of the column of the split, and the rows of each file."""
        extra = [] if split_column is None else [split_column]
        smiles: list[str] = []
        targets: list[np.ndarray] = []
        words: list[str] = []
        sizes: dict[str, int] = {}
        for name, file in self.files.items():
            before = len(smiles)
            for chunk in table.read_columns(file, [self.smiles_column, *self.target_names, *extra]):
                targets.append(self._numbers(chunk, file, len(smiles) - before))
                smiles += chunk[self.smiles_column]
                words += chunk[split_column] if split_column is not None else []
            sizes[name] = len(smiles) - before
        values = np.concatenate(targets)
        for column, known in zip(self.target_names, np.isfinite(values).T, strict=True):
            if not known.any():
                raise MolsliceError(f"{self.source}: the column {column!r} has no value in any row")
        return smiles, values, words if split_column is not None else None, sizes

    def _numbers(self, chunk: dict[str, list[str]], file: Path, first_row: int) -> np.ndarray:
        read = table.labels if self.kind == "classification" else table.numbers
        columns = [
            read(chunk[name], path=file, column=name, first_row=first_row) for name in self.target_names
        ]
        return np.stack(columns, axis=1)

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
            "sha256": [prepare.file_checksum(file) for file in self.files.values()],
            "smiles_column": self.smiles_column,
            "kind": self.kind,
        }
        source = prepare.Source(
            self.source, chunks, len(smiles), self.target_names, self.target_units, identity
        )
        return prepare.prepare_store(source, how, prepare.cache_folders(cache_dir))


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
            f"units must be one text, or one for each of {len(columns)} targets, got {units!r}"
        )
    return tuple(units)


def _divide(
    choice: splits.SplitChoice, sizes: dict[str, int], smiles: list[str], words: list[str] | None
) -> splits.Splits:
    bounds = np.cumsum([0, *sizes.values()])
    by_file = {
        name: np.arange(start, stop, dtype=np.int64)
        for name, start, stop in zip(sizes, bounds[:-1], bounds[1:], strict=True)
    }
    if choice.kind == "files":
        return by_file
    if words is not None:
        return splits.column_split(words, str(choice.column))
    rows = by_file.pop("train")
    if choice.kind == "scaffold":
        from molslice.chem.scaffold import scaffolds  # needs rdkit

        return splits.scaffold_split(rows, scaffolds(smiles[: len(rows)]), choice.fractions) | by_file
    return splits.random_split(rows, choice.fractions, choice.seed) | by_file
