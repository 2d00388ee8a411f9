"""Files in object stores and on other machines, named by URLs of fsspec such as `s3://bucket/molecules.csv`."""

import contextlib
import errno
import glob
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from molslice.errors import MolsliceError
from molslice.registry import near_names

EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}  # the extra of molslice by protocol
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*::)*[A-Za-z][A-Za-z0-9+.-]*://")
_BUFFER = 2**16  # bytes
LOCAL = "file://"


@dataclass(frozen=True, slots=True)
class Url:
    """The URL of a file, in place of a path.

    Every method raises a `MolsliceError` if the file or the store cannot be used, the protocol is unknown, or
    a package for it is missing.

    Attributes:
        text: The URL. Several joined by `::` as in fsspec are possible, such as `simplecache::s3://bucket/key`.
    """

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def name(self) -> str:
        """The last part of the URL, which has the ending of the format."""
        link = next(link for link in self.text.split("::") if "://" in link)
        if link.startswith(("http:", "https:")):
            link = re.split("[?#]", link)[0]
        return link.rpartition("/")[2]

    def open(self) -> io.BufferedReader:
        """Open the file to read bytes. An error of reading is an `OSError`, whatever the protocol."""
        with self._located("read") as (system, path):
            return io.BufferedReader(_Reader(system.open(path, "rb")), _BUFFER)

    def exists(self) -> bool:
        """Return whether there is a file of this URL."""
        with self._located("read") as (system, path):
            return bool(system.isfile(path))

    def size(self) -> int:
        """Return the number of bytes; 0 if the store does not report it."""
        with self._located("read") as (system, path):
            return int(system.size(path) or 0)

    def unlink(self) -> None:
        """Remove the file of this URL."""
        with self._located("remove") as (system, path):
            system.rm_file(path)

    def matches(self) -> "list[Url]":
        """Return the files that this pattern, such as `s3://bucket/*.csv`, matches, in alphabetical order."""
        with self._located("list") as (system, path):
            entries = system.glob(path, detail=True)
        before, _, after = self.text.partition(path)
        return [Url(before + name + after) for name in sorted(entries) if entries[name]["type"] == "file"]

    @contextmanager
    def create(self) -> Iterator[io.RawIOBase]:
        """Yield a binary stream; the file exists when the block ends without an error, and else not.

        Raises:
            OSError: The file cannot be written. The message names the reason, but not the file.
        """
        # an instance of its own, because a transaction includes all files that an instance writes
        with self._located("write", skip_instance_cache=True) as (system, path), _as_os_error():
            _check_bucket(system, path)
            transaction = system.start_transaction()
            file = system.open(path, "wb")
        try:
            yield _Writer(file)
            with _as_os_error():
                file.close()
                transaction.complete()
        except BaseException:
            with contextlib.suppress(Exception):
                transaction.complete(commit=False)
            _forget(file)
            raise

    @contextmanager
    def _located(self, action: str, **options: Any) -> Iterator[tuple[Any, str]]:  # noqa: ANN401
        """Yield fsspec's file system and the path in it; errors of the block name the URL."""
        import fsspec

        try:
            yield fsspec.url_to_fs(self.text, **options)
        except (MolsliceError, MemoryError):
            raise
        except OSError as error:
            if action == "write":
                raise
            if not isinstance(error, FileNotFoundError):
                raise MolsliceError(f"cannot {action} {self}: {_reason(error)}") from error
            reason = _reason(error)
            detail = "" if reason.strip("/") in self.text else f": {reason}"
            raise MolsliceError(f"no such file: {self}{detail}") from error
        except ImportError as error:
            raise MolsliceError(f"cannot {action} {self}: {_missing(self.text, error)}") from error
        except Exception as error:  # the errors of file systems have no common base
            raise MolsliceError(f"cannot {action} {self}: {_unknown(self.text) or _reason(error)}") from error


File = Path | Url


def is_url(text: str) -> bool:
    """Return whether a text is a URL and not a path."""
    return _URL.match(text) is not None


