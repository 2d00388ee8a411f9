"""One's own images, in a folder for each class."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from molslice.data.image_files import Decoding, Fit, class_folders, decode_all, files_identity, is_image
from molslice.data.image_splits import Dividing, checked_scale, rows_of
from molslice.data.images import Augment, Cutting, ImageDataset, Pictures, Tokens
from molslice.data.splits import NAMES, split_folders
from molslice.registry import near_names
from molslice.types import MolsliceError

TINY_LABELS = "val_annotations.txt"  # Tiny-ImageNet's: file and class, tabs between


class ImageFolder(ImageDataset):
    """PNG, JPEG, BMP and WebP files as `train/<class>/*`, `valid/<class>/*`, `test/<class>/*`.

    ImageNet and its like are laid out so. The folders may also be called `val` and `validation`, and files
    may lie deeper. Tiny-ImageNet's `val` (all images in one folder, classes in `val_annotations.txt`) is
    read too, and a `test` without classes, whose images then have none. Without a folder `train` those in
    `root` are the classes. An image that cannot be read keeps its row, with the reason.

    The images are decoded once and kept as rows x size x size x 3 bytes in the cache: 4 GB for the 25,000 of
    Dogs-vs-Cats at 224, 193 GB for ImageNet.

    Args:
        root: the folder.
        size: the side to which images are brought; by default they stay as they are, all of one size.
        fit: `crop` brings the shorter side to `size` and takes the middle, `squash` changes proportions.
        tokens: `patches`, or `pixels` for one token a pixel (a color of a pixel where they are not grey).
        patch: side of a patch.
        grey: grey images instead of colors.
        augment: `none`, `crop`, `crop_flip`, or with RandAugment `crop_flip_rand` or `resized_flip_rand`.
        mean: of each color as a share of 255, with `std`; by default that of the training split. A model must
            be evaluated with those that it was trained with.
        std: the spread that goes with `mean`.
        valid_fraction: share of the training images that becomes `valid` where there is no such folder.
        test_fraction: the same for `test` where there is neither.
        split_seed: of drawing them.
        valid_as_test: the folder `valid` is the test split, as is customary for ImageNet.
        workers: threads that decode, by default all cores.
        cache_dir: where decoded images are kept, by default the user's cache.

    Raises:
        MolsliceError: an option that is none, folders that are missing, or a class that is not in `train`.
    """

    how_to_get = (
        "ImageNet is at https://image-net.org/download, Tiny-ImageNet at "
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
        grey: bool = False,
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
        cutting, how = Cutting(tokens, patch, grey, augment), Decoding(size, fit, grey)
        scale = checked_scale(mean, std, cutting)
        dividing = Dividing(valid_fraction, test_fraction, split_seed, valid_as_test)
        self.source = str(root)
        files = _find_files(Path(root))
        self.class_names = files.classes
        splits = dividing.divide(rows_of(files.counts), self.source)
        identity = {"files": files_identity(files.paths, Path(root))}
        decoded = decode_all(lambda: iter(files.paths), len(files.paths), how, identity, cache_dir, workers)
        labels = np.array(files.labels, np.int64)
        self._take(Pictures(decoded.pixels, labels, splits, decoded.failed), cutting, scale)


@dataclass(slots=True)
class _Files:
    """Images in the order of their rows, split by split."""

    classes: tuple[str, ...]
    paths: list[Path] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, split: str, found: Mapping[str, list[Path]], place: Path) -> None:
        """Take the images of a split, which are those of classes of the training split.

        Raises:
            MolsliceError: another class.
        """
        for name, images in found.items():
            if name not in self.classes:
                raise MolsliceError(
                    f"{place} holds images of {name!r}, no class of train; {near_names(name, self.classes)}"
                )
            self.paths += images
            self.labels += [self.classes.index(name)] * len(images)
        self.counts[split] = sum(map(len, found.values()))


def _find_files(root: Path) -> _Files:
    if not root.is_dir():
        raise MolsliceError(f"no such folder: {root}; images lie in {root}/train/<class>/*.png, or *.jpg")
    folders = split_folders(root)
    if not folders:
        found = class_folders(root)
        if not found:
            raise MolsliceError(f"{root} holds neither images <class>/*.png (or *.jpg) nor train/<class>/*")
        files = _Files(tuple(found))
        files.add("train", found, root)
        return files
    found = class_folders(folders["train"])
    if not found:
        raise MolsliceError(f"{folders['train']} holds no images <class>/*.png (or *.jpg)")
    files = _Files(tuple(found))
    for split in NAMES:
        if split in folders:
            _add_split(files, split, folders[split])
    return files


def _add_split(files: _Files, split: str, folder: Path) -> None:
    found = class_folders(folder)
    loose = sorted(path for path in folder.iterdir() if is_image(path) and path.is_file())
    if (folder / TINY_LABELS).is_file():
        found = _tiny_images(folder)
    elif split == "test" and len(found) + bool(loose) == 1 and not set(found) & set(files.classes):
        # test images whose classes are not public, in the folder itself or in one below, as in Tiny-ImageNet
        images = loose or next(iter(found.values()))
        files.paths += images
        files.labels += [-1] * len(images)
        files.counts[split] = len(images)
        return
    elif loose:
        raise MolsliceError(f"{loose[0]} lies in no folder of a class: images lie in {folder}/<class>/")
    files.add(split, found, folder)


def _tiny_images(folder: Path) -> dict[str, list[Path]]:
    images = {path.name: path for group in class_folders(folder).values() for path in group}
    found: dict[str, list[Path]] = {}
    file = folder / TINY_LABELS
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        cells = line.split("\t")
        if len(cells) < 2 or cells[0] not in images:
            raise MolsliceError(f"{file}, line {number}: {line[:60]!r} is no image of {folder}, tab, class")
        found.setdefault(cells[1], []).append(images.pop(cells[0]))
    if images:
        raise MolsliceError(f"{file} does not say the class of {min(images)}, of {len(images)} images in all")
    return {name: sorted(found[name]) for name in sorted(found)}
