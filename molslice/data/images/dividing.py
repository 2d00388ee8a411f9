"""Options for the splits and the scale of a user's own images, shared by image folders and tables."""

import math
from collections.abc import Sequence

from molslice.data.images.base import Cutting
from molslice.data.splits import Division, Splits
from molslice.types import MolsliceError

Scale = tuple[tuple[float, ...], tuple[float, ...]]


def divide(splits: Splits, division: Division, source: str, *, valid_as_test: bool) -> Splits:
    """Divide rows into train, valid and test.

    Existing splits are kept. If there is only train, valid and test are drawn from it at random. If only
    valid is missing, it is drawn from train. With `valid_as_test`, the existing valid becomes test, the
    existing test becomes `hidden`, and valid is drawn from train: the convention for data whose test
    labels are not public.

    Raises:
        MolsliceError: There is no training split or no split to use as test, or a split would be empty.
    """
    if not isinstance(valid_as_test, bool):
        raise MolsliceError(f"valid_as_test must be true or false, got {valid_as_test!r}")
    splits = {name: rows for name, rows in splits.items() if len(rows)}
    if valid_as_test:
        if "valid" not in splits:
            raise MolsliceError(f"valid_as_test cannot be used: {source} has no split 'valid'")
        hidden = {"hidden": splits.pop("test")} if "test" in splits else {}
        splits |= {"test": splits.pop("valid"), **hidden}
    return (Division() if "valid" in splits else division).divide(splits, source)


def checked_scale(
    mean: Sequence[float] | None, std: Sequence[float] | None, cutting: Cutting
) -> Scale | None:
    """Check the options mean and std, and return both, or None if neither is given.

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