def as_file(text: "str | os.PathLike[str] | Url") -> File:
    """Convert a text to a path or a URL. A `file://` URL is a path."""
    if isinstance(text, Url):
        return text
    if not isinstance(text, str) or not is_url(text):
        return Path(text)
    return Path(text[len(LOCAL) :]) if text.lower().startswith(LOCAL) else Url(text)


def file_size(file: File) -> int:
    """Return the number of bytes of a file; an `OSError` if a local file cannot be read."""
    return file.size() if isinstance(file, Url) else file.stat().st_size


def expand_pattern(file: File) -> list[File]:
    """Return the files that a pattern matches, in alphabetical order, or the file itself if it is no pattern.

    Raises:
        MolsliceError: The pattern matches no file, or a store cannot be listed.
    """
    if not glob.has_magic(str(file)) or file.exists():
        return [file]
    files: list[File]
    if isinstance(file, Url):
        files = [*file.matches()]
    else:
        files = [Path(path) for path in sorted(glob.glob(str(file), recursive=True))]
    if not files:
        raise MolsliceError(f"no file matches {file}")
    return files


class _Reader(io.RawIOBase):
    """A file of fsspec with a position of its own and errors that are `OSError`s."""

    def __init__(self, file: Any) -> None:  # noqa: ANN401
        self._file, self._position = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with _as_os_error():
            if whence == io.SEEK_CUR:
                offset, whence = self._position + offset, io.SEEK_SET
            self._position = self._file.seek(offset, whence)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        with _as_os_error():
            if self._file.tell() != self._position:  # files in memory share one position
                self._file.seek(self._position)
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(Exception):
                self._file.close()
        super().close()


class _Writer(io.RawIOBase):
    """A file of fsspec that `Url.create` closes, with errors that are `OSError`s."""

    def __init__(self, file: Any) -> None:  # noqa: ANN401
        self._file = file

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

    def write(self, data: Any) -> int:  # noqa: ANN401
        with _as_os_error():
            self._file.write(bytes(data))
        return len(data)


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Convert an error of a file system to an `OSError` with the reason as its text."""
    try:
        yield
    except (ImportError, MemoryError, MolsliceError):
        raise
    except Exception as error:
        raise OSError(getattr(error, "errno", None) or errno.EIO, _reason(error)) from error


def _reason(error: Exception) -> str:
    """Return the text of an error in one line."""
    if isinstance(error, NotImplementedError):
        return "files of this protocol can only be read"
    strerror = getattr(error, "strerror", None)
    return " ".join(str(strerror or error).split()) or type(error).__name__


def _forget(file: Any) -> None:  # noqa: ANN401
    """Mark a discarded file as closed; otherwise fsspec would write its buffer when the object is deleted."""
    from fsspec.spec import AbstractBufferedFile

    if isinstance(file, AbstractBufferedFile):
        file.closed = True


def _check_bucket(system: Any, path: str) -> None:  # noqa: ANN401
    """Refuse a bucket that does not exist before any work; a store notices it at the end only."""
    bucket, slash, _ = path.partition("/")
    if not bucket or not slash or "://" in path:
        return
    try:
        system.info(bucket)
    except PermissionError:  # an account may write, but not list
        return
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, f"no bucket or folder {bucket!r}") from error


def _missing(text: str, error: ImportError) -> str:
    protocol = text.rpartition("::")[2].partition("://")[0].lower()
    if protocol in EXTRAS:
        return f"{protocol}:// needs the extra {EXTRAS[protocol]}: pip install 'molslice[{EXTRAS[protocol]}]'"
    return _reason(error)


def _unknown(text: str) -> str | None:
    """Describe the first unknown protocol of a URL; None if all are known."""
    from fsspec.registry import available_protocols

    known = set(available_protocols())
    for link in text.split("::"):
        protocol = link.partition("://")[0]
        if protocol not in known:
            return f"unknown protocol {protocol!r}; {near_names(protocol, known)}"
    return None
