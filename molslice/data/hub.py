"""Data sets of the Hugging Face Hub, fetched only when asked, and files that appear when they are whole."""

import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from molslice.types import MolsliceError

__all__ = ["claim_folder", "download_folder", "hub_errors", "import_datasets", "keep_file", "load_hub"]

SOURCE = "SOURCE.json"  # beside what was fetched: `hub`, `subset` and what else the fetching notes


def download_folder(options: Mapping[str, Any]) -> Path:
    """The folder `root` of a data set's options, made where it is missing.

    Raises:
        MolsliceError: no such option, or a folder that cannot be made.
    """
    if "root" not in options:
        raise MolsliceError("a download needs data.root, the folder that it goes to")
    root = Path(options["root"])
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MolsliceError(f"cannot make the folder {root}: {error.strerror}") from error
    return root


def claim_folder(root: Path, source: Mapping[str, Any], *, fetched: bool = False) -> Mapping[str, Any]:
    """What is noted in `root` of the data that were fetched into it; nothing of older or hand-made files.

    With `fetched` it is noted now, unless it is already.

    Raises:
        MolsliceError: other data than those of `source` were fetched into it, or the note does not read.
    """
    path = root / SOURCE
    if fetched and not path.exists():
        keep_file(path, lambda part: part.write_text(json.dumps(dict(source)) + "\n", "utf-8"))
    if not path.is_file():
        return {}
    try:
        noted = json.loads(path.read_text("utf-8"))
        names = [f"{each['hub']} {each.get('subset', '')}".strip() for each in (noted, source)]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise MolsliceError(f"{path} does not say what was fetched: {error}") from error
    if names[0] != names[1]:
        raise MolsliceError(f"the folder {root} holds {names[0]}, not {names[1]}; give another data.root")
    return noted


def load_hub(name: str, splits: Sequence[str], subset: str | None = None) -> dict[str, Any]:
    """Splits of a data set of the Hub, as tables of the library `datasets`; of several sets in one, `subset`.

    Raises:
        MolsliceError: the library is missing, or whatever it or the network says.
    """
    datasets = import_datasets(name)
    which = (name,) if subset is None else (name, subset)
    with hub_errors(name):
        return {split: datasets.load_dataset(*which, split=split) for split in splits}


def import_datasets(name: str) -> ModuleType:
    """The library `datasets`, which is to fetch `name`.

    Raises:
        MolsliceError: it is missing.
    """
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise MolsliceError(
            f"fetching {name} needs the library datasets, which comes with the extras text and images: "
            "pip install 'molslice[text]'"
        ) from error


@contextmanager
def hub_errors(name: str) -> Iterator[None]:
    """Whatever goes wrong inside, with library or network, comes out as a MolsliceError that names `name`."""
    try:
        yield
    except MolsliceError:
        raise
    except Exception as error:  # noqa: BLE001 - errors of the library and of its network have no common base
        reason = " ".join(str(error).split()) or type(error).__name__
        raise MolsliceError(f"{name} could not be fetched from the Hugging Face Hub: {reason}") from error


def keep_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a file under another name, and give it its own when it is whole.

    Raises:
        MolsliceError: it cannot be written.
    """
    part = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        write(part)
        part.replace(path)
    except OSError as error:
        raise MolsliceError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
