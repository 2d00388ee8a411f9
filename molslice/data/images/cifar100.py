"""CIFAR-100 in its common file formats."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

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
from molslice.registry import near_names
from molslice.types import DataSpec, MolsliceError

Labels = Literal["fine", "coarse"]
COUNTS = {"fine": 100, "coarse": 20}
LAYOUT = Layout(
    name="CIFAR-100",
    archive="cifar-100-binary.tar.gz",
    folder="cifar-100-binary",
    train=("train.bin",),
    test="test.bin",
    label_bytes=2,
    label=1,
    pickles=("cifar-100-python.tar.gz", "cifar-100-python", "meta"),
)
HUB = "uoft-cs/cifar100"


class Cifar100(ImageDataset):
    """Color images of 32 x 32 pixels: 50,000 for train and valid, 10,000 for test.

    The folder contains the binary version (`cifar-100-binary.tar.gz` or its contents) or the Parquet files of
    the Hugging Face Hub. The Python version is not supported, because it consists of pickles.

    Args:
        root: The folder.
        labels: The 100 `fine` classes, or the 20 `coarse` classes that group them.
        tokens: `patches`, or `pixels` for one token per pixel (per color of a pixel without `gray`).
        patch: Side of a patch, in pixels.
        gray: Whether to convert colors to gray.
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
        labels: Labels = "fine",
        tokens: Tokens = "patches",
        patch: int = 2,
        gray: bool = False,
        augment: Augment = "none",
        valid_fraction: float = 0.1,
        split_seed: int = 0,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        division = Division({"valid": valid_fraction}, split_seed)
        cutting, count = Cutting(tokens, patch, gray, augment), _count(labels)
        self.source = str(root)
        pictures, names = _read(Path(root), labels, gray, cache_dir)
        if names and len(names) != count:
            raise MolsliceError(f"{root} has {len(names)} {labels} class names instead of {count}")
        self.class_names = names or tuple(map(str, range(count)))
        splits = division.divide(pictures.splits, self.source)
        self._take(replace(pictures, splits=splits), cutting)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec:
        """Describe 100 or 20 classes of 32 x 32 pixels without the standardization of the data."""
        return Cutting.of(options).describe(_count(options.get("labels", "fine")), SIDE, SIDE, 3)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Download the Parquet files of the Hugging Face Hub into `root`.

        Raises:
            MolsliceError: The library `datasets` is not installed, or the network or the disk failed.
        """
        from molslice.data.images.fetch import fetch_hub

        fetch_hub(HUB, Path(options["root"]))


def _count(labels: str) -> int:
    if labels not in COUNTS:
        raise MolsliceError(f"invalid labels of cifar100 {labels!r}; {near_names(str(labels), COUNTS)}")
    return COUNTS[labels]


def _read(
    root: Path, labels: Labels, gray: bool, cache_dir: str | os.PathLike[str] | None
) -> tuple[Pictures, tuple[str, ...]]:
    if root.is_dir():
        layout = replace(LAYOUT, label=1 if labels == "fine" else 0)
        pictures = cifar_files.read_binary(root, layout, gray)
        if pictures is not None:
            return pictures, cifar_files.read_names(root, layout, f"{labels}_label_names.txt")
        tables = cifar_files.read_parquet(root, f"{labels}_label", gray, cache_dir)
        if tables is not None:
            return tables
    raise cifar_files.missing(root, LAYOUT)
