"""A user's own images, in one folder per class."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from molslice.data.images.base import Cutting
from molslice.data.images.decoding import EncodedImages, class_folders, is_image
from molslice.data.images.labeled_files import ImageFiles
from molslice.data.splits import NAMES, consecutive_rows, split_folders
from molslice.files.cache import files_identity
from molslice.files.lines import read_lines
from molslice.registry import near_names
from molslice.types import DataSpec, MolsliceError

TINY_LABELS = "val_annotations.txt"  # of Tiny-ImageNet: file and class, separated by tabs
ImagesByClass = dict[str, list[Path]]


class ImageFolder(ImageFiles):
    """PNG, JPEG, BMP and WebP files as `train/<class>/*`, `valid/<class>/*`, `test/<class>/*`.

    This is the layout of ImageNet. The folder `valid` may also be named `val` or `validation`, and files may
    be in subfolders. Tiny-ImageNet's `val` (all images in one folder, classes in `val_annotations.txt`) is
    supported, and so is a `test` without classes, whose labels are missing. Without a folder `train`, the
    folders in `root` are the classes. An unreadable image keeps its row, with the reason.

    Images are decoded once and cached as rows x size x size x 3 bytes: 4 GB for the 25,000 images of
    Dogs-vs-Cats at 224 pixels, 193 GB for ImageNet.

    Args:
        num_classes: Number of classes, which must agree with the files. With it, `params` and `bench flops`
            need no files.
    """

    instructions = (
        "Download ImageNet from https://image-net.org/download, Tiny-ImageNet from "
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip, Dogs-vs-Cats (PetImages) at "
        "https://www.microsoft.com/en-us/download/details.aspx?id=54765"
    )

    def __init__(self, *, num_classes: int | None = None, **options: Any) -> None:  # noqa: ANN401
        self.num_classes = num_classes
        super().__init__(**options)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Describe images of a given size and number of classes, without the standardization of the data."""
        classes, size = options.get("num_classes"), options.get("size")
        if classes is None or size is None:
            return None
        return Cutting.of({"patch": 16, **options}).describe(classes, size, size, 3)

    def _read(self, root: Path) -> EncodedImages:
        splits = _find_images(root)
        names = tuple(splits["train"])
        if self.num_classes not in (None, len(names)):
            raise MolsliceError(
                f"{root} has {len(names)} classes, but data.num_classes is {self.num_classes}"
            )
        groups = [group for images in splits.values() for group in images.items()]
        paths = [path for _, group in groups for path in group]
        classes = [names.index(name) if name else -1 for name, _ in groups]
        labels = np.repeat(np.array(classes, np.int64), [len(group) for _, group in groups])
        rows = consecutive_rows({split: sum(map(len, images.values())) for split, images in splits.items()})
        identity = {"files": files_identity(paths, root)}
        return EncodedImages(lambda: iter(paths), identity, labels, rows, names)


def _find_images(root: Path) -> dict[str, ImagesByClass]:
    """Find the images of each class of each split; the class of images without labels is empty."""
    if not root.is_dir():
        raise MolsliceError(f"no such folder: {root}; expected images {root}/train/<class>/*.png or *.jpg")
    folders = split_folders(root)
    images = {split: class_folders(folders[split]) for split in NAMES if split in folders}
    images = images or {"train": class_folders(root)}
    classes = images["train"]
    if not classes and folders:
        raise MolsliceError(f"{folders['train']} has no images <class>/*.png (or *.jpg)")
    if not classes:
        raise MolsliceError(f"{root} has neither images <class>/*.png (or *.jpg) nor train/<class>/*")
    if not folders:
        return images
    return {split: _images_of(split, folders[split], images[split], classes) for split in images}


def _images_of(split: str, folder: Path, images: ImagesByClass, classes: Collection[str]) -> ImagesByClass:
    """Return the images of a split by class, from the images by subfolder of its folder."""
    loose = sorted(path for path in folder.iterdir() if is_image(path) and path.is_file())
    if (folder / TINY_LABELS).is_file():
        images = _tiny_images(folder, images)
    elif split == "test" and len(images) + bool(loose) == 1 and not any(name in classes for name in images):
        # test images without public classes, in the folder itself or one level below, as in Tiny-ImageNet
        return {"": loose or next(iter(images.values()))}
    elif loose:
        raise MolsliceError(f"{loose[0]} is not in the folder of a class, {folder}/<class>/")
    for name in images:
        if name not in classes:
            raise MolsliceError(
                f"{folder} has the class {name!r}, which is not in train; {near_names(name, classes)}"
            )
    return images


def _tiny_images(folder: Path, subfolders: ImagesByClass) -> ImagesByClass:
    images = {path.name: path for group in subfolders.values() for path in group}
    images_by_class: ImagesByClass = {}
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
