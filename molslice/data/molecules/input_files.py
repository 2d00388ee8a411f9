"""The files and folders that a user names as input: patterns, repetitions, and names for messages."""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from molslice.errors import MolsliceError
from molslice.files.lines import STDIN, is_pipe
from molslice.files.urls import File, as_file, expand_pattern, file_size
from molslice.number_text import counted

logger = logging.getLogger(__name__)


def listed_paths(paths: str | os.PathLike[str] | Sequence[str], kind: str) -> list[str]:
    """Return one path or several ones of a `kind` such as `file` as a list; refuse anything else."""
    listed = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not listed or not all(isinstance(path, str | os.PathLike) for path in listed):
        raise MolsliceError(f"path must be a {kind} or a list of {kind}s, got {paths!r}")
    return [os.fspath(path) for path in listed]


def find_files(paths: Sequence[str | File]) -> list[File]:
    """Expand patterns such as `parts/*.csv` or `s3://bucket/*.csv` to files in alphabetical order.

    Other names are kept.

    Raises:
        MolsliceError: A pattern matches no file, a file is named twice, or a store cannot be listed.
    """
    files = [file for path in paths for file in expand_pattern(as_file(path))]
    check_different(files)
    return files


def check_different(paths: Sequence[File]) -> None:
    """Refuse a file or folder that is named twice; the message has both names."""
    places: dict[File, File] = {}
    for path in paths:
        place = place_of(path)
        if place in places:
            other = places[place]
            raise MolsliceError(f"{path} is given twice" + (f", also as {other}" if other != path else ""))
        places[place] = path


def warn_of_repeated(paths: Mapping[str, Sequence[File]]) -> None:
    """Warn of files or folders that are in several splits, because a model has seen their rows."""
    splits: dict[File, str] = {}
    for split, files in paths.items():
        for path in files:
            other = splits.setdefault(place_of(path), split)
            if other != split:
                logger.warning("%s is in the splits %s and %s", path, other, split)


def place_of(path: File) -> File:
    """Return a file without symbolic links; a path that cannot be followed, as it is."""
    if not isinstance(path, Path) or path == STDIN:
        return path
    with suppress(OSError, ValueError):  # opening it names the reason
        return Path(os.path.realpath(path))
    return path


def check_rereadable(paths: Sequence[File]) -> None:
    """Refuse standard input and pipes, which can be read only once."""
    for path in paths:
        if is_pipe(path):
            raise MolsliceError(f"cannot read {name_of([path])} more than once; write it to a file")


def bytes_on_disk(path: File) -> int:
    """Return the number of bytes of a file; 0 for standard input."""
    return 0 if path == STDIN else file_size(path)


def name_of(paths: Sequence[File]) -> str:
    """Return the name of one or several files for messages."""
    name, others = "standard input" if paths[0] == STDIN else str(paths[0]), len(paths) - 1
    return f"{name} and {counted(others, 'other file')}" if others else name
