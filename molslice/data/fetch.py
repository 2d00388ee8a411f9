"""Fetching images from the Hugging Face Hub: only when asked, through its library `datasets`."""

import gzip
import importlib
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from molslice.data.hub import claim_folder, download_folder, hub_errors, import_datasets, keep_file
from molslice.data.image_tables import find_tables
from molslice.data.mnist import UNSIGNED_BYTES, find_idx

__all__ = ["fetch_hub", "fetch_idx"]

IDX_FILES = {  # to the split of the Hub
    "train-images-idx3-ubyte": "train",
    "train-labels-idx1-ubyte": "train",
    "t10k-images-idx3-ubyte": "test",
    "t10k-labels-idx1-ubyte": "test",
}


def fetch_idx(name: str, root: Path, found: Path | None = None) -> None:
    """Save MNIST or one of its like from the Hugging Face Hub as the four idx files in `root`, compressed.

    The images of the Hub are PNG, which loses nothing. Files that are there already are not written again.
    Where the folder `found`, which would be read, has all four, nothing is fetched.

    Raises:
        MolsliceError: `root` holds another data set, the library `datasets` is missing, or what it or the
            network says.
    """
    source = {"hub": name}
    claim_folder(root, source)
    if not _missing_idx(found or root):
        return
    datasets, folder = import_datasets(name), download_folder({"root": root})
    missing = _missing_idx(folder)
    with hub_errors(name):
        tables = datasets.load_dataset(name)
        claim_folder(folder, source, fetched=len(missing) == len(IDX_FILES))
        for file in missing:
            table = tables[IDX_FILES[file]]
            if "images" in file:
                values = np.stack([np.asarray(row["image"], np.uint8) for row in table])
            else:
                values = np.array(table["label"], np.uint8)
            keep_file(folder / f"{file}.gz", partial(_write_idx, values))


def _missing_idx(folder: Path) -> list[str]:
    return [file for file in IDX_FILES if find_idx(folder, file) is None]


def _write_idx(values: np.ndarray, path: Path) -> None:
    """The format that `mnist.read_idx` reads, compressed."""
    header = bytes([0, 0, UNSIGNED_BYTES, values.ndim])
    header += b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(gzip.compress(header + values.tobytes(), 6))


def fetch_hub(name: str, root: Path) -> None:
    """Save every split of a data set of the Hugging Face Hub as `root/<split>-00000-of-00001.parquet`.

    Splits that are there already are not written again. Where there are Parquet files, nothing is fetched,
    unless an earlier call has not come to its end.

    Raises:
        MolsliceError: `root` holds another data set, the library `datasets` is missing, or what it or the
            network says.
    """
    noted = claim_folder(root, {"hub": name})
    awaited = [_table_of(root, split) for split in noted.get("splits", ())]
    if find_tables(root) and all(path.is_file() for path in awaited):
        return
    datasets, folder = import_datasets(name), download_folder({"root": root})
    with hub_errors(name):
        splits = datasets.load_dataset(name)
        claim_folder(folder, {"hub": name, "splits": list(splits)}, fetched=True)
        for split, table in splits.items():
            path = _table_of(folder, split)
            if not path.is_file():
                keep_file(path, _with_files(datasets, table).to_parquet)


def _table_of(folder: Path, split: str) -> Path:
    return folder / f"{split}-00000-of-00001.parquet"


def _with_files(datasets: ModuleType, table: Any) -> Any:  # noqa: ANN401 - tables of `datasets`
    """The same table with the images in it; of some data sets it holds their paths alone."""
    for column, feature in table.features.items():
        if isinstance(feature, datasets.Image) and len(table):
            first = table.cast_column(column, datasets.Image(decode=False))[0][column]
            if first["bytes"] is None:
                embed = importlib.import_module("datasets.table").embed_table_storage
                return table.with_format("arrow").map(embed, batched=True, batch_size=100)
    return table
