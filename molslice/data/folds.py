"""Train, valid and test splits of labeled rows: those of the source, random fractions, or folds.

All random divisions are stratified by class. scikit-learn's `StratifiedKFold` assigns other rows to
the folds, so that comparisons already made could not continue. It also refuses rows without a class.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from molslice.registry import near_names
from molslice.types import MolsliceError

__all__ = ["OFFICIAL_TEST", "Division"]

OVER = ("all", "train")
DEFAULT_TEST_FRACTION = 0.1
OFFICIAL_TEST = "official_test"  # the source's own test rows when folds are made of the other rows


@dataclass(frozen=True, slots=True)
class Division:
    """How rows are divided into train, valid and test.

    Without folds, the splits of the source are kept, and missing ones are drawn from its training rows. With
    folds, one fold is the test split and the other folds are divided into train and valid.

    Attributes:
        valid_fraction: fraction of the training rows for the valid split, if the source has none.
        test_fraction: fraction of all rows for the test split, if the source has none; by default 0.1.
        seed: seed of the random draws.
        folds: number of folds K; by default no folds.
        fold: number of the test fold, 0 to K - 1.
        fold_over: `all` makes folds of all rows. `train` makes folds of the rows outside the source's test
            split, which becomes the split `official_test`.

    Raises:
        MolsliceError: invalid fraction, fold or choice.
    """

    valid_fraction: float = 0.1
    test_fraction: float | None = None
    seed: int = 0
    folds: int | None = None
    fold: int | None = None
    fold_over: str = "all"

    def __post_init__(self) -> None:
        for name in ("valid_fraction", "test_fraction"):
            share = getattr(self, name)
            is_number = isinstance(share, int | float) and not isinstance(share, bool)
            if share is not None and not (is_number and 0 < share < 1):
                raise MolsliceError(f"{name} must be between 0 and 1, got {share!r}")
        if type(self.seed) is not int or self.seed < 0:
            raise MolsliceError(f"seed of the data must be a non-negative integer, got {self.seed!r}")
        if self.fold_over not in OVER:
            raise MolsliceError(
                f"invalid fold_over {self.fold_over!r}; {near_names(str(self.fold_over), OVER)}"
            )
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
        if self.test_fraction is not None:
            raise MolsliceError("test_fraction cannot be used with folds: a fold is the test split")

    def divide(self, parts: Mapping[str, np.ndarray], strata: np.ndarray) -> dict[str, np.ndarray]:
        """Divide rows into splits.

        Args:
            parts: row numbers of the source's own splits: train, and optionally valid and test.
            strata: class of every row of the data set, NaN where missing.

        Returns:
            Sorted row numbers of each split.

        Raises:
            MolsliceError: `test_fraction` for a source with a test split, or too few rows.
        """
        if self.fold is not None:
            return self._divide_folds(parts, strata)
        splits = dict(parts)
        if "test" in parts and self.test_fraction is not None:
            raise MolsliceError("test_fraction cannot be used: the source has its own test split")
        if "test" not in parts:
            share = DEFAULT_TEST_FRACTION if self.test_fraction is None else self.test_fraction
            splits["train"], splits["test"] = self._hold_out(splits["train"], share, strata, "test")
        if "valid" not in parts:
            splits["train"], splits["valid"] = self._hold_out(
                splits["train"], self.valid_fraction, strata, "valid"
            )
        return {name: splits[name] for name in ("train", "valid", "test")}

    def _divide_folds(self, parts: Mapping[str, np.ndarray], strata: np.ndarray) -> dict[str, np.ndarray]:
        pooled = dict(parts)
        official = pooled.pop("test", None) if self.fold_over == "train" else None
        pool = np.sort(np.concatenate(list(pooled.values())))
        assert self.folds is not None
        if len(pool) < self.folds:
            raise MolsliceError(f"{len(pool)} rows cannot be divided into {self.folds} folds")
        is_held = np.arange(len(pool)) % self.folds == self.fold
        ordered = self._by_class(pool, strata)
        rest, held = np.sort(ordered[~is_held]), np.sort(ordered[is_held])
        train, valid = self._hold_out(rest, self.valid_fraction, strata, "valid")
        splits = {"train": train, "valid": valid, "test": held}
        return splits if official is None else splits | {OFFICIAL_TEST: official}

    def _hold_out(
        self, rows: np.ndarray, share: float, strata: np.ndarray, name: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Hold out a fraction of the rows; returns the rest and the fraction, both sorted."""
        count = round(share * len(rows))
        if not 0 < count < len(rows):
            raise MolsliceError(f"a fraction {share:g} of {len(rows)} rows for {name!r} leaves a split empty")
        ordered = self._by_class(rows, strata)
        is_held = np.zeros(len(rows), dtype=bool)
        # rows are ordered by class, so evenly spaced places are stratified
        is_held[((np.arange(count) + 0.5) * len(rows) / count).astype(np.int64)] = True
        return np.sort(ordered[~is_held]), np.sort(ordered[is_held])

    def _by_class(self, rows: np.ndarray, strata: np.ndarray) -> np.ndarray:
        """Sort rows by class, in random order within a class."""
        shuffled = np.random.default_rng(self.seed).permutation(rows)
        return shuffled[np.argsort(strata[shuffled], kind="stable")]
