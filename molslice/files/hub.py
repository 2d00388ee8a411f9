"""Download data sets of the Hugging Face Hub, only on request."""

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from molslice.errors import MolsliceError
from molslice.files.atomic import write_atomically

SOURCE = "SOURCE.json"  # record beside the downloaded files with `hub`, `subset` and others


def download_folder(options: Mapping[str, Any]) -> Path:
    """Create the folder `root` of the options of a data set if it is missing, and return it.

    Raises:
        MolsliceError: The option `root` is missing, or the folder cannot be created.
    """
    if "root" not in options:
        raise MolsliceError("a download needs data.root, the folder for the files")
    root = Path(options["root"])
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MolsliceError(f"cannot create the folder {root}: {error.strerror}") from error
    return root


def claim_folder(root: Path, source: Mapping[str, Any], *, fetched: bool = False) -> Mapping[str, Any]:
    """Read the record of the data downloaded into a folder; empty without a record.

    Args:
        root: The folder.
        source: The source to download from: `hub`, `subset` if the data set has subsets, and others.
        fetched: Whether to write `source` as the record if there is none.

    Raises:
        MolsliceError: `root` holds data of another source, or the record cannot be read.
    """
    path = root / SOURCE
    if fetched and not path.exists():
        write_atomically(path, json.dumps(dict(source)) + "\n")
    if not path.is_file():
        return {}
    try:
        noted = json.loads(path.read_text("utf-8"))
        names = [f"{record['hub']} {record.get('subset', '')}".strip() for record in (noted, source)]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise MolsliceError(f"cannot read {path}: {error}") from error
    if names[0] != names[1]:
        raise MolsliceError(f"the folder {root} holds {names[0]}, not {names[1]}; give another data.root")
    return noted


def load_hub(name: str, splits: Sequence[str], subset: str | None = None) -> dict[str, Any]:
    """Download splits of a data set of the Hub as tables of the library `datasets`.

    Args:
        name: The data set, such as `stanfordnlp/imdb`.
        splits: The splits.
        subset: The subset, for a data set with several.

    Raises:
        MolsliceError: As in `datasets_library`.
    """
    arguments = (name,) if subset is None else (name, subset)
    with datasets_library(name) as datasets:
        return {split: datasets.load_dataset(*arguments, split=split) for split in splits}


def datasets_library(name: str) -> AbstractContextManager[ModuleType]:
    """Import the library `datasets` to download the data set `name`; see `hub_library`."""
    needed = (
        f"downloading {name} needs the library datasets, which comes with the extras text and images: "
        "pip install 'molslice[text]'"
    )
    return hub_library("datasets", needed, f"download {name} from")


@contextmanager
def hub_library(library: str, needed: str, action: str) -> Iterator[ModuleType]:
    """Import a library of the Hub, and convert the errors of the block.

    Args:
        library: The library.
        needed: The message if it is not installed.
        action: What the block does, such as `download x from`.

    Raises:
        MolsliceError: The library is not installed, or the library or the network failed.
    """
    try:
        module = importlib.import_module(library)
    except ImportError as error:
        raise MolsliceError(needed) from error
    try:
        yield module
    except MolsliceError:
        raise
    except Exception as error:  # noqa: BLE001 - errors of the library and of its network have no common base
        reason = " ".join(str(error).split())[:500] or type(error).__name__
        raise MolsliceError(f"cannot {action} the Hugging Face Hub: {reason}") from error
