"""Options for the splits and the scale of a user's own images, shared by image folders and tables."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from molslice.data.images.base import Cutting, checked_count, checked_fraction, with_valid_split
from molslice.data.splits import Splits, random_split
from molslice.types import MolsliceError

Scale = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Dividing:
    """How to derive train, valid and test from the splits of the files.

    Attributes:
        valid_fraction: Fraction of the images for valid, if the files have no such split.
        test_fraction: Fraction of the images for test, if the files have only train.
        split_seed: Seed of these draws.
        valid_as_test: Whether to use the files' valid as test.

    Raises:
        MolsliceError: An option is invalid.
    """

    valid_fraction: float = 0.1
    test_fraction: float = 0.1
    split_seed: int = 0
    valid_as_test: bool = False

    def __post_init__(self) -> None:
        checked_fraction("valid_fraction", self.valid_fraction)
        checked_fraction("test_fraction", self.test_fraction)
        checked_count("split_seed", self.split_seed, least=0)
        if not isinstance(self.valid_as_test, bool):
            raise MolsliceError(f"valid_as_test must be true or false, got {self.valid_as_test!r}")
        if self.valid_fraction + self.test_fraction >= 1:
            raise MolsliceError(
                f"valid_fraction={self.valid_fraction} and test_fraction={self.test_fraction} leave no "
                "training images"
            )

    def divide(self, splits: Splits, source: str) -> Splits:
        """Divide rows into train, valid and test.

        Existing splits are kept. If there is only train, valid and test are drawn from it at random. If only
        valid is missing, it is drawn from train. With `valid_as_test`, the existing valid becomes test, the
        existing test becomes `hidden`, and valid is drawn from train: the convention for data whose test
        labels are not public.

        Args:
            splits: Row numbers of the splits of the files.
            source: Name of the files, for messages.

        Raises:
            MolsliceError: There is no training split or no split to use as test, or a split would be empty.
        """
        splits = {name: rows for name, rows in splits.items() if len(rows)}
        if "train" not in splits:
            raise MolsliceError(f"{source} has no split 'train', only {', '.join(splits) or 'empty ones'}")
        if self.valid_as_test:
            if "valid" not in splits:
                raise MolsliceError(f"valid_as_test cannot be used: {source} has no split 'valid'")
            hidden = {"hidden": splits["test"]} if "test" in splits else {}
            splits = {"train": splits["train"], "test": splits["valid"], **hidden}
        if set(splits) == {"train"}:
            shares = {"valid": self.valid_fraction, "test": self.test_fraction}
            shares = {"train": 1 - sum(shares.values()), **shares}
            return random_split(splits["train"], shares, self.split_seed)
        return with_valid_split(splits, self.valid_fraction, self.split_seed)


def checked_scale(
    mean: Sequence[float] | None, std: Sequence[float] | None, cutting: Cutting
) -> Scale | None:
    """Check the options mean and std.

    Args:
        mean: Mean of each color, as a fraction of 255.
        std: Standard deviation of each color, as a fraction of 255.
        cutting: Determines the number of colors.

    Returns:
        Both options, or None if neither is given.

    Raises:
        MolsliceError: Only one is given, there is not one number for each color, or std is not positive.
    """
    if mean is None and std is None:
        return None
    colors = 1 if cutting.gray else 3
    both = []
    for name, values in (("mean", mean), ("std", std)):
        numbers = isinstance(values, Sequence) and all(
            isinstance(value, int | float) and math.isfinite(value) for value in values
        )
        if not numbers or values is None or isinstance(values, str) or len(values) != colors:
            raise MolsliceError(
                f"mean and std must both be {colors} numbers, as fractions of 255; got {name}={values!r}"
            )
        both.append(tuple(float(value) for value in values))
    if min(both[1]) <= 0:
        raise MolsliceError(f"std of images must be positive, got {list(both[1])}")
    return both[0], both[1]


def rows_of(counts: dict[str, int]) -> Splits:
    """Number rows consecutively, split by split.

    Args:
        counts: Number of rows of each split.
    """
    bounds = np.cumsum([0, *counts.values()])
    return {
        name: np.arange(start, stop, dtype=np.int64)
        for name, start, stop in zip(counts, bounds[:-1], bounds[1:], strict=True)
    }
