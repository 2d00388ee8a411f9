"""CIFAR-100 in its common file formats."""

from collections.abc import Mapping
from typing import Any, Literal

from molslice.data.images.base import Cutting
from molslice.data.images.cifar_files import PAGE, SIDE, Cifar
from molslice.registry import check_choice
from molslice.types import DataSpec

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

    def __init__(self, *, labels: Labels = "fine", **options: Any) -> None:  # noqa: ANN401
        check_choice("labels of cifar100", labels, COUNTS)
        self.num_classes, self.label = COUNTS[labels], int(labels == "fine")
        self.label_column, self.names_file = f"{labels}_label", f"{labels}_label_names.txt"
        super().__init__(**options)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec:
        """Describe 100 or 20 classes of 32 x 32 pixels without the standardization of the data."""
        labels = options.get("labels", "fine")
        check_choice("labels of cifar100", labels, COUNTS)
        return Cutting.of(options).describe(COUNTS[labels], SIDE, SIDE, 3)
