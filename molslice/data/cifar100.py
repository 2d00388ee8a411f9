"""CIFAR-100 in the formats in which people have it."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from molslice.data import cifar_files
from molslice.data.cifar_files import SIDE, Layout
from molslice.data.images import Augment, Cutting, ImageDataset, Pictures, Tokens, with_valid_split
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
    """Color images of 32 x 32: 50,000, of which a share becomes `valid`, and 10,000 to test on.

    The folder holds the binary version (`cifar-100-binary.tar.gz` or what is in it) or the Parquet files of
    the Hugging Face Hub. The python version is not read: it is made of pickles.

    Args:
        root: the folder.
        labels: the 100 `fine` classes, or the 20 `coarse` ones that they belong to.
        tokens: `patches`, or `pixels` for one token a pixel (a color of a pixel where they are not grey).
        patch: side of a patch.
        grey: grey images instead of colors.
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
        labels: Labels = "fine",
        tokens: Tokens = "patches",
        patch: int = 2,
        grey: bool = False,
        augment: Augment = "none",
        valid_fraction: float = 0.1,
        split_seed: int = 0,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        cutting, count = Cutting(tokens, patch, grey, augment), _count(labels)
        self.source = str(root)
        pictures, names = _read(Path(root), labels, grey, cache_dir)
        if names and len(names) != count:
            raise MolsliceError(f"{root} names {len(names)} {labels} classes instead of {count}")
        self.class_names = names or tuple(map(str, range(count)))
        splits = with_valid_split(pictures.splits, valid_fraction, split_seed)
        self._take(replace(pictures, splits=splits), cutting)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec:
        """100 or 20 classes of 32 x 32 pixels; how patches are standardized is known from the data alone."""
        return Cutting.of(options).describe(_count(options.get("labels", "fine")), SIDE, SIDE, 3)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Fetch the Parquet files of the Hugging Face Hub into `root`.

        Raises:
            MolsliceError: the library `datasets` is missing, or the network or the disk fails.
        """
        from molslice.data.fetch import fetch_hub

        fetch_hub(HUB, Path(options["root"]))


def _count(labels: str) -> int:
    if labels not in COUNTS:
        raise MolsliceError(f"labels of cifar100 are {labels!r}; {near_names(str(labels), COUNTS)}")
    return COUNTS[labels]


def _read(
    root: Path, labels: Labels, grey: bool, cache_dir: str | os.PathLike[str] | None
) -> tuple[Pictures, tuple[str, ...]]:
    if root.is_dir():
        layout = replace(LAYOUT, label=1 if labels == "fine" else 0)
        pictures = cifar_files.read_binary(root, layout, grey)
        if pictures is not None:
            return pictures, cifar_files.read_names(root, layout, f"{labels}_label_names.txt")
        tables = cifar_files.read_parquet(root, f"{labels}_label", grey, cache_dir)
        if tables is not None:
            return tables
    raise cifar_files.missing(root, LAYOUT)
