"""Data: one file = one data set or file format = one name in a configuration; the compact store; batching.

What lives here: `base.py`, what a data set offers; the members, one file each (molecules `pcqm4m.py` and
`csv.py`; sequences `listops.py`, `imdb.py`, `mnist.py`, `uea.py` and others); and the rooms that they share:
`batching.py`, `splits.py`, `folds.py`; of molecules `store.py` with `packed.py` and `store_writer.py`
(molecules as a folder of arrays), `prepare.py` (a file of SMILES becomes a store), `table.py` (CSV and its
errors), and for PCQM4M `split_file.py`, `download.py`, `submission.py`; of sequences `sequences.py` (rows end
to end, kept arrays), `texts.py`, `documents.py` and `tokenizing.py`, `images.py` and its files, `ts_file.py`,
the rules by which ListOps and Pathfinder are made; `hub.py` and `fetch.py`, what downloads.
May import: `molslice.chem` (where SMILES are read, inside the function: the rest needs no rdkit),
`molslice.ops`, `molslice.types`, `molslice.registry`, torch, numpy, pandas, tqdm; ogb to evaluate; inside a
function what only one format needs (Pillow, pyarrow, h5py, tokenizers, datasets, aeon).
To add one: write `my_set.py` with a class `MySet(SequenceDataset)` whose keyword-only options are what a
configuration may say; a file that is no data set is named in `ROOMS`.
Why so: whoever looks for a data set finds its name among the files.
"""

import os
import typing
from collections.abc import Mapping
from typing import Any

from molslice.data.base import Dataset, MoleculeDataset
from molslice.registry import Registry
from molslice.types import MolsliceError

__all__ = ["DATASETS", "Dataset", "MoleculeDataset", "build_dataset", "require_options"]

ROOMS = (
    "batching",
    "cifar_files",
    "documents",
    "download",
    "fetch",
    "folds",
    "hub",
    "image_files",
    "image_splits",
    "image_tables",
    "images",
    "lexicon",
    "lines",
    "listops_rule",
    "packed",
    "parquet",
    "pathfinder_drawing",
    "pathfinder_placing",
    "pathfinder_rule",
    "pillow",
    "prepare",
    "rand_augment",
    "records",
    "sequences",
    "split_file",
    "splits",
    "store",
    "store_writer",
    "submission",
    "table",
    "texts",
    "tokenizing",
    "ts_file",
    "wikitext_files",
)
DATASETS = Registry("molslice.data", Dataset, "data set", ROOMS)


def require_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that lack one which the data set has no default for.

    Raises:
        MolsliceError: unknown name, or a missing option.
    """
    for option, parameter in DATASETS.options(name).items():
        if parameter.default is parameter.empty and option not in options:
            raise MolsliceError(f"data set {name!r} needs the option {option!r}")


def build_dataset(name: str, options: dict[str, Any]) -> Dataset:
    """Read the data set `name`; what takes long is prepared the first time and found prepared later.

    Raises:
        MolsliceError: unknown name, unknown or missing option, or whatever is wrong with the files.
    """
    require_options(name, options)
    found = DATASETS.find(name)
    for option, hint in DATASETS.hints(name).items():
        is_path = any(typing.get_origin(form) is os.PathLike for form in typing.get_args(hint))
        path = options.get(option) if is_path and option != "cache_dir" else None
        if path is not None and not os.path.exists(path):
            what = "folder" if option == "root" else "file"
            raise MolsliceError(f"no such {what}: {path} (data.{option}). {found.advice()}".rstrip(" ."))
    return DATASETS.build(name, options=options)
