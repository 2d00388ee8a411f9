"""CIFAR-100 in its common file formats."""

import os
from collections.abc import Mapping
from typing import Any, Literal

from molslice.data.images.base import Augment, Cutting, Tokens
from molslice.data.images.cifar_files import PAGE, SIDE, Cifar
from molslice.registry import near_names
from molslice.types import DataSpec, MolsliceError

Labels = Literal["fine", "coarse"]
COUNTS = {"fine": 100, "coarse": 20}


class Cifar100(Cifar):
    """Color images of 32 x 32 pixels: 50,000 for train and valid, 10,000 for test.

    The folder contains the binary version (`cifar-100-binary.tar.gz` or its contents) or the Parquet files of
    the Hugging Face Hub. The Python version is not supported, because it consists of pickles.

    Args:
        labels: The 100 `fine` classes, or the 20 `coarse` classes that group them.
    """

    title, hub = "CIFAR-100", "uoft-cs/cifar100"
    archive, folder = "cifar-100-binary.tar.gz", "cifar-100-binary"
    parts = ("train.bin", "test.bin")
    label_bytes = 2
    pickles = ("cifar-100-python.tar.gz", "cifar-100-python", "meta")
    instructions = f"By hand: download {archive} from {PAGE}"

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
        _check_labels(labels)
        self.labels, self.label = labels, int(labels == "fine")
        self.label_column, self.names_file = f"{labels}_label", f"{labels}_label_names.txt"
        super().__init__(
            root=root,
            tokens=tokens,
            patch=patch,
            gray=gray,
            augment=augment,
            valid_fraction=valid_fraction,
            split_seed=split_seed,
            cache_dir=cache_dir,
        )

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec:
        """Describe 100 or 20 classes of 32 x 32 pixels without the standardization of the data."""
        labels = options.get("labels", "fine")
        _check_labels(labels)
        return Cutting.of(options).describe(COUNTS[labels], SIDE, SIDE, 3)

    def _check_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        count = COUNTS[self.labels]
        if names and len(names) != count:
            raise MolsliceError(
                f"{self.source} has {len(names)} {self.labels} class names instead of {count}"
            )
        return names or tuple(map(str, range(count)))


def _check_labels(labels: str) -> None:
    if labels not in COUNTS:
        raise MolsliceError(f"invalid labels of cifar100 {labels!r}; {near_names(str(labels), COUNTS)}")
