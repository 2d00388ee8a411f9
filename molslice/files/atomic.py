"""Write a file or a folder completely or not at all.

A file or folder that cannot be written is an `UnwritableError`; an earlier one with the final name is then
unchanged. A symbolic link at the final path is followed and kept.

An object of a URL is committed when it is complete, and discarded otherwise. For a path, the following holds.
The content is written under a partial name beside the final one, synced to the disk, and renamed. A failure
or an interrupt removes the partial file. Partial files of killed processes are removed by the next writer in
the folder. The partial name contains the ID of the writing process, so that no running process loses its
file.
"""

import contextlib
import errno
import hashlib
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, cast

from molslice.errors import MolsliceError
from molslice.files.lock import Owner, UnwritableError, lock_file
from molslice.files.urls import Url

WINDOWS = os.name == "nt"
SUFFIX = ".partial"
FOREIGN_SECONDS = 24 * 3600  # after this time without a change, partial files of other machines are removed
TAKEN = "it exists; choose another folder, or remove it"
LONGEST_NAME = 180  # bytes of a file name without the owner; file systems allow 255 with it

_numbers = itertools.count()


@contextmanager
def atomic_path(path: str | os.PathLike[str] | Url) -> Iterator[Path]:
    """Yield a partial path for a file; leaving the block without an error renames the file.

    Use it for libraries that take a path. `atomic_file` is simpler for those that take a stream, and needs no
    temporary file for a URL.
    """
    if isinstance(path, Url):
        with tempfile.TemporaryDirectory() as folder:
            partial = Path(folder, path.name)
            with atomic_file(path) as stream:  # opened first, so that a wrong URL fails before the work
                yield partial
                with partial.open("rb") as content:
                    shutil.copyfileobj(content, stream)
        return
    final = _final(path)
    remove_stale(final.parent)
    partial = _partial(final)
    try:
        yield partial
        _sync(partial)
        os.replace(partial, final)
    except OSError as error:
        raise _named(error, partial, path) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    _sync_folder(final.parent)


