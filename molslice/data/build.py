"""The registry of data sets, and data sets from their options in a configuration."""

import glob
import os
import typing
from collections.abc import Mapping
from typing import Any

from molslice.data.base import Dataset
from molslice.errors import MolsliceError
from molslice.files.urls import is_url
from molslice.registry import Registry

DATASETS = Registry("molslice.data", Dataset, "data set")


def require_options(name: str, options: Mapping[str, Any]) -> None:
    """Check that every option without a default is given."""
    for option, parameter in DATASETS.options(name).items():
        if parameter.default is parameter.empty and option not in options:
            raise MolsliceError(f"data set {name!r} needs the option {option!r}")


def path_options(name: str) -> list[str]:
    """Return the options of a data set that name a file or folder to read."""
    return [
        option
        for option, hint in DATASETS.hints(name).items()
        if option != "cache_dir"
        and any(typing.get_origin(form) is os.PathLike for form in typing.get_args(hint))
    ]


def build_dataset(name: str, options: dict[str, Any]) -> Dataset:
    """Read a data set. The first call prepares it, later calls load it from the cache.

    Args:
        name: Its name in configurations.
        options: Its options, as in a configuration.

    Raises:
        MolsliceError: The name or an option is unknown, an option is missing, or a file cannot be read.
    """
    require_options(name, options)
    data_set = DATASETS.find(name)
    for option in path_options(name):
        path = options.get(option)
        if isinstance(path, str | os.PathLike) and not (_is_pattern(path) or os.path.exists(path)):
            what = "folder" if option == "root" else "file"
            raise MolsliceError(f"no such {what}: {path} (data.{option}). {data_set.advice()}".rstrip(" ."))
    return DATASETS.build(name, options=options)


def _is_pattern(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a pattern or a URL, which the data set itself expands and checks."""
    return glob.has_magic(os.fspath(path)) or is_url(os.fspath(path))
