"""Division of rows into train, valid and test: at random, by class, by group, in folds, or by a column."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from molslice.files.tables import Unreadable
from molslice.registry import check_choice
from molslice.types import MolsliceError

Splits = dict[str, np.ndarray]
NAMES = ("train", "valid", "test")
ALIASES = {"training": "train", "val": "valid", "validation": "valid", "testing": "test"}
WORDS = {  # of a column; a folder of such a name may be a class
    **ALIASES,
    **dict.fromkeys(("trainval", "trainvalid", "trainvalidation"), "train"),
    "dev": "valid",
    **dict.fromkeys(("holdout", "heldout", "external"), "test"),
}
NUMBERED = {f"{number}{zero}": name for number, name in enumerate(NAMES) for zero in ("", ".0")}
DEFAULT_FRACTIONS = {"valid": 0.1, "test": 0.1}
FOLD_OVER = ("all", "train")
OFFICIAL_TEST = "official_test"  # the source's own test rows, if folds are made of the other rows


@dataclass(frozen=True, slots=True)
class Division:
    """How to divide rows into train, valid and test.

    The splits of the source are kept, and missing ones are drawn from its training rows. With folds, one fold
    is the test split and the other folds are the training rows.

    Attributes:
        fractions: Fraction of the training rows for each split that the source does not have. Train keeps the
            other rows. If the fraction of train is given too, the sum must be 1.
        seed: Seed of the draws.
        folds: Number of folds K; by default no folds.
        fold: Number of the test fold, 0 to K - 1.
        fold_over: `all` makes folds of all rows. `train` makes folds of the rows outside the source's test
            split, which becomes the split `official_test`.
    """

    fractions: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    folds: int | None = None
    fold: int | None = None
    fold_over: str = "all"

    def __post_init__(self) -> None:
        for name, fraction in self.fractions.items():
            if name != "train":
                _check_fraction(f"{name}_fraction", fraction)
        checked_seed(self.seed, "split seed")
        check_choice("fold_over", self.fold_over, FOLD_OVER)
        if (self.folds is None) != (self.fold is None):
            raise MolsliceError(
                f"folds and fold must be given together, got folds={self.folds}, fold={self.fold}"
            )
        if self.folds is None or self.fold is None:
            return
        if type(self.folds) is not int or self.folds < 2:
            raise MolsliceError(f"folds must be at least 2, got {self.folds!r}")
        if type(self.fold) is not int or not 0 <= self.fold < self.folds:
            raise MolsliceError(f"fold must be between 0 and {self.folds - 1}, got {self.fold!r}")

    def divide(
        self,
        parts: Mapping[str, np.ndarray],
        source: str,
        *,
        strata: np.ndarray | None = None,
        groups: Sequence[str | None] | None = None,
        noun: str = "scaffold",
    ) -> Splits:
        """Divide rows into splits.

        Without strata, all fractions are of the training rows of the source. With strata, each split has its
        fraction of every class. Test is drawn first, and the fraction of valid is of the remaining rows. The
        seed chooses the rows of a class, but not which of the classes with few rows have one in a split.
        scikit-learn's `StratifiedKFold` would assign other rows to the folds and refuse rows without a class.

        Args:
            parts: Row numbers of the source's own splits: train, and optionally others.
            source: File or folder of the rows, for messages.
            strata: Class of each row of the data set, [rows]; NaN if missing.
            groups: Group of each row of the data set, such as its scaffold. All rows of a group are drawn
                for one split. Rows without a group, None, stay training rows beside the fractions.
            noun: What a group is, for messages.

        Returns:
            Row numbers, int64, of train, valid and test, then of other splits. Drawn splits are sorted and
            not empty.
        """
        if groups is not None and (strata is not None or self.fold is not None):
            raise MolsliceError("groups of rows cannot be combined with strata or folds")
        if "train" not in parts:
            raise MolsliceError(f"{source} has no split 'train', only {', '.join(parts) or 'empty ones'}")
        splits = dict(parts) if self.fold is None else self._hold_out_fold(parts, source, strata)
        missing = {name: f for name in NAMES[1:] if (f := self.fractions.get(name)) and name not in splits}
        if strata is not None:
            for name, fraction in reversed(missing.items()):
                drawn = self._hold_out(splits["train"], name, fraction, strata)
                splits |= _filled(drawn, {"train": 1 - fraction, name: fraction}, source)
        elif missing:
            shares = {"train": self.fractions.get("train", 1 - sum(missing.values())), **missing}
            check_fractions(shares)
            rows = np.asarray(splits["train"], dtype=np.int64)
            drawn = self._at_random(rows, shares) if groups is None else _by_group(rows, shares, groups)
            splits |= _filled(drawn, shares, source, groups, noun)
        return {name: splits[name] for name in (*NAMES, *splits) if name in splits}

    def _hold_out_fold(
        self, parts: Mapping[str, np.ndarray], source: str, strata: np.ndarray | None
    ) -> Splits:
        assert self.folds is not None
        pooled = dict(parts)
        official = pooled.pop("test", None) if self.fold_over == "train" else None
        pool = np.sort(np.concatenate(list(pooled.values())))
        if len(pool) < self.folds:
            raise MolsliceError(f"{len(pool)} rows of {source} cannot be divided into {self.folds} folds")
        is_held = np.arange(len(pool)) % self.folds == self.fold
        ordered = self._shuffled(pool, strata)
        splits = {"train": np.sort(ordered[~is_held]), "test": np.sort(ordered[is_held])}
        return splits if official is None else splits | {OFFICIAL_TEST: official}

    def _hold_out(self, rows: np.ndarray, name: str, fraction: float, strata: np.ndarray) -> Splits:
        count = round(fraction * len(rows))
        ordered = self._shuffled(rows, strata)
        is_held = np.zeros(len(rows), dtype=bool)
        # rows are ordered by class, so evenly spaced rows are stratified
        is_held[((np.arange(count) + 0.5) * len(rows) / count).astype(np.int64)] = True
        return {"train": np.sort(ordered[~is_held]), name: np.sort(ordered[is_held])}

    def _shuffled(self, rows: np.ndarray, strata: np.ndarray | None) -> np.ndarray:
        """Shuffle rows; with strata, sort them by class and keep the random order within a class."""
        shuffled = np.random.default_rng(self.seed).permutation(rows)
        return shuffled if strata is None else shuffled[np.argsort(strata[shuffled], kind="stable")]

    def _at_random(self, rows: np.ndarray, shares: Mapping[str, float]) -> Splits:
        bounds = np.rint(np.cumsum(list(shares.values())) * len(rows)).astype(int)
        parts = np.split(self._shuffled(rows, None), bounds[:-1])
        return {name: np.sort(chosen) for name, chosen in zip(shares, parts, strict=True)}


def _by_group(rows: np.ndarray, shares: Mapping[str, float], groups: Sequence[str | None]) -> Splits:
    """Divide rows so that all rows of a group are in one split.

    Groups are assigned in order of decreasing size; among groups of one size, the one whose first row is last
    comes first. A group is assigned to the first split that it fits into: all rows that are assigned to this
    split and to those before it do not exceed the sum of their fractions. A group that is larger than the
    first split is assigned to it all the same.

    Source: MoleculeNet, Wu et al., Chem. Sci. 9 (2018) 513, for scaffolds; the order of groups of one size is
    as in its implementation in DeepChem.
    """
    members: dict[str, list[int]] = {}
    without: list[int] = []
    for row in map(int, rows):
        group = groups[row]
        (without if group is None else members.setdefault(group, [])).append(row)
    parts: dict[str, list[int]] = {name: [] for name in shares}
    count = len(rows) - len(without)
    limits = dict(zip(shares, np.cumsum(list(shares.values())) * count + 1e-6, strict=True))
    for group in sorted(members.values(), key=lambda group: (len(group), min(group)), reverse=True):
        parts[_first_fitting(len(group), parts, limits)] += group
    parts["train"] += without
    return {name: np.array(sorted(chosen), dtype=np.int64) for name, chosen in parts.items()}


def draw_groups(groups: Sequence[str], limit: float, seed: int) -> list[int] | None:
    """Draw groups in random order until they have a number of rows.

    A group with more than half of the limit is never drawn.

    Returns:
        The rows of the drawn groups, at most `limit`; None if they are less than half of it.
    """
    members: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    names, drawn = sorted(members), []
    for index in np.random.default_rng(seed).permutation(len(names)):
        rows = members[names[index]]
        if 2 * len(rows) <= limit and len(drawn) + len(rows) <= limit:
            drawn += rows
    return drawn if 2 * len(drawn) >= limit else None


def _first_fitting(size: int, parts: Mapping[str, list[int]], limits: Mapping[str, float]) -> str:
    """Return the first split that a group of this size fits into, with all splits before it."""
    first, total = next(iter(parts)), size
    if size > limits[first]:
        return first
    for name, chosen in parts.items():
        total += len(chosen)
        if total <= limits[name]:
            return name
    return first


def _filled(
    splits: Splits,
    shares: Mapping[str, float],
    source: str,
    groups: Sequence[str | None] | None = None,
    noun: str = "",
) -> Splits:
    rows = sum(map(len, splits.values()))
    for name, chosen in splits.items():
        if not len(chosen):
            hint = ""
            if groups is not None:
                hint = f"; rows of one {noun} stay together (number of {noun}s: "
                hint += f"{len(set(groups) - {None})}); choose "
                hint += "other groups" if noun == "group" else "the split random"
            raise MolsliceError(
                f"{source}: a fraction {shares[name]:g} of {rows} rows leaves the split {name!r} empty{hint}"
            )
    return splits


def column_split(
    values: Sequence[str],
    column: str,
    source: str,
    where: Callable[[int], str],
    *,
    trained: Sequence[str] = ("train",),
) -> Splits:
    """Divide rows by a column with train, valid or test, or another usual word for them; see `WORDS`.

    Upper case, blanks, `_`, `-`, `+` and `/` in a word, and `set` at its end, have no meaning. Numbers are
    words of a column with `numbered_words` only.

    An unreadable row is assigned to train. It has no target, so it is never used.

    Args:
        values: Cells of the column.
        column: Name of the column.
        source: File of the rows, for messages.
        where: Describes the location of a row, an index from 0, for messages.
        trained: The splits of training rows; one of them must have rows.

    Returns:
        Row numbers of each split that has rows, int64.
    """
    numbered = bool(numbered_words(values))
    known = {
        value: "train" if isinstance(value, Unreadable) else _split_of(value, numbered)
        for value in set(values)
    }
    for row, value in enumerate(values):
        if known[value] is None:
            if value.strip() in NUMBERED:
                raise MolsliceError(
                    f"{where(row)}, column {column!r}: {value!r} is not one of {', '.join(NAMES)}; 0, 1 and "
                    "2 are train, valid and test only if all cells are such numbers, with 0 and 2 among them"
                )
            others = sorted(repr(word) for word, split in known.items() if split is None and word != value)
            more = f"; nor {'is' if len(others) == 1 else 'are'} {', '.join(others[:5])}" if others else ""
            raise MolsliceError(
                f"{where(row)}, column {column!r}: {value!r} is not one of {', '.join(NAMES)} "
                f"(or trainval, val, dev, holdout, external){more}"
            )
    array = np.array([known[value] for value in values])
    splits = {name: np.flatnonzero(array == name).astype(np.int64) for name in NAMES}
    if not any(len(splits[name]) for name in trained):
        raise MolsliceError(f"{source}, column {column!r} assigns no row to {' or '.join(trained)}")
    return {name: rows for name, rows in splits.items() if len(rows)}


def numbered_words(values: Sequence[str]) -> str:
    """Say what numbers mean in a column of 0, 1 and 2, for train, valid and test, and without other cells.

    Valid may be missing. The text is empty for any other column: 0 and 1 alone may mean anything.
    """
    words = {value.strip() for value in set(values) if not isinstance(value, Unreadable)}
    places = {NUMBERED.get(word) for word in words}
    if None in places or not {"train", "test"} <= places:
        return ""
    return ", ".join(f"{word} is {NUMBERED[word]}" for word in sorted(words))


def _split_of(word: str, numbered: bool) -> str | None:
    """Return the split that a word of a column means; None for an unknown word."""
    if numbered:
        return NUMBERED[word.strip()]
    plain = re.sub(r"[\s_+/-]+", "", word.lower())
    split = WORDS.get(plain.removesuffix("set"), plain.removesuffix("set"))
    return split if split in NAMES else None


def check_fractions(fractions: Mapping[str, float]) -> None:
    """Check that the fractions of splits are between 0 and 1, sum to 1, and leave rows for train."""
    values = list(fractions.values())
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if numbers and fractions["train"] <= 0:
        raise MolsliceError(f"split fractions leave no training rows: {dict(fractions)}")
    if not numbers or any(not 0 <= value <= 1 for value in values) or abs(sum(values) - 1) > 1e-6:
        raise MolsliceError(f"split fractions must be in [0, 1] and sum to 1, got {dict(fractions)}")


def _check_fraction(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1:
        raise MolsliceError(f"{name} must be between 0 and 1, got {value!r}")


def checked_seed(seed: object, name: str = "seed") -> int:
    """Check that a seed is a non-negative integer, and return it."""
    if type(seed) is not int or seed < 0:
        raise MolsliceError(f"{name} must be a non-negative integer, got {seed!r}")
    return seed


def check_counts(counts: Sequence[object]) -> None:
    """Check that the rows to generate for train, valid and test are three positive numbers."""
    if len(counts) != len(NAMES) or not all(type(count) is int and count > 0 for count in counts):
        raise MolsliceError(f"counts must be the number of rows of {', '.join(NAMES)}, got {counts!r}")


def consecutive_rows(sizes: Mapping[str, int]) -> Splits:
    """Number rows consecutively, from the number of rows of each split."""
    bounds = np.cumsum([0, *sizes.values()])
    return {
        name: np.arange(start, stop, dtype=np.int64)
        for name, start, stop in zip(sizes, bounds[:-1], bounds[1:], strict=True)
    }


def split_folders(root: Path) -> dict[str, Path]:
    """Find the folder of each split under any of its names; empty if there is no folder for train."""
    folders_of: dict[str, list[Path]] = {}
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError as error:
        raise MolsliceError(f"cannot read {root}: {error.strerror}") from error
    for path in folders:
        name = path.name.lower()
        if (split := ALIASES.get(name, name)) in NAMES:
            folders_of.setdefault(split, []).append(path)
    if "train" not in folders_of:
        return {}  # without train, the folders are classes, even one named test
    for split, paths in folders_of.items():
        if len(paths) > 1:
            names = " and ".join(path.name for path in paths)
            raise MolsliceError(f"{root}: {names} are both names of the split {split}; keep one of them")
    return {split: paths[0] for split, paths in folders_of.items()}
