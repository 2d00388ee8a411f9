"""Molecules from a user's tables with a column of SMILES and columns of targets."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from molslice.data import splits
from molslice.data.molecules import prepare
from molslice.data.molecules.base import MoleculeDataset
from molslice.data.molecules.fragments import choose_fragments
from molslice.data.molecules.input_files import (
    check_rereadable,
    find_files,
    listed_paths,
    name_of,
    warn_of_repeated,
)
from molslice.data.molecules.report import TargetStatistics
from molslice.data.molecules.side_columns import SideColumns
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.tables import check_decimal_mark, find_classes, open_molecules
from molslice.data.split_choice import SplitChoice, checked_choice
from molslice.data.target_values import check_outliers, checked_kind, find_kind, listed_values
from molslice.files import cache
from molslice.files.tables import (
    READER_VERSION,
    Chunk,
    NumberFormat,
    file_format,
    labels,
    numbers,
    place_of,
)
from molslice.files.tables.classes import class_key, class_numbers
from molslice.files.urls import File, as_file
from molslice.types import MolsliceError

ROWS_AT_ONCE = 100_000


class Csv(MoleculeDataset):
    """Molecules and targets from separated values, Parquet, JSON lines or SDF. An empty cell has no target.

    Args:
        path: A file, a URL such as `s3://bucket/molecules.csv`, a pattern such as `parts/*.csv`, or a list of
            them; the training files if `valid_path` or `test_path` is given.
        smiles_column: Name of the column of SMILES; by default it is found. A row whose SMILES cannot be
            read, or with more or fewer cells than the header, keeps its row number and gets no prediction
            and no target.
        delimiter: The character between cells; by default it is found.
        target_columns: Name or names of the columns of targets.
        units: Unit of all targets, or one unit per target; by default no unit.
        kind: `regression`, or `classification` with targets 0 and 1 (or false and true). By default
            `classification` if all targets are 0 and 1. `multiclass` for one target of several `classes`, and
            `mixed` for targets that differ, are for models of `molslice fit` only.
        classes: Names of the classes of each target, in the order of their numbers, if the cells are names;
            of mixed targets, none for a number.
        decimal: The decimal mark of the targets, `.` or `,`; with `,`, a point separates thousands.
        missing_values: Values of targets that stand for a missing value, such as -999 or `n.d.`.
        outliers: Whether to `refuse` targets with values far outside the others, or to `keep` them.
        split: How to divide the rows: `random` (or `{kind: random, fractions: [0.8, 0.1, 0.1], seed: 0}`),
            `{kind: scaffold, fractions: …}` (all molecules with one Bemis-Murcko scaffold in one split), or
            `{kind: column, column: name}` (a column that holds train, valid or test; without valid rows, the
            option `valid_fraction`, 0.1, is drawn from train). By default random. Not used with `valid_path`.
        valid_path: Files with the same columns to validate on.
        test_path: Files with the same columns to test on. Without `valid_path`, `split` divides `path` into
            train and valid only.
        atom_order: `canonical`, or `input` for the atoms of the SMILES as OGB has them.
        max_atoms: Maximum number of atoms; the row of a larger molecule is unreadable.
        descriptors: Whether a model gets RDKit's descriptors of each molecule too. They take several times
            as long as the arrays.
        geometry: Whether to compute a conformer of each molecule too, by ETKDG, from which a model learns the
            distances of atoms in training (`training.distance_weight`). Predictions need none. It takes ten
            to fifty times as long as the arrays.
        fragment: What happens to a mixture of several molecules: `keep` it, take the `largest` one, or
            `refuse` the row. A model trained with it does the same in predictions.
        wildcards: `refuse` the rows with a wildcard, an R-group or a bond of any order (`*`, `~`), or `keep`
            them as graphs. A model trained with it does the same in predictions.
        workers: Number of processes for the preparation; by default all cores for large files.
        cache_dir: Folder for the prepared store; by default the user's cache.

    Raises:
        MolsliceError: An option or a file is invalid. The message names file, row, column and value.
    """

    def __init__(
        self,
        *,
        path: str | os.PathLike[str] | Sequence[str],
        target_columns: str | Sequence[str],
        smiles_column: str | None = None,
        delimiter: str | None = None,
        units: str | Sequence[str] | None = None,
        kind: Literal["regression", "classification", "multiclass", "mixed"] | None = None,
        classes: Sequence[Sequence[str]] | None = None,
        decimal: str | None = None,
        missing_values: float | str | Sequence[float | str] = (),
        outliers: str = "refuse",
        split: str | Mapping[str, Any] | None = None,
        valid_path: str | os.PathLike[str] | Sequence[str] | None = None,
        test_path: str | os.PathLike[str] | Sequence[str] | None = None,
        atom_order: str = "canonical",
        max_atoms: int = 256,
        descriptors: bool = False,
        geometry: bool = False,
        fragment: str = "keep",
        wildcards: str = "refuse",
        workers: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.notices: list[str] = []
        self.target_names = _checked_columns(target_columns)
        self.target_units = checked_units(units, self.target_names)
        self._classes = _checked_classes(classes, kind, self.target_names)
        self._given_kind = kind if kind in ("multiclass", "mixed") else checked_kind(kind)
        self.class_names = self._classes[0] if kind == "multiclass" else ()
        given = {"train": path, "valid": valid_path, "test": test_path}
        self.files = {name: _files(paths) for name, paths in given.items() if paths is not None}
        warn_of_repeated(self.files)
        self.source, self._delimiter = name_of(self.files["train"]), delimiter
        choice = checked_choice(split, set(self.files))
        self._format = NumberFormat(
            decimal, listed_values(missing_values), classes=self._given_kind == "classification"
        )
        smiles, targets, words, sizes = self._read(choice.column, smiles_column)
        advice = "--data.missing_values {}", "--data.outliers keep"
        if kind != "multiclass":
            columns = [i for i in range(len(self.target_names)) if kind != "mixed" or not self._classes[i]]
            names = [self.target_names[i] for i in columns]
            self.notices += check_outliers(
                targets[:, columns], names, self.source, self.where, outliers, advice
            )
        known, names = self._given_kind, self.target_names
        self.kind, doubts = (known, []) if known else find_kind(targets, names)
        self.notices += doubts
        self.store = self._prepare(
            smiles,
            targets,
            prepare.Featurizing(
                max_atoms, atom_order, workers, descriptors, fragment, wildcards, geometry=geometry
            ),
            cache_dir,
        )
        self._refuse_if_all_failed()
        if choice.column is not None:
            named = splits.column_split(words, choice.column, self.source, self.where)
            if meanings := splits.numbered_words(words):
                self.notices.append(f"column {choice.column!r}: {meanings}")
            self.splits = self._with_valid(named, choice)
        else:
            train, kept = sizes["train"], self.store.num_atoms > 0
            groups = _scaffolds(smiles[:train], fragment, kept[:train]) if choice.kind == "scaffold" else None
            self.splits = choice.division.divide(splits.consecutive_rows(sizes), self.source, groups=groups)

    def smiles(self) -> list[str]:
        """Read the SMILES of every row: of `path`, then `valid_path`, then `test_path`.

        Raises:
            MolsliceError: A file has changed since the rows were read.
        """
        return self.side_cells([self.smiles_column])[self.smiles_column]

    def side_cells(self, columns: Sequence[str]) -> dict[str, list[str]]:
        """Read the cells of every row in some columns, in the order of `smiles`.

        Raises:
            MolsliceError: A column is missing, or a file has changed since the rows were read.
        """
        self._refuse_if_changed(self._all_files, self._checksums, self.source)
        cells = {name: list[str]() for name in columns}
        options = {"delimiter": self._delimiter, "convert": self.smiles_column in columns}
        for files in self.files.values():
            with open_molecules(files, smiles_column=self.smiles_column, **options) as table:
                for chunk in table.chunks(ROWS_AT_ONCE, columns):
                    for name, texts in cells.items():
                        texts += chunk[name]
        return cells

    def where(self, row: int) -> str:
        """Describe a row, an index from 0, by file, row and line for messages."""
        for file, first, lines in self._places:
            if row < len(lines):
                return place_of(file, first + row, int(lines[row]) or None)
            row -= len(lines)
        raise IndexError(row)

    def _read(
        self, split_column: str | None, smiles_column: str | None
    ) -> tuple[list[str], np.ndarray, list[str], dict[str, int]]:
        """Read SMILES, targets [rows, T], the split column, and the number of rows of each split."""
        extra = [] if split_column is None else [split_column]
        smiles: list[str] = []
        targets: list[np.ndarray] = []
        words: list[str] = []
        self._places: list[tuple[File, int, np.ndarray]] = []  # file, first row and lines of each chunk
        self.units_beside: dict[str, list[str]] = {}
        sizes = dict.fromkeys(self.files, 0)
        for split, files in self.files.items():
            with open_molecules(files, smiles_column=smiles_column, delimiter=self._delimiter) as table:
                smiles_column = self.smiles_column = table.smiles_column
                if smiles_column in self.target_names:
                    column = f"{name_of(files)}: the column {smiles_column!r}"
                    raise MolsliceError(f"{column} cannot be both the SMILES and a target")
                check_decimal_mark(table, self.target_names, self._format.decimal)
                if self._given_kind != "regression" and not self._classes:
                    self._format, meanings = find_classes(table, self.target_names, self._format)
                    self.notices += [text for text in meanings if text not in self.notices]
                side = SideColumns(table, self.target_names)
                wanted = list(dict.fromkeys([smiles_column, *self.target_names, *extra, *side.names]))
                for chunk in table.chunks(ROWS_AT_ONCE, wanted):
                    side.add(chunk)
                    targets.append(self._values(chunk))
                    smiles += chunk[smiles_column]
                    words += chunk[split_column] if split_column is not None else []
                    lines = np.array([line or 0 for line in chunk.lines])
                    self._places.append((chunk.path, chunk.first, lines))
                    sizes[split] += len(chunk)
                self.notices += [text for text in side.notices() if text not in self.notices]
                for name, units in side.counted_units.items():
                    self.units_beside.setdefault(name, []).extend(units)
        for split, rows in sizes.items():
            if not rows:
                raise MolsliceError(f"{name_of(self.files[split])} has no rows")
        values = np.concatenate(targets)
        for column, known in zip(self.target_names, np.isfinite(values).T, strict=True):
            if not known.any():
                raise MolsliceError(f"the column {column!r} of {self.source} has no value in any row")
        statistics = TargetStatistics(self.target_names)
        statistics.add(values)
        statistics.check_rounding(self.source)
        return smiles, values.astype(np.float32), words, sizes

    def _values(self, chunk: Chunk) -> np.ndarray:
        """Convert the targets of a chunk to numbers, or to indices of their classes, float64 [rows, T]."""
        columns = []
        for index, name in enumerate(self.target_names):
            classes = self._classes[index] if self._classes else ()
            if classes == ("0", "1"):  # also in other words, such as true and false
                columns.append(labels(chunk[name], name, chunk.where, self._format))
            elif classes:
                columns.append(class_numbers(chunk[name], name, chunk.where, classes, self._format))
            else:
                columns.append(numbers(chunk[name], name, chunk.where, self._format))
        return np.stack(columns, axis=1)

    def _with_valid(self, named: splits.Splits, choice: SplitChoice) -> splits.Splits:
        """Draw valid rows from the training rows if a column names none, and these are enough."""
        fraction = choice.division.fractions.get("valid", 0.0)
        if "valid" in named or not round(fraction * len(named["train"])):
            return named
        drawn = choice.division.divide(named, self.source)
        drawing = (
            f"no row is valid in the column {choice.column!r}; {len(drawn['valid']):,} of the "
            f"{len(named['train']):,} training rows are drawn as valid rows"
        )
        self.notices.append(drawing)
        return drawn

    def _prepare(
        self,
        smiles: list[str],
        targets: np.ndarray,
        how: prepare.Featurizing,
        cache_dir: str | os.PathLike[str] | None,
    ) -> MoleculeStore:
        def chunks() -> Iterator[tuple[list[str], np.ndarray]]:
            for start in range(0, len(smiles), prepare.CHUNK_ROWS):
                rows = slice(start, start + prepare.CHUNK_ROWS)
                yield smiles[rows], targets[rows]

        self._all_files = [file for files in self.files.values() for file in files]
        self._checksums = [cache.file_checksum(file) for file in self._all_files]
        identity = {
            "format": "csv",
            "reader": READER_VERSION,
            "sha256": self._checksums,
            "smiles_column": self.smiles_column,
        }
        formats = [file_format(file) for file in self._all_files]
        if {*formats} - {".csv"} or self._delimiter is not None:
            identity |= {"formats": formats, "delimiter": self._delimiter}
        if (self._format.decimal, self._format.missing) != (None, ()):
            identity |= {"decimal": self._format.decimal, "missing": list(self._format.missing)}
        if self._classes:
            identity |= {"classes": [list(words) for words in self._classes]}
        return prepare.prepare_store(
            chunks,
            how,
            cache.cache_folders(cache_dir),
            source=self.source,
            rows=len(smiles),
            target_names=self.target_names,
            target_units=self.target_units,
            identity=identity,
        )


def _files(paths: str | os.PathLike[str] | Sequence[str]) -> list[File]:
    files = find_files([as_file(path) for path in listed_paths(paths, "file")])
    check_rereadable(files)
    return files


def _checked_columns(target_columns: str | Sequence[str]) -> tuple[str, ...]:
    columns = (target_columns,) if isinstance(target_columns, str) else tuple(target_columns)
    if not columns or not all(isinstance(column, str) for column in columns):
        raise MolsliceError(f"target_columns must name at least one column, got {target_columns!r}")
    if len(set(columns)) < len(columns):
        raise MolsliceError(f"target_columns must differ from each other: {columns}")
    return columns


def _checked_classes(
    classes: Sequence[Sequence[str]] | None, kind: str | None, columns: tuple[str, ...]
) -> tuple[tuple[str, ...], ...]:
    """Return the names of the classes of each target; empty if the cells are numbers."""
    listed = () if classes is None else tuple(tuple(map(str, words)) for words in classes)
    sizes = {len({class_key(word) for word in words}) for words in listed}
    if kind == "mixed" and (any(len(words) == 1 for words in listed) or not any(listed)):
        raise MolsliceError(f"kind mixed needs the names of the classes of some targets, got {classes}")
    if kind == "multiclass" and (len(listed) != 1 or len(columns) != 1 or min(sizes) < 3):
        raise MolsliceError(
            f"kind multiclass needs one target, and three or more names of classes, got {classes}"
        )
    repeated = any(len({*map(class_key, words)}) < len(words) for words in listed)
    any_size = kind in ("multiclass", "mixed")
    if classes is not None and (repeated or len(listed) != len(columns) or not (any_size or sizes == {2})):
        raise MolsliceError(
            f"classes must be two different names for each of {len(columns)} targets, got {classes}"
        )
    return listed


def checked_units(units: str | Sequence[str | None] | None, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Check the option `units` and return one unit for each target.

    Raises:
        MolsliceError: The number of units is another one, or a unit is not text.
    """
    if units is None or isinstance(units, str):
        return (units or "",) * len(columns)
    given = tuple(units) if isinstance(units, Iterable) and not isinstance(units, Mapping) else ()
    if len(given) != len(columns) or not all(unit is None or isinstance(unit, str) for unit in given):
        raise MolsliceError(f"units must be one unit, or one for each target ({len(columns)}), got {units!r}")
    return tuple(unit or "" for unit in given)


def _scaffolds(smiles: list[str], fragment: str, kept: np.ndarray) -> list[str | None]:
    """Return the scaffold of each molecule; None for a row without one."""
    from molslice.chem.scaffold import scaffolds  # needs rdkit

    names = scaffolds(choose_fragments(smiles, fragment).smiles)
    return [name if is_kept else None for name, is_kept in zip(names, kept, strict=True)]
