"""CIFAR-10 in the formats in which people have it."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from molslice.data import cifar_files
from molslice.data.cifar_files import SIDE, Layout
from molslice.data.images import Augment, Cutting, ImageDataset, Pictures, Tokens, with_valid_split
from molslice.types import DataSpec, MolsliceError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
LAYOUT = Layout(
    name="CIFAR-10",
    archive="cifar-10-binary.tar.gz",
    folder="cifar-10-batches-bin",
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test="test_batch.bin",
    label_bytes=1,
    label=0,
    pickles=("cifar-10-python.tar.gz", "cifar-10-batches-py", "batches.meta", "data_batch_1"),
)
HUB = "uoft-cs/cifar10"


class Cifar10(ImageDataset):
    """Color images of 32 x 32 in ten classes: 50,000, a share of which becomes `valid`, and 10,000 as test.

    The folder holds the binary version (`cifar-10-binary.tar.gz` or what is in it), or images as
    `train/<class>/*.png` and `test/<class>/*.png` (JPEG too), or archives of such folders, or the Parquet
    files of the Hugging Face Hub. The python version is not read: it is made of pickles.

    Args:
        root: the folder.
        tokens: `patches`, or `pixels` for one token a pixel (a color of a pixel where they are not grey).
        patch: side of a patch.
        grey: grey images instead of colors, as Long Range Arena has them.
        augment: `none`, `crop`, `crop_flip`, or with RandAugment `crop_flip_rand` or `resized_flip_rand`.
        valid_fraction: share of the training images that becomes the split `valid`.
        split_seed: of drawing them.
        cache_dir: where decoded images are kept, by default the user's cache.

    Raises:
        MolsliceError: an option that is none, or files that are missing or damaged.
    """

    how_to_get = cifar_files.how_to_get(LAYOUT)

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
        tokens: Tokens = "patches",
        patch: int = 2,
        grey: bool = False,
        augment: Augment = "none",
        valid_fraction: float = 0.1,
        split_seed: int = 0,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        cutting = Cutting(tokens, patch, grey, augment)
        self.source, self.class_names = str(root), CLASSES
        pictures = _read(Path(root), grey, cache_dir)
        splits = with_valid_split(pictures.splits, valid_fraction, split_seed)
        self._take(replace(pictures, splits=splits), cutting)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec:
        """Ten classes of 32 x 32 pixels; how patches are standardized is known from the data alone."""
        return Cutting.of(options).describe(len(CLASSES), SIDE, SIDE, 3)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Fetch the Parquet files of the Hugging Face Hub into `root`.

        Raises:
            MolsliceError: the library `datasets` is missing, or the network or the disk fails.
        """
        from molslice.data.fetch import fetch_hub

        fetch_hub(HUB, Path(options["root"]))


def _read(root: Path, grey: bool, cache_dir: str | os.PathLike[str] | None) -> Pictures:
    if root.is_dir():
        pictures = cifar_files.read_binary(root, LAYOUT, grey)
        if pictures is None:
            pictures = cifar_files.read_images(root, LAYOUT, CLASSES, grey, cache_dir)
        if pictures is not None:
            return pictures
        tables = cifar_files.read_parquet(root, None, grey, cache_dir)
        if tables is not None:
            pictures, names = tables
            if names not in ((), CLASSES):
                raise MolsliceError(f"the tables in {root} are of other classes: {', '.join(names[:10])}")
            return pictures
    raise cifar_files.missing(root, LAYOUT)
