"""CIFAR-10 in its common file formats."""

from collections.abc import Mapping
from typing import Any

from molslice.data.images.base import Cutting
from molslice.data.images.cifar_files import PAGE, SIDE, Cifar
from molslice.types import DataSpec

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class Cifar10(Cifar):
    """Color images of 32 x 32 pixels in ten classes: 50,000 for train and valid, 10,000 for test.

    The folder contains the binary version (`cifar-10-binary.tar.gz` or its contents), images as
    `train/<class>/*.png` and `test/<class>/*.png` (or JPEG), archives of such folders, or the Parquet files
    of the Hugging Face Hub. The Python version is not supported, because it consists of pickles.
    """

    title, hub = "CIFAR-10", "uoft-cs/cifar10"
    class_names, num_classes = CLASSES, len(CLASSES)
    archive, folder = "cifar-10-binary.tar.gz", "cifar-10-batches-bin"
    parts = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
    label_bytes = 1
    pickles = ("cifar-10-python.tar.gz", "cifar-10-batches-py", "batches.meta", "data_batch_1")
    instructions = f"By hand: download {archive} from {PAGE}"

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec:
        """Describe ten classes of 32 x 32 pixels without the standardization, which depends on the data."""
        return Cutting.of(options).describe(len(CLASSES), SIDE, SIDE, 3)
