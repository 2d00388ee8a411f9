"""Fetching images from the Hugging Face Hub: only when asked, through its library `datasets`."""

import gzip
import importlib
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from molslice.data.hub import download_folder, hub_errors, import_datasets, keep_file
from molslice.data.mnist import UNSIGNED_BYTES

__all__ = ["fetch_hub", "fetch_idx"]

IDX_NAMES = {"train": "train", "test": "t10k"}


def fetch_idx(name: str, root: Path) -> None:
    """Save MNIST or one of its like from the Hugging Face Hub as the four idx files in `root`, compressed.

    The images of the Hub are PNG, which loses nothing. Files that are there already are not written again.

    Raises:
        MolsliceError: the library `datasets` is missing, or what it or the network says.
    """
    datasets, folder = import_datasets(name), download_folder({"root": root})
    with hub_errors(name):
        for split, table in datasets.load_dataset(name).items():
            stem = IDX_NAMES[split]
            arrays = {
                f"{stem}-images-idx3-ubyte.gz": lambda table=table: np.stack(
                    [np.asarray(row["image"], np.uint8) for row in table]
                ),
                f"{stem}-labels-idx1-ubyte.gz": lambda table=table: np.array(table["label"], np.uint8),
            }
            for file, values in arrays.items():
                if not (folder / file).is_file():
                    keep_file(folder / file, partial(_write_idx, values()))


def _write_idx(values: np.ndarray, path: Path) -> None:
    """The format that `mnist.read_idx` reads, compressed."""
    header = bytes([0, 0, UNSIGNED_BYTES, values.ndim])
    header += b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(gzip.compress(header + values.tobytes(), 6))


def fetch_hub(name: str, root: Path) -> None:
    """Save every split of a data set of the Hugging Face Hub as `root/<split>-00000-of-00001.parquet`.

    Splits that are there already are not written again.

    Raises:
        MolsliceError: the library `datasets` is missing, or what it or the network says.
    """
    datasets, folder = import_datasets(name), download_folder({"root": root})
    with hub_errors(name):
        splits = datasets.load_dataset(name)
        for split, table in splits.items():
            path = folder / f"{split}-00000-of-00001.parquet"
            if not path.is_file():
                keep_file(path, _with_files(datasets, table).to_parquet)


def _with_files(datasets: ModuleType, table: Any) -> Any:  # noqa: ANN401 - tables of `datasets`
    """The same table with the images in it; of some data sets it holds their paths alone."""
    for column, feature in table.features.items():
        if isinstance(feature, datasets.Image) and len(table):
            first = table.cast_column(column, datasets.Image(decode=False))[0][column]
            if first["bytes"] is None:
                embed = importlib.import_module("datasets.table").embed_table_storage
                return table.with_format("arrow").map(embed, batched=True, batch_size=100)
    return table
