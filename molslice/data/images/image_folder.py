"""A user's own images, in one folder per class."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from molslice.data.images.base import Augment, Cutting, ImageDataset, Pictures, Tokens
from molslice.data.images.decoding import Decoding, Fit, class_folders, decode_all, is_image
from molslice.data.images.dividing import checked_scale, divide
from molslice.data.splits import NAMES, Division, consecutive_rows, split_folders
from molslice.files.cache import files_identity
from molslice.files.lines import read_lines
from molslice.registry import near_names
from molslice.types import DataSpec, MolsliceError

TINY_LABELS = "val_annotations.txt"  # of Tiny-ImageNet: file and class, separated by tabs


class ImageFolder(ImageDataset):
    """PNG, JPEG, BMP and WebP files as `train/<class>/*`, `valid/<class>/*`, `test/<class>/*`.

    This is the layout of ImageNet. The folder `valid` may also be named `val` or `validation`, and files may
    be in subfolders. Tiny-ImageNet's `val` (all images in one folder, classes in `val_annotations.txt`) is
    supported, and so is a `test` without classes, whose labels are missing. Without a folder `train`, the
    folders in `root` are the classes. An unreadable image keeps its row, with the reason.

    Images are decoded once and cached as rows x size x size x 3 bytes: 4 GB for the 25,000 images of
    Dogs-vs-Cats at 224 pixels, 193 GB for ImageNet.

    Args:
        root: The folder.
        size: Side to which images are resized, in pixels; by default images keep their size, which must be
            the same for all.
        fit: `crop` resizes the shorter side to `size` and takes the center, `squash` resizes both sides.
        tokens: `patches`, or `pixels` for one token per pixel (per color of a pixel without `gray`).
        patch: Side of a patch, in pixels.
        gray: Whether to convert colors to gray.
        augment: `none`, `crop`, `crop_flip`, `crop_flip_rand`, `resized_flip_rand` or
            `resized_flip_rand_mix`; see `ImageDataset`.
        mean: Mean of each color as a fraction of 255, given with `std`; by default the mean of the
            training split. Evaluate a model with the values of its training.
        std: Standard deviation of each color, given with `mean`.
        valid_fraction: Fraction of the training images for `valid`, if its folder does not exist.
        test_fraction: Fraction of the training images for `test`, if there is neither folder.
        split_seed: Seed of these draws.
        num_classes: Number of classes, which must agree with the files. With it, `params` and `bench flops`
            need no files.
        valid_as_test: Whether to use the folder `valid` as the test split, as is usual for ImageNet.
        workers: Number of threads for decoding; by default all cores.
        cache_dir: Folder for decoded images; by default the user's cache.

    Raises:
        MolsliceError: An option is invalid, a folder is missing, or a class is not in `train`.
    """

    instructions = (
        "Download ImageNet from https://image-net.org/download, Tiny-ImageNet from "
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip, Dogs-vs-Cats (PetImages) at "
        "https://www.microsoft.com/en-us/download/details.aspx?id=54765"
    )

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
        num_classes: int | None = None,
        valid_as_test: bool = False,
        workers: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        cutting, how = Cutting(tokens, patch, gray, augment), Decoding(size, fit, gray)
        scale = checked_scale(mean, std, cutting)
        division = Division({"valid": valid_fraction, "test": test_fraction}, split_seed)
        self.source = str(root)
        files = _find_files(Path(root))
        self.class_names = files.classes
        if num_classes is not None and len(self.class_names) != num_classes:
            raise MolsliceError(
                f"{root} has {len(self.class_names)} classes, but data.num_classes is {num_classes}"
            )
        parts = consecutive_rows(files.counts)
        splits = divide(parts, division, self.source, valid_as_test=valid_as_test)
        identity = {"files": files_identity(files.paths, Path(root))}
        pixels, failed = decode_all(
            lambda: iter(files.paths), len(files.paths), how, identity, cache_dir, workers
        )
        labels = np.array(files.labels, np.int64)
        self._take(Pictures(pixels, labels, splits, failed), cutting, scale)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Describe images of a given size and number of classes, without the standardization of the data."""
        classes, size = options.get("num_classes"), options.get("size")
        if classes is None or size is None:
            return None
        return Cutting.of({"patch": 16, **options}).describe(classes, size, size, 3)


@dataclass(slots=True)
class _Files:
    """Image files in the order of their rows, split by split."""

    classes: tuple[str, ...]
    paths: list[Path] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, split: str, images_by_class: Mapping[str, list[Path]], place: Path) -> None:
        """Add the images of a split.

        Raises:
            MolsliceError: A class is not in the training split.
        """
        for name, images in images_by_class.items():
            if name not in self.classes:
                raise MolsliceError(
                    f"{place} has the class {name!r}, which is not in train; {near_names(name, self.classes)}"
                )
            self.paths += images
            self.labels += [self.classes.index(name)] * len(images)
        self.counts[split] = sum(map(len, images_by_class.values()))


def _find_files(root: Path) -> _Files:
    if not root.is_dir():
        raise MolsliceError(f"no such folder: {root}; expected images {root}/train/<class>/*.png or *.jpg")
    folders = split_folders(root)
    if not folders:
        images = class_folders(root)
        if not images:
            raise MolsliceError(f"{root} has neither images <class>/*.png (or *.jpg) nor train/<class>/*")
        files = _Files(tuple(images))
        files.add("train", images, root)
        return files
    images = class_folders(folders["train"])
    if not images:
        raise MolsliceError(f"{folders['train']} has no images <class>/*.png (or *.jpg)")
    files = _Files(tuple(images))
    for split in NAMES:
        if split in folders:
            _add_split(files, split, folders[split])
    return files


def _add_split(files: _Files, split: str, folder: Path) -> None:
    images_by_class = class_folders(folder)
    loose = sorted(path for path in folder.iterdir() if is_image(path) and path.is_file())
    if (folder / TINY_LABELS).is_file():
        images_by_class = _tiny_images(folder)
    elif (
        split == "test"
        and len(images_by_class) + bool(loose) == 1
        and not set(images_by_class) & set(files.classes)
    ):
        # test images without public classes, in the folder itself or one level below, as in Tiny-ImageNet
        images = loose or next(iter(images_by_class.values()))
        files.paths += images
        files.labels += [-1] * len(images)
        files.counts[split] = len(images)
        return
    elif loose:
        raise MolsliceError(f"{loose[0]} is not in the folder of a class, {folder}/<class>/")
    files.add(split, images_by_class, folder)


def _tiny_images(folder: Path) -> dict[str, list[Path]]:
    images = {path.name: path for group in class_folders(folder).values() for path in group}
    images_by_class: dict[str, list[Path]] = {}
    file = folder / TINY_LABELS
    for number, line in enumerate(read_lines(file), start=1):
        cells = line.split("\t")
        if len(cells) < 2 or cells[0] not in images:
            raise MolsliceError(
                f"{file}, line {number}: expected an image of {folder}, a tab and a class, got {line[:60]!r}"
            )
        images_by_class.setdefault(cells[1], []).append(images.pop(cells[0]))
    if images:
        raise MolsliceError(f"{file} has no class for {min(images)} ({len(images)} such images)")
    return {name: sorted(images_by_class[name]) for name in sorted(images_by_class)}
