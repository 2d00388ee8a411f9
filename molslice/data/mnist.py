"""MNIST, and whatever else comes as its idx files: Fashion-MNIST, KMNIST."""

import gzip
import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from molslice.data.images import Augment, Cutting, ImageDataset, Pictures, Tokens, with_valid_split
from molslice.data.lines import GZIP_MAGIC, find_any
from molslice.registry import near_names
from molslice.types import DataSpec, MolsliceError

Variant = Literal["digits", "fashion"]
CLASSES: Mapping[str, tuple[str, ...]] = {
    "digits": tuple("0123456789"),
    "fashion": (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
}
FOLDERS = {"digits": "MNIST", "fashion": "FashionMNIST"}  # where torchvision puts them
HUB = {"digits": "ylecun/mnist", "fashion": "zalando-datasets/fashion_mnist"}
TRAIN_IMAGES = "train-images-idx3-ubyte"
UNSIGNED_BYTES = 8  # of the idx format, its third byte
SIDE = 28


class Mnist(ImageDataset):
    """Grey images of 28 x 28 in ten classes: `train-images-idx3-ubyte` and its like, plain or with `.gz`.

    60,000 images to train on, of which a share becomes the validation split, and 10,000 to test on.
    Fashion-MNIST, KMNIST and others in the same files are read by giving their folder.

    Args:
        root: the folder of the four files, or the one that torchvision has put its `MNIST` into.
        variant: `digits` or `fashion`: the names of the classes, and what `prepare --download` fetches.
        tokens: `patches`, or `pixels` for one token a pixel.
        patch: side of a patch.
        augment: `none`, `crop`, `crop_flip`, `crop_flip_rand` or `resized_flip_rand`; mirrored digits are no
            digits.
        valid_fraction: share of the training images that becomes the split `valid`.
        split_seed: of drawing them.

    Raises:
        MolsliceError: an option that is none, or files that are missing or damaged.
    """

    how_to_get = (
        "By hand: the four files of digits are at https://ossci-datasets.s3.amazonaws.com/mnist/, those of "
        "fashion at https://github.com/zalandoresearch/fashion-mnist"
    )

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
        variant: Variant = "digits",
        tokens: Tokens = "patches",
        patch: int = 2,
        augment: Augment = "none",
        valid_fraction: float = 0.1,
        split_seed: int = 0,
    ) -> None:
        self.class_names = _class_names(variant)
        cutting = Cutting(tokens, patch, True, augment)
        folder = _find_folder(Path(root), variant)
        if folder is None:
            raise MolsliceError(f"no {TRAIN_IMAGES} or {TRAIN_IMAGES}.gz in {root}. {self.advice()}")
        self.source = str(folder)
        images, labels = [], []
        for part in ("train", "t10k"):
            file = _find_file(folder, f"{part}-images-idx3-ubyte")
            images.append(read_idx(file, 3))
            labels.append(read_idx(_find_file(folder, f"{part}-labels-idx1-ubyte"), 1))
            if len(images[-1]) != len(labels[-1]):
                raise MolsliceError(f"{file} holds {len(images[-1])} images and {len(labels[-1])} labels")
        if images[0].shape[1:] != images[1].shape[1:]:
            raise MolsliceError(f"{folder}: images to train on and to test on differ in size")
        rows, count = np.arange(len(images[0]) + len(images[1]), dtype=np.int64), len(images[0])
        splits = with_valid_split({"train": rows[:count], "test": rows[count:]}, valid_fraction, split_seed)
        pixels, classes = np.concatenate(images)[..., None], np.concatenate(labels).astype(np.int64)
        self._take(Pictures(pixels, classes, splits), cutting)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec:
        """Ten classes of 28 x 28 pixels; how patches are standardized is known from the data alone."""
        names = _class_names(options.get("variant", "digits"))
        return Cutting.of(options, grey=True).describe(len(names), SIDE, SIDE, 1)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Fetch the files into `root` from the Hugging Face Hub; nothing where they are there.

        Raises:
            MolsliceError: `root` holds another variant, the library `datasets` is missing, or the network or
                the disk fails.
        """
        from molslice.data.fetch import fetch_idx

        variant = options.get("variant", "digits")
        _class_names(variant)
        root = Path(options["root"])
        fetch_idx(HUB[variant], root, _find_folder(root, variant))


def _class_names(variant: str) -> tuple[str, ...]:
    if variant not in CLASSES:
        raise MolsliceError(f"variant of mnist is {variant!r}; {near_names(str(variant), CLASSES)}")
    return CLASSES[variant]


def _find_folder(root: Path, variant: str) -> Path | None:
    folders = (root, root / FOLDERS[variant] / "raw", root / "raw")
    return next((folder for folder in folders if find_idx(folder, TRAIN_IMAGES)), None)


def find_idx(folder: Path, name: str) -> Path | None:
    """The idx file of that name in a folder, plain or compressed; None where there is none."""
    # some archives have a dot before the number of dimensions
    return find_any(folder, name, name.replace("-idx", ".idx"))


def _find_file(folder: Path, name: str) -> Path:
    file = find_idx(folder, name)
    if file is None:
        raise MolsliceError(f"{folder} holds neither {name} nor {name}.gz")
    return file


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The bytes of an idx file, plain or compressed, in the shape that its header says.

    The format: two zero bytes, the type, the number of dimensions, the sizes as big-endian int32, the values
    (LeCun, Cortes and Burges, the page of MNIST).

    Raises:
        MolsliceError: another format, type, number of dimensions or length than that.
    """
    try:
        data = path.read_bytes()
        if data.startswith(GZIP_MAGIC):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise MolsliceError(f"{path} does not read: {getattr(error, 'strerror', None) or error}") from error
    start = 4 + 4 * dimensions
    if len(data) < start or data[:4] != bytes([0, 0, UNSIGNED_BYTES, dimensions]):
        raise MolsliceError(
            f"{path} is no idx file of bytes in {dimensions} dimensions: it starts with {data[:4].hex(' ')}"
        )
    shape = np.frombuffer(data[4:start], ">i4").tolist()
    if len(data) - start != math.prod(shape):
        wanted = " x ".join(map(str, shape))
        raise MolsliceError(f"{path} holds {len(data) - start} bytes, its header says {wanted}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
