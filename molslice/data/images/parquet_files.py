"""Read and download Parquet files of images, as on the Hugging Face Hub: columns of files and of classes."""

import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from molslice.data.images.decoding import EncodedImages, Item
from molslice.data.splits import ALIASES, NAMES
from molslice.files.atomic import atomic_path
from molslice.files.cache import files_identity
from molslice.files.hub import claim_folder, datasets_library, download_folder
from molslice.files.tables.parquet import open_parquet, read_parquet
from molslice.registry import near_names
from molslice.types import MolsliceError

BATCH_ROWS = 256


def find_tables(root: Path) -> list[Path]:
    """Find all Parquet files of a folder, at any depth, sorted by name; `root` may be a single file."""
    if root.is_file() and root.suffix == ".parquet":
        return [root]
    # a killed download leaves a partial file whose name starts with a dot
    return sorted(path for path in root.rglob("*.parquet") if path.is_file() and path.name[0] != ".")


def read_tables(
    root: Path, image_column: str | None = None, label_column: str | None = None
) -> EncodedImages | None:
    """Read the Parquet files of a folder; None if it has none.

    Rows are numbered consecutively over all files. The split of a file is given by its name
    (`train-00000-of-00002.parquet`) or its folder (`train/0000.parquet`); val and validation mean valid. A
    single file with another name is `train`.

    Args:
        root: The folder, or a single file.
        image_column: Name of the column of images; by default the only such column.
        label_column: Name of the column of class numbers; by default `label` or `labels`.
    """
    files = find_tables(root)
    if not files:
        return None
    with open_parquet(files[0]) as file:
        schema = file.schema_arrow
    image_column = _image_column(files[0], schema, image_column)
    label_column = _label_column(files[0], schema, label_column)
    labels, bounds, classes = [], {}, {}
    for path in files:
        start = sum(map(len, labels))
        classes_of_rows, class_names = _labels(path, image_column, label_column)
        labels.append(classes_of_rows)
        if class_names:
            classes.setdefault(class_names, path)
        name = _split_of(path) or ("train" if len(files) == 1 else None)
        if name is None:
            raise MolsliceError(
                f"unknown split of {path}: name the file or its folder {', '.join(NAMES)}, as in "
                "train-00000-of-00001.parquet"
            )
        bounds.setdefault(name, []).append(np.arange(start, start + len(labels[-1]), dtype=np.int64))
    if not any(map(len, labels)):
        raise MolsliceError(f"{files[0]} and the other files have no rows")
    if len(classes) > 1:
        one, other = list(classes.values())[:2]
        raise MolsliceError(f"the classes in {other} differ from those in {one}")
    splits = {name: np.concatenate(bounds[name]) for name in sorted(bounds, key=NAMES.index)}
    identity = {
        "files": files_identity(files, root if root.is_dir() else root.parent),
        "column": image_column,
    }
    class_names = next(iter(classes), ())
    return EncodedImages(
        lambda: _images(files, image_column), identity, np.concatenate(labels), splits, class_names
    )


def _images(files: Sequence[Path], image_column: str) -> Iterator[Item]:
    """Yield the image of each row as the contents of an image file, or the reason why it is missing."""
    for path in files:
        for rows in read_parquet(path, [image_column], batch_rows=BATCH_ROWS):
            for cell in rows[image_column]:
                data = cell.get("bytes") if isinstance(cell, dict) else cell
                yield data if isinstance(data, bytes) else "the table holds no image in this row"


def _image_column(path: Path, schema: Any, given: str | None) -> str:  # noqa: ANN401
    import pyarrow as pa

    def holds_files(kind: Any) -> bool:  # noqa: ANN401
        if pa.types.is_struct(kind):
            return kind.get_field_index("bytes") >= 0
        return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)

    columns = [field.name for field in schema if holds_files(field.type)]
    if given is None and len(columns) == 1:
        return columns[0]
    if given in columns:
        return str(given)
    if given is not None:
        raise MolsliceError(f"{path} has no column of images {given!r}; {near_names(given, columns)}")
    raise MolsliceError(
        f"{path} has {len(columns) or 'no'} columns of images{': ' + ', '.join(columns) if columns else ''}; "
        "set image_column to the one to read"
    )


def _label_column(path: Path, schema: Any, given: str | None) -> str:  # noqa: ANN401
    for name in ("label", "labels") if given is None else (given,):
        if name in schema.names:
            return name
    raise MolsliceError(
        f"{path} has no column {given or 'label'!r}; set label_column to the column of the classes; "
        f"{near_names(given or 'label', schema.names)}"
    )


def _labels(path: Path, image_column: str, label_column: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Read the class of each row, and the names of the classes if the file has them."""
    import pyarrow as pa

    with open_parquet(path, [image_column, label_column]) as file:
        column = file.read(columns=[label_column]).column(0)
        names = _class_names(path, file.schema_arrow, label_column)
    if not pa.types.is_integer(column.type):
        raise MolsliceError(
            f"{path}, column {label_column!r}: classes must be non-negative integers, got {column.type}"
        )
    return column.cast(pa.int64()).fill_null(-1).to_numpy(), names


def _class_names(path: Path, schema: Any, label_column: str) -> tuple[str, ...]:  # noqa: ANN401
    """Read the class names that the library `datasets` writes into the schema."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        names = features[label_column]["names"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise MolsliceError(f"invalid class names in {path}: {names!r}")
    return tuple(names)


def _split_of(path: Path) -> str | None:
    for word in (path.stem.split("-")[0], path.parent.name):
        word = word.lower().removeprefix("partial_")
        name = ALIASES.get(word, word)
        if name in NAMES:
            return name
    return None


def fetch_hub(name: str, root: Path) -> None:
    """Download every split of a data set of the Hugging Face Hub to `root/<split>-00000-of-00001.parquet`.

    Existing splits are kept. If `root` has Parquet files, nothing is downloaded, unless an earlier download
    was interrupted.
    """
    noted = claim_folder(root, {"hub": name})
    awaited = [_table_of(root, split) for split in noted.get("splits", ())]
    if find_tables(root) and all(path.is_file() for path in awaited):
        return
    with datasets_library(name) as datasets:
        folder = download_folder({"root": root})
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
