"""The base class of a user's own images, in folders or in tables."""

import math
import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from molslice.data.images.base import Augment, Cutting, ImageDataset, Tokens
from molslice.data.images.decoding import Decoding, EncodedImages, Fit
from molslice.data.splits import Division
from molslice.types import MolsliceError

Scale = tuple[tuple[float, ...], tuple[float, ...]]


class ImageFiles(ImageDataset):
    """Images of any size that are decoded once and cached as rows x size x size x 3 bytes.

    An unreadable image keeps its row, with the reason. Existing splits are kept. If there is only train,
    valid and test are drawn from it at random. If only valid is missing, it is drawn from train.

    Args:
        root: The folder.
        size: Side to which images are resized, in pixels; by default images keep their size, which must be
            the same for all.
        fit: `crop` resizes the shorter side to `size` and takes the center, `squash` resizes both sides.
        mean: Mean of each color as a fraction of 255, given with `std`; by default the mean of the
            training split. Evaluate a model with the values of its training.
        std: Standard deviation of each color, given with `mean`.
        valid_fraction: Fraction of the training images for `valid`, if the source lacks this split.
        test_fraction: Fraction of the training images for `test`, if the source has neither split.
        split_seed: Seed of these draws.
        valid_as_test: Whether to use the split `valid` as the test split, as is usual for ImageNet, whose
            test labels are not public. The existing test then becomes `hidden`, and valid is drawn from
            train.
        workers: Number of threads for decoding; by default all cores.
    """

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
        size: int | None = None,
        fit: Fit = "crop",
        tokens: Tokens = "patches",
        patch: int = 16,
        gray: bool = False,
        augment: Augment = "none",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        valid_fraction: float = 0.1,
        test_fraction: float = 0.1,
        split_seed: int = 0,
        valid_as_test: bool = False,
        workers: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        cutting = Cutting(tokens, patch, gray, augment)
        scale = _checked_scale(mean, std, 1 if gray else 3)
        division = Division({"valid": valid_fraction, "test": test_fraction}, split_seed)
        if not isinstance(valid_as_test, bool):
            raise MolsliceError(f"valid_as_test must be true or false, got {valid_as_test!r}")
        self.source = str(root)
        how = Decoding(size, fit, gray, cache_dir, workers)
        images = self._read(Path(root))
        splits = {name: rows for name, rows in images.splits.items() if len(rows)}
        if valid_as_test:
            if "valid" not in splits:
                raise MolsliceError(f"valid_as_test cannot be used: {self.source} has no split 'valid'")
            hidden = {"hidden": splits.pop("test")} if "test" in splits else {}
            splits |= {"test": splits.pop("valid"), **hidden}
        splits = (Division() if "valid" in splits else division).divide(splits, self.source)
        self._take(replace(images, splits=splits).decode(how), cutting, scale)

    @abstractmethod
    def _read(self, root: Path) -> EncodedImages:
        """Find the images, their classes and the splits of the source."""


def _checked_scale(mean: Sequence[float] | None, std: Sequence[float] | None, colors: int) -> Scale | None:
    """Check the options mean and std, and return both, or None if neither is given."""
    if mean is None and std is None:
        return None
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
