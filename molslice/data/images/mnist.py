"""MNIST and other data in its idx files: Fashion-MNIST, KMNIST."""

import gzip
import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from molslice.data.images.base import Augment, Cutting, ImageDataset, Pictures, Tokens
from molslice.data.splits import Division, consecutive_rows
from molslice.files.atomic import write_atomically
from molslice.files.hub import claim_folder, datasets_library, download_folder
from molslice.files.lines import GZIP_MAGIC, find_any
from molslice.registry import check_choice
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
FOLDERS = {"digits": "MNIST", "fashion": "FashionMNIST"}  # the folders of torchvision
HUB = {"digits": "ylecun/mnist", "fashion": "zalando-datasets/fashion_mnist"}
TRAIN_IMAGES = "train-images-idx3-ubyte"
FILES = {  # file name to split of the Hub
    TRAIN_IMAGES: "train",
    "train-labels-idx1-ubyte": "train",
    "t10k-images-idx3-ubyte": "test",
    "t10k-labels-idx1-ubyte": "test",
}
UNSIGNED_BYTES = 8  # type code, the third byte of the idx format
SIDE = 28


class Mnist(ImageDataset):
    """Gray images of 28 x 28 pixels in ten classes: 60,000 for train and valid, 10,000 for test.

    The four files are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
    `t10k-labels-idx1-ubyte`, plain or with `.gz`. Fashion-MNIST, KMNIST and other data in the same format are
    read from their own folders.

    Args:
        root: Folder of the four files, or the parent of torchvision's folder `MNIST`.
        variant: `digits` or `fashion`; determines the names of the classes and the download.
        tokens: `patches`, or `pixels` for one token per pixel.
        patch: Side of a patch, in pixels.
        augment: `none`, `crop`, `crop_flip`, `crop_flip_rand`, `resized_flip_rand` or
            `resized_flip_rand_mix`; see `ImageDataset`. Do not mirror digits.
        valid_fraction: Fraction of the training images for the split `valid`.
        split_seed: Seed of the draw of `valid`.
    """

    instructions = (
        "By hand: download the four files of digits from https://ossci-datasets.s3.amazonaws.com/mnist/, or "
        "the files of fashion from https://github.com/zalandoresearch/fashion-mnist"
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
        check_choice("variant of mnist", variant, CLASSES)
        self.class_names = CLASSES[variant]
        division = Division({"valid": valid_fraction}, split_seed)
        cutting = Cutting(tokens, patch, True, augment)
        folder = _find_folder(Path(root), variant)
        if folder is None:
            raise MolsliceError(f"no {TRAIN_IMAGES} or {TRAIN_IMAGES}.gz in {root}. {self.advice()}")
        self.source = str(folder)
        images, labels = [], []
        for prefix in ("train", "t10k"):
            file = _find_file(folder, f"{prefix}-images-idx3-ubyte")
            images.append(read_idx(file, 3))
            labels.append(read_idx(_find_file(folder, f"{prefix}-labels-idx1-ubyte"), 1))
            if len(images[-1]) != len(labels[-1]):
                raise MolsliceError(f"{file} holds {len(images[-1])} images and {len(labels[-1])} labels")
        if images[0].shape[1:] != images[1].shape[1:]:
            raise MolsliceError(f"the training and test images of {folder} differ in size")
        parts = consecutive_rows({"train": len(images[0]), "test": len(images[1])})
        splits = division.divide(parts, self.source)
        pixels, classes = np.concatenate(images)[..., None], np.concatenate(labels).astype(np.int64)
        self._take(Pictures(pixels, classes, splits), cutting)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec:
        """Describe ten classes of 28 x 28 pixels without the standardization, which depends on the data."""
        check_choice("variant of mnist", options.get("variant", "digits"), CLASSES)
        return Cutting.of(options, gray=True).describe(10, SIDE, SIDE, 1)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Download the files from the Hugging Face Hub into `root`, compressed; existing files are kept."""
        variant, root = options.get("variant", "digits"), Path(options["root"])
        check_choice("variant of mnist", variant, CLASSES)
        name = HUB[variant]
        claim_folder(root, {"hub": name})
        if not _missing_files(_find_folder(root, variant) or root):
            return
        with datasets_library(name) as datasets:
            folder = download_folder(options)
            missing = _missing_files(folder)
            tables = datasets.load_dataset(name)
            claim_folder(folder, {"hub": name}, fetched=len(missing) == len(FILES))
            for file in missing:
                table = tables[FILES[file]]
                if "images" in file:
                    values = np.stack([np.asarray(row["image"], np.uint8) for row in table])
                else:
                    values = np.array(table["label"], np.uint8)
                write_atomically(folder / f"{file}.gz", _idx_content(values))


def _find_folder(root: Path, variant: str) -> Path | None:
    folders = (root, root / FOLDERS[variant] / "raw", root / "raw")
    return next((folder for folder in folders if find_idx(folder, TRAIN_IMAGES)), None)


def _missing_files(folder: Path) -> list[str]:
    return [file for file in FILES if find_idx(folder, file) is None]


def _find_file(folder: Path, name: str) -> Path:
    file = find_idx(folder, name)
    if file is None:
        raise MolsliceError(f"{folder} has neither {name} nor {name}.gz")
    return file


def find_idx(folder: Path, name: str) -> Path | None:
    """Find an idx file in a folder, plain or gzip; None if it does not exist."""
    # some archives have a dot before the number of dimensions
    return find_any(folder, name, name.replace("-idx", ".idx"))


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Read an idx file of bytes, plain or gzip, with the given number of dimensions, as uint8.

    The format is two zero bytes, the type, the number of dimensions, the sizes as big-endian int32, and the
    values.

    Source: LeCun, Cortes and Burges, the page of MNIST.
    """
    try:
        data = path.read_bytes()
        if data.startswith(GZIP_MAGIC):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise MolsliceError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    start = 4 + 4 * dimensions
    if len(data) < start or data[:4] != bytes([0, 0, UNSIGNED_BYTES, dimensions]):
        raise MolsliceError(
            f"{path} is not an idx file of bytes in {dimensions} dimensions: starts with {data[:4].hex(' ')}"
        )
    shape = np.frombuffer(data[4:start], ">i4").tolist()
    if len(data) - start != math.prod(shape):
        wanted = " x ".join(map(str, shape))
        raise MolsliceError(f"{path} holds {len(data) - start} bytes, but its header says {wanted}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _idx_content(values: np.ndarray) -> bytes:
    """Return the format that `read_idx` reads, compressed."""
    header = bytes([0, 0, UNSIGNED_BYTES, values.ndim])
    header += b"".join(size.to_bytes(4, "big") for size in values.shape)
    return gzip.compress(header + values.tobytes(), 6)
