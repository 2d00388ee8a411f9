"""Folders of results, such as tables and figures, which a later call of the same command replaces."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from molslice.data.molecules.store_files import HEADER
from molslice.errors import MolsliceError
from molslice.files.atomic import made_folder
from molslice.files.urls import File, Url
from molslice.folders.ensemble import ENSEMBLE
from molslice.folders.fitted import FIT
from molslice.folders.run import CONFIG, MODEL

OTHERS = {  # what a folder holds that is not for results
    MODEL: "a model",
    CONFIG: "a run",
    FIT: "a model",
    ENSEMBLE: "a model",
    HEADER: "a store",
}


@contextmanager
def results_folder(folder: Path) -> Iterator[None]:
    """Make a folder for results, whose other files stay; an empty one is removed after a failure.

    Raises:
        MolsliceError: It is a file or the folder of a model, or cannot be made.
    """
    check_results_folder(folder)
    with made_folder(folder):
        yield


def check_results_folder(folder: File) -> None:
    """Refuse a file, and the folder of a model, a run or a store.

    Raises:
        MolsliceError: It is one.
    """
    if isinstance(folder, Path) and folder.exists() and not folder.is_dir():
        raise MolsliceError(f"{folder} is a file; choose another folder")
    for name, kind in OTHERS.items():
        if file_inside(folder, name).exists():
            raise MolsliceError(f"{folder} is the folder of {kind}; choose another folder for the results")


def file_inside(folder: File, name: str) -> File:
    """Return the file of a name in a folder."""
    return Url(f"{str(folder).rstrip('/')}/{name}") if isinstance(folder, Url) else folder / name