@contextmanager
def atomic_file(path: str | os.PathLike[str] | Url) -> Iterator[BinaryIO]:
    """Yield a binary stream to a partial file; leaving the block without an error renames the file.

    Raises:
        MolsliceError: The protocol of a URL is unknown, or needs a package that is missing.
    """
    if isinstance(path, Url):
        try:
            with path.create() as stream:
                yield cast("BinaryIO", stream)
        except OSError as error:
            if error.filename is not None:  # about another file, or named already
                raise
            raise UnwritableError(error.errno, error.strerror or str(error), str(path)) from error
        return
    with atomic_path(path) as partial, partial.open("wb") as stream:
        yield stream


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a file as `atomic_file` does; text is encoded as UTF-8."""
    with atomic_file(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_folder(
    path: str | os.PathLike[str], *, replace: bool = False, alone: bool = False
) -> Iterator[Path]:
    """Yield an empty partial folder; leaving the block without an error renames the folder.

    Args:
        path: The final path. Its missing parents are created, and removed after a failure. A mount point or
            the working folder stays, and the content is moved into it.
        replace: Whether to replace an earlier folder with the final name. An empty one is always replaced.
        alone: Whether to refuse to start while another process is writing the same folder.

    Raises:
        UnwritableError: As for a file, or the final name is taken (`EEXIST`).
        MolsliceError: Another process is writing the folder. The message names that process.
    """
    final = _final(path)
    partial = _partial(final)
    with no_empty_folders(final.parent):
        try:
            if not replace and is_taken(final):  # before the work of the block
                raise UnwritableError(errno.EEXIST, TAKEN, os.fspath(path))
            with contextlib.suppress(FileExistsError):  # a parent is a file: `mkdir` below reports it
                final.parent.mkdir(parents=True, exist_ok=True)
            remove_stale(final.parent)
            with reserved(final if alone else None):
                partial.mkdir()
                yield partial
                _sync_content(partial)
                if replace and final.exists():
                    # renamed before its removal, so that no reader finds it incomplete
                    os.rename(final, aside := _partial(final))
                    shutil.rmtree(aside, ignore_errors=True)
                _rename_folder(partial, final)
        except OSError as error:
            raise _named(error, partial, path) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    _sync_folder(final.parent)


def is_taken(path: Path) -> bool:
    """Return whether something other than an empty folder has a path."""
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


@contextmanager
def no_empty_folders(path: str | os.PathLike[str]) -> Iterator[None]:
    """Remove a folder and its parents after a failure, if the block has made them and they are empty."""
    folder = Path(os.path.realpath(path))
    missing = [parent for parent in (folder, *folder.parents) if not os.path.exists(parent)]
    try:
        yield
    except BaseException:
        for new_folder in missing:
            with contextlib.suppress(OSError):  # it is not empty
                new_folder.rmdir()
        raise


@contextmanager
def made_folder(path: Path) -> Iterator[None]:
    """Make a folder and its missing parents; those that are empty after a failure are removed again.

    Raises:
        MolsliceError: The folder cannot be made.
    """
    with no_empty_folders(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MolsliceError(f"cannot make the folder {path}: {error.strerror}") from error
        yield


def reserved(path: str | os.PathLike[str] | Url | None) -> AbstractContextManager[None]:
    """Refuse to start while another process is writing the same file or folder.

    Use it around work whose result is written at its end.

    Args:
        path: The final path. A URL is not reserved, and None reserves nothing.

    Raises:
        MolsliceError: Another process is writing it. The message names that process.
    """
    if path is None or isinstance(path, Url):
        return nullcontext()
    return lock_file(_hidden(_final(path), "lock"), os.fspath(path))


def move_folder(partial: Path, final: Path) -> None:
    """Sync a complete folder to the disk, and rename it, unless its final name is taken (`EEXIST`)."""
    try:
        _sync_content(partial)
        _rename_folder(partial, final)
    except OSError as error:
        raise _named(error, partial, final) from error
    _sync_folder(final.parent)


def remove_stale(folder: Path) -> None:
    """Remove the partial files and folders of ended processes from a folder."""
    with contextlib.suppress(OSError):  # the folder is missing or cannot be listed
        for entry in os.scandir(folder):
            if entry.name.startswith(".") and entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):  # another process may be removing it
                    _remove_if_stale(entry)


def _remove_if_stale(entry: os.DirEntry[str]) -> None:
    owner = Owner.parse(entry.name.removesuffix(SUFFIX).rpartition(".")[2].rpartition("-")[0])
    if owner is None:
        return
    old = time.time() - entry.stat(follow_symlinks=False).st_mtime > FOREIGN_SECONDS
    if owner.has_ended or (old and not owner.is_local):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)


def _final(path: str | os.PathLike[str]) -> Path:
    final = Path(os.path.realpath(path))
    if final.is_symlink():  # what is left of a loop
        raise UnwritableError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    return final


def _partial(final: Path) -> Path:
    return _hidden(final, f"{Owner.current()}-{next(_numbers)}{SUFFIX}")


def _hidden(final: Path, ending: str) -> Path:
    name = final.name
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return final.with_name(f".{name}.{ending}")


def _named(error: OSError, partial: Path, path: str | os.PathLike[str]) -> OSError:
    """Replace the partial path in an error by the final path. An error about another file is unchanged."""
    if isinstance(error, UnwritableError):
        return error
    if isinstance(error.filename, str):  # errors of a write have no file name
        named = Path(error.filename)
        if partial not in (named, *named.parents) and named not in partial.parents:
            return error
    return UnwritableError(error.errno, error.strerror or str(error), os.fspath(path))


def _rename_folder(partial: Path, final: Path) -> None:
    try:
        if _must_stay(final):
            _fill(partial, final)
            return
        if WINDOWS:  # there a rename does not replace an empty folder
            with contextlib.suppress(OSError):  # it is not empty, or missing
                final.rmdir()
        os.rename(partial, final)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(partial)) from error
        raise


def _must_stay(final: Path) -> bool:
    """Return whether a folder cannot be replaced: a mount point, or the working folder of this process."""
    if not final.is_dir():
        return False
    with contextlib.suppress(OSError):  # the working folder is removed
        if final.samefile(os.getcwd()):
            return True
    return os.path.ismount(final)


def _fill(partial: Path, final: Path) -> None:
    """Move the content of a folder into an empty one, all of it or nothing unless the process is killed."""
    if any(final.iterdir()):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(final))
    names = sorted(os.listdir(partial))
    try:
        for name in names:
            shutil.move(partial / name, final / name)  # copies it to another file system
        _sync_content(final)
    except BaseException:
        for name in names:
            if (final / name).is_dir():
                shutil.rmtree(final / name, ignore_errors=True)
            else:
                (final / name).unlink(missing_ok=True)
        raise


def _sync_content(partial: Path) -> None:
    for folder, _, files in os.walk(partial, topdown=False):
        for name in files:
            _sync(Path(folder, name))
        _sync_folder(Path(folder))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR if WINDOWS else os.O_RDONLY)  # Windows syncs only what it may write
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Sync a rename to the disk if the file system supports it. The file itself is already synced."""
    with contextlib.suppress(OSError):
        _sync(folder)
