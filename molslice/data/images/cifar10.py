"""CIFAR-10 in its common file formats."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from molslice.data.images import cifar_files
from molslice.data.images.base import (
    Augment,
    Cutting,
    ImageDataset,
    Pictures,
    Tokens,
)
from molslice.data.images.cifar_files import SIDE, Layout
from molslice.data.splits import Division
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
    """Color images of 32 x 32 pixels in ten classes: 50,000 for train and valid, 10,000 for test.

    The folder contains the binary version (`cifar-10-binary.tar.gz` or its contents), images as
    `train/<class>/*.png` and `test/<class>/*.png` (or JPEG), archives of such folders, or the Parquet files
    of the Hugging Face Hub. The Python version is not supported, because it consists of pickles.

    Args:
        root: The folder.
        tokens: `patches`, or `pixels` for one token per pixel (per color of a pixel without `gray`).
        patch: Side of a patch, in pixels.
        gray: Whether to convert colors to gray, as in Long Range Arena.
        augment: `none`, `crop`, `crop_flip`, `crop_flip_rand`, `resized_flip_rand` or
            `resized_flip_rand_mix`; see `ImageDataset`.
        valid_fraction: Fraction of the training images for the split `valid`.
        split_seed: Seed of the draw of `valid`.
        cache_dir: Folder for decoded images; by default the user's cache.

    Raises:
        MolsliceError: An option is invalid, or files are missing or damaged.
    """

    instructions = cifar_files.instructions(LAYOUT)

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
        tokens: Tokens = "patches",
        patch: int = 2,
        gray: bool = False,
        augment: Augment = "none",
        valid_fraction: float = 0.1,
        split_seed: int = 0,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        division = Division({"valid": valid_fraction}, split_seed)
        cutting = Cutting(tokens, patch, gray, augment)
        self.source, self.class_names = str(root), CLASSES
        pictures = _read(Path(root), gray, cache_dir)
        splits = division.divide(pictures.splits, self.source)
        self._take(replace(pictures, splits=splits), cutting)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec:
        """Describe ten classes of 32 x 32 pixels without the standardization, which depends on the data."""
        return Cutting.of(options).describe(len(CLASSES), SIDE, SIDE, 3)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Download the Parquet files of the Hugging Face Hub into `root`.

        Raises:
            MolsliceError: The library `datasets` is not installed, or the network or the disk failed.
        """
        from molslice.data.images.fetch import fetch_hub

        fetch_hub(HUB, Path(options["root"]))


def _read(root: Path, gray: bool, cache_dir: str | os.PathLike[str] | None) -> Pictures:
    if root.is_dir():
        pictures = cifar_files.read_binary(root, LAYOUT, gray)
        if pictures is None:
            pictures = cifar_files.read_images(root, LAYOUT, CLASSES, gray, cache_dir)
        if pictures is not None:
            return pictures
        tables = cifar_files.read_parquet(root, None, gray, cache_dir)
        if tables is not None:
            pictures, names = tables
            if names not in ((), CLASSES):
                raise MolsliceError(f"the tables in {root} have other classes: {', '.join(names[:10])}")
            return pictures
    raise cifar_files.missing(root, LAYOUT)
