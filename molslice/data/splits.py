"""Ways to divide the rows of a data set: at random, by scaffold, or by a column."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from molslice.files.tables import Unreadable
from molslice.registry import near_names
from molslice.types import MolsliceError

Splits = dict[str, np.ndarray]
NAMES = ("train", "valid", "test")
ALIASES = {"training": "train", "val": "valid", "validation": "valid", "testing": "test"}
DEFAULT_FRACTIONS = {"train": 0.8, "valid": 0.1, "test": 0.1}
OPTIONS = {"random": ("fractions", "seed"), "scaffold": ("fractions",), "column": ("column",)}


@dataclass(frozen=True, slots=True)
class SplitChoice:
    """How to divide rows.

    Attributes:
        kind: `random`, `scaffold`, `column`, or `files` (each file is a split).
        fractions: fraction of the rows of each split, for `random` and `scaffold`.
        seed: seed of a random split.
        column: name of the column that holds the split of each row, for `column`.
    """

    kind: str
    fractions: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    column: str | None = None


def checked_choice(split: str | Mapping[str, Any] | None, files: Collection[str]) -> SplitChoice:
    """Check the option `split` of a configuration.

    Args:
        split: name of the kind, or a mapping with `kind` and its options.
        files: names of the splits that have their own file.

    Raises:
        MolsliceError: unknown kind or option, or one that cannot be combined with the files.
    """
    if "valid" in files:
        if split is not None:
            raise MolsliceError("split cannot be used with valid_path, which already divides the rows")
        return SplitChoice("files")
    choice = dict(split) if isinstance(split, Mapping) else {"kind": split or "random"}
    kind = choice.pop("kind", "random")
    if kind not in OPTIONS:
        raise MolsliceError(f"unknown split {kind!r}; {near_names(str(kind), OPTIONS)}")
    for option in choice:
        if option not in OPTIONS[kind]:
            raise MolsliceError(
                f"split {kind!r} has no option {option!r}; {near_names(option, OPTIONS[kind])}"
            )
    if kind == "column":
        return _by_column(choice.get("column"), files)
    seed = checked_seed(choice.get("seed", 0), "split seed")
    names = [name for name in NAMES if name not in files or name == "train"]
    return SplitChoice(kind, _fractions(choice.get("fractions"), names), seed)


def _by_column(column: object, files: Collection[str]) -> SplitChoice:
    if not isinstance(column, str):
        raise MolsliceError(f"a split by column needs the option column, a column name; got {column!r}")
    if "test" in files:
        raise MolsliceError("a split by column cannot be combined with test_path")
    return SplitChoice("column", column=column)


def _fractions(given: object, names: Sequence[str]) -> dict[str, float]:
    if given is None:
        total = sum(DEFAULT_FRACTIONS[name] for name in names)
        return {name: DEFAULT_FRACTIONS[name] / total for name in names}
    if isinstance(given, Mapping) and set(given) <= set(names):
        return checked_fractions({name: given.get(name, 0.0) for name in names})
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == len(names):
        return checked_fractions(dict(zip(names, given, strict=True)))
    raise MolsliceError(f"split fractions must be given for {', '.join(names)}, got {given!r}")


def random_split(rows: np.ndarray, fractions: Mapping[str, float], seed: int) -> Splits:
    """Divide rows at random, the same way for the same seed; each split is sorted.

    Raises:
        MolsliceError: invalid fractions, or a split that would be empty.
    """
    fractions = checked_fractions(fractions)
    shuffled = np.random.default_rng(seed).permutation(np.asarray(rows, dtype=np.int64))
    bounds = np.rint(np.cumsum(list(fractions.values())) * len(shuffled)).astype(int)
    parts = np.split(shuffled, bounds[:-1])
    return _without_empty(
        {name: np.sort(part) for name, part in zip(fractions, parts, strict=True)}, fractions
    )


def scaffold_split(rows: np.ndarray, scaffolds: Sequence[str], fractions: Mapping[str, float]) -> Splits:
    """Divide rows so that all molecules with the same scaffold are in one split.

    Scaffolds are assigned in order of decreasing frequency (ties in the order of their first row) to the
    first split whose fraction they do not exceed. A scaffold that fits nowhere goes to the first split.

    Args:
        rows: row numbers to divide.
        scaffolds: scaffold of each of `rows`.
        fractions: fraction of the rows of each split.

    Raises:
        MolsliceError: invalid fractions, or a split that would be empty.

    Source: MoleculeNet, Wu et al., Chem. Sci. 9 (2018) 513.
    """
    fractions = checked_fractions(fractions)
    groups: dict[str, list[int]] = {}
    for row, scaffold in zip(np.asarray(rows).tolist(), scaffolds, strict=True):
        groups.setdefault(scaffold, []).append(row)
    names = list(fractions)
    parts: dict[str, list[int]] = {name: [] for name in names}
    for group in sorted(groups.values(), key=len, reverse=True):
        room = (name for name in names if len(parts[name]) + len(group) <= fractions[name] * len(rows) + 1e-6)
        parts[next(room, names[0])] += group
    arrays = {name: np.array(sorted(part), dtype=np.int64) for name, part in parts.items()}
    return _without_empty(arrays, fractions)


def column_split(values: Sequence[str], column: str, where: Callable[[int], str]) -> Splits:
    """Divide rows by a column that holds train, valid or test (val and validation mean valid).

    A row that cannot be read counts as train. It has no target, so it is never used.

    Args:
        values: cells of the column.
        column: name of the column.
        where: function that returns the location of a row, for messages.

    Raises:
        MolsliceError: any other word, or no training rows.
    """
    words = ["train" if isinstance(value, Unreadable) else value.strip().lower() for value in values]
    words = [ALIASES.get(word, word) for word in words]
    for row, word in enumerate(words):
        if word not in NAMES:
            raise MolsliceError(
                f"{where(row)}, column {column!r}: {values[row]!r} is not one of {', '.join(NAMES)}"
            )
    array = np.array(words)
    splits = {name: np.flatnonzero(array == name).astype(np.int64) for name in NAMES}
    if not len(splits["train"]):
        raise MolsliceError(f"column {column!r} assigns no row to train")
    return {name: rows for name, rows in splits.items() if len(rows)}


def checked_fractions(fractions: Mapping[str, float]) -> dict[str, float]:
    """Check fractions by split name: between 0 and 1, with sum 1, and positive for train.

    Raises:
        MolsliceError: invalid fractions.
    """
    values = list(fractions.values())
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if not numbers or any(not 0 <= value <= 1 for value in values) or abs(sum(values) - 1) > 1e-6:
        raise MolsliceError(f"split fractions must be in [0, 1] and sum to 1, got {dict(fractions)}")
    if not fractions.get("train"):
        raise MolsliceError(f"split fractions leave no training rows: {dict(fractions)}")
    return dict(fractions)


def _without_empty(splits: Splits, fractions: Mapping[str, float]) -> Splits:
    rows = sum(map(len, splits.values()))
    for name, part in splits.items():
        if fractions[name] and not len(part):
            raise MolsliceError(
                f"a fraction {fractions[name]:g} of {rows} rows leaves the split {name!r} empty"
            )
    return {name: part for name, part in splits.items() if len(part)}


def checked_seed(seed: object, name: str = "seed") -> int:
    """Check a seed and return it.

    Raises:
        MolsliceError: not a non-negative integer.
    """
    if type(seed) is not int or seed < 0:
        raise MolsliceError(f"{name} must be a non-negative integer, got {seed!r}")
    return seed


def check_counts(counts: Sequence[object]) -> None:
    """Check the numbers of rows to generate for train, valid and test.

    Raises:
        MolsliceError: not three positive integers.
    """
    if len(counts) != len(NAMES) or not all(type(count) is int and count > 0 for count in counts):
        raise MolsliceError(f"counts must be the number of rows of {', '.join(NAMES)}, got {counts!r}")


def split_folders(root: Path) -> dict[str, Path]:
    """Find the folder of each split under any of its names; empty if there is no folder for train.

    Raises:
        MolsliceError: two folders for one split, or `root` cannot be read.
    """
    found: dict[str, list[Path]] = {}
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError as error:
        raise MolsliceError(f"cannot read {root}: {error.strerror}") from error
    for path in folders:
        name = path.name.lower()
        if (split := ALIASES.get(name, name)) in NAMES:
            found.setdefault(split, []).append(path)
    if "train" not in found:
        return {}  # without train, the folders are classes, even one named test
    for split, paths in found.items():
        if len(paths) > 1:
            names = " and ".join(path.name for path in paths)
            raise MolsliceError(f"{root}: {names} are both names of the split {split}; keep one of them")
    return {split: paths[0] for split, paths in found.items()}
