"""Download images from the Hugging Face Hub with the library `datasets`, only on request."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

from molslice.data.images.parquet_files import find_tables
from molslice.files.atomic import atomic_path
from molslice.files.hub import claim_folder, download_folder, hub_errors, import_datasets

__all__ = ["fetch_hub"]


def fetch_hub(name: str, root: Path) -> None:
    """Download every split of a data set of the Hugging Face Hub to `root/<split>-00000-of-00001.parquet`.

    Existing splits are kept. If `root` has Parquet files, nothing is downloaded, unless an earlier download
    was interrupted.
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
                with atomic_path(path) as partial:
                    _with_files(datasets, table).to_parquet(partial)


def _table_of(folder: Path, split: str) -> Path:
    return folder / f"{split}-00000-of-00001.parquet"


def _with_files(datasets: ModuleType, table: Any) -> Any:  # noqa: ANN401 - tables of `datasets`
    """Embed the image files in a table, because some data sets have only their paths."""
    for column, feature in table.features.items():
        if isinstance(feature, datasets.Image) and len(table):
            first = table.cast_column(column, datasets.Image(decode=False))[0][column]
            if first["bytes"] is None:
                embed = importlib.import_module("datasets.table").embed_table_storage
                return table.with_format("arrow").map(embed, batched=True, batch_size=100)
    return table
