"""The file formats of CIFAR: the binary version, class folders, archives of them, Parquet."""

import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np

from molslice.data.images.base import Pictures, to_gray
from molslice.data.images.decoding import Decoding, Item, class_folders, decode_all, is_image
from molslice.data.images.tables import find_tables, read_table
from molslice.data.sequences import keep_arrays
from molslice.files.cache import cache_folders, files_identity
from molslice.registry import near_names
from molslice.types import MolsliceError

PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
SIDE = 32
IMAGE_BYTES = 3 * SIDE * SIDE
LARGEST_MEMBER = 1 << 30  # bytes; a batch of CIFAR has 154 million
ARCHIVES = (".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True, slots=True)
class Layout:
    """File names of a CIFAR data set, as on its page.

    A record of the binary version has `label_bytes` class numbers, then 1,024 bytes each of red, green and
    blue, row by row.

    Attributes:
        name: Name of the data set.
        archive: Archive of the binary version.
        folder: Folder in that archive.
        train: Training files of the binary version.
        test: Test file of the binary version.
        label_bytes: Number of class numbers in a record.
        label: Index of the class number to use.
        pickles: Files by which the Python version is recognized.
    """

    name: str
    archive: str
    folder: str
    train: tuple[str, ...]
    test: str
    label_bytes: int
    label: int
    pickles: tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """Files of the binary version, training files first."""
        return (*self.train, self.test)


def read_binary(root: Path, layout: Layout, gray: bool) -> Pictures | None:
    """Read the binary version from a folder, its subfolder or its archive.

    Args:
        root: The folder.
        layout: The file names.
        gray: Whether to convert colors to gray.

    Returns:
        The images, or None without a file of the binary version.

    Raises:
        MolsliceError: Files are missing or damaged.
    """
    contents = _binary_parts(root, layout)
    if contents is None:
        return None
    images, labels, sizes = [], [], []
    for name in layout.parts:
        data = contents(name)
        record = layout.label_bytes + IMAGE_BYTES
        if not data or len(data) % record:
            raise MolsliceError(
                f"{name} of {root} has {len(data)} bytes, not a multiple of the {record} bytes of an image"
            )
        rows = np.frombuffer(data, np.uint8).reshape(-1, record)
        labels.append(rows[:, layout.label].astype(np.int64))
        planes = rows[:, layout.label_bytes :].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        images.append(to_gray(planes) if gray else planes)
        sizes.append(len(rows))
    rows = np.arange(sum(sizes), dtype=np.int64)
    splits = {"train": rows[: -sizes[-1]], "test": rows[-sizes[-1] :]}
    return Pictures(np.ascontiguousarray(np.concatenate(images)), np.concatenate(labels), splits)


def read_names(root: Path, layout: Layout, file: str) -> tuple[str, ...]:
    """Read a list of class names beside the binary version; empty if there is none.

    Args:
        root: The folder of the data.
        layout: The file names.
        file: File name of the list.
    """
    for path in (root / file, root / layout.folder / file):
        if path.is_file():
            return tuple(path.read_text(encoding="utf-8", errors="replace").split())
    if (root / layout.archive).is_file():
        return tuple(
            _archived(root / layout.archive, (file,)).get(file, b"").decode(errors="replace").split()
        )
    return ()


def _binary_parts(root: Path, layout: Layout) -> Callable[[str], bytes] | None:
    for folder in (root, root / layout.folder):
        there = [name for name in layout.parts if (folder / name).is_file()]
        if there:
            _check_complete(folder, there, layout)
            return lambda name, folder=folder: (folder / name).read_bytes()
    archive = root / layout.archive
    if archive.is_file():
        contents = _archived(archive, layout.parts)
        _check_complete(archive, contents, layout)
        return contents.__getitem__
    return None


def _check_complete(place: Path, there: Sequence[str] | Mapping[str, bytes], layout: Layout) -> None:
    missing = [name for name in layout.parts if name not in there]
    if missing:
        raise MolsliceError(f"{place} lacks {', '.join(missing)} of the binary version of {layout.name}")


def _archived(archive: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Read the members with these names, in any folder of the archive."""
    found = {}
    for path, read in _members(archive):
        if path.name in names:
            found[path.name] = read()
    return found


def _members(archive: Path) -> Iterator[tuple[PurePosixPath, Callable[[], bytes]]]:
    """Yield the path of each file of an archive and a function that reads it; nothing is written to disk."""
    with _naming(archive), tarfile.open(archive) as file:
        for member in file:
            source = file.extractfile(member) if member.isfile() else None
            if source is None:
                continue
            if member.size > LARGEST_MEMBER:
                raise MolsliceError(f"{archive}: {member.name!r:.80} is larger than {LARGEST_MEMBER} bytes")

            def read(source: IO[bytes] = source) -> bytes:
                with _naming(archive):  # called outside of the loop
                    return source.read()

            yield PurePosixPath(member.name), read
        while file.fileobj is not None and file.fileobj.read(1 << 20):
            pass  # gzip compares its checksum at the end of the stream


@contextmanager
def _naming(archive: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise MolsliceError(f"cannot read {archive} as an archive: {reason}") from error


class _Found(NamedTuple):
    items: Callable[[], Iterator[Item]]
    labels: np.ndarray  # int64 [rows]
    is_test: np.ndarray  # bool [rows]
    identity: dict[str, Any]


def read_images(
    root: Path, layout: Layout, classes: Sequence[str], gray: bool, cache_dir: str | os.PathLike[str] | None
) -> Pictures | None:
    """Read image files `train/<class>/*` and `test/<class>/*` in a folder or in its archives.

    Args:
        root: The folder.
        layout: The file names of the binary and the Python version, which are not read.
        classes: Names of the classes.
        gray: Whether to convert colors to gray.
        cache_dir: Folder for decoded images; by default the user's cache.

    Returns:
        The images, or None without image files.

    Raises:
        MolsliceError: A split is missing, a class is unknown, or images have another size.
    """
    found = _in_folders(root, classes)
    if found is None:
        found = _in_archives(root, layout, classes, cache_dir)
    if found is None:
        return None
    splits = {"train": np.flatnonzero(~found.is_test), "test": np.flatnonzero(found.is_test)}
    for split, rows in splits.items():
        if not len(rows):
            raise MolsliceError(f"{root} has no images {split}/<class>/*.png or *.jpg")
    how = Decoding(gray=gray)
    decoded = decode_all(found.items, len(found.labels), how, found.identity, cache_dir, workers=1)
    return Pictures(checked_side(root, decoded.pixels), found.labels, splits, decoded.failed)


def _in_folders(root: Path, classes: Sequence[str]) -> _Found | None:
    if not (root / "train").is_dir():
        return None
    paths: list[Path] = []
    labels: list[int] = []
    is_test: list[bool] = []
    for split in ("train", "test"):
        if not (root / split).is_dir():
            continue
        for name, images in class_folders(root / split).items():
            paths += images
            labels += [_class_of(name, classes, root / split)] * len(images)
            is_test += [split == "test"] * len(images)
    if not paths:
        return None
    identity = {"files": files_identity(paths, root)}
    return _Found(lambda: iter(paths), np.array(labels, np.int64), np.array(is_test), identity)


def _in_archives(
    root: Path, layout: Layout, classes: Sequence[str], cache_dir: str | os.PathLike[str] | None
) -> _Found | None:
    archives = sorted(
        path
        for path in root.iterdir()
        if path.name.endswith(ARCHIVES) and path.name not in (layout.archive, *layout.pickles)
    )
    if not archives:
        return None
    identity = {"archives": files_identity(archives, root)}

    def members() -> Iterator[tuple[Path, PurePosixPath, Callable[[], bytes]]]:
        for archive in archives:
            for path, read in _members(archive):
                if is_image(path) and len(path.parts) > 2 and path.parts[-3] in ("train", "test"):
                    yield archive, path, read

    def index() -> dict[str, np.ndarray]:
        found = [
            (_class_of(path.parts[-2], classes, archive), path.parts[-3] == "test")
            for archive, path, _ in members()
        ]
        columns = np.array(found, np.int64).reshape(-1, 2)
        return {"labels": columns[:, 0], "is_test": columns[:, 1].astype(bool)}

    arrays = keep_arrays(cache_folders(cache_dir), {"classes": list(classes), **identity}, index)
    labels, is_test = np.asarray(arrays["labels"]), np.asarray(arrays["is_test"])
    if not len(labels):
        return None
    return _Found(lambda: (read() for _, _, read in members()), labels, is_test, identity)


def _class_of(name: str, classes: Sequence[str], place: Path) -> int:
    if name not in classes:
        raise MolsliceError(f"unknown class {name!r} in {place}; {near_names(name, classes)}")
    return classes.index(name)


def read_parquet(
    root: Path, label_column: str | None, gray: bool, cache_dir: str | os.PathLike[str] | None
) -> tuple[Pictures, tuple[str, ...]] | None:
    """Read images from the Parquet files in a folder.

    Args:
        root: The folder.
        label_column: Name of the column of classes; by default `label` or `labels`.
        gray: Whether to convert colors to gray.
        cache_dir: Folder for decoded images; by default the user's cache.

    Returns:
        The images and the names of the classes, or None without Parquet files.

    Raises:
        MolsliceError: A file is damaged, or images have another size.
    """
    files = find_tables(root)
    if not files:
        return None
    table = read_table(files, label_column=label_column)
    pictures = table.pictures(root, Decoding(gray=gray), cache_dir, workers=1)
    checked_side(root, pictures.pixels)
    return pictures, table.class_names


def checked_side(root: Path, pixels: np.ndarray) -> np.ndarray:
    """Check that images have 32 x 32 pixels and return them.

    Raises:
        MolsliceError: The images have another size.
    """
    if pixels.shape[1:3] != (SIDE, SIDE):
        height, width = pixels.shape[1:3]
        raise MolsliceError(f"{root} holds images of {height} x {width} pixels, expected {SIDE} x {SIDE}")
    return pixels


def missing(root: Path, layout: Layout) -> MolsliceError:
    """Create the error for a folder without files in a supported format."""
    if not root.is_dir():
        return MolsliceError(f"no such folder: {root}. {instructions(layout)}")
    pickles = [name for name in layout.pickles if (root / name).exists()]
    if pickles:
        return MolsliceError(
            f"{root} holds the Python version of {layout.name} ({pickles[0]}), which is not supported: it "
            f"consists of pickles, which can run code. Get the binary version: {instructions(layout)}"
        )
    return MolsliceError(
        f"no {layout.name} in {root}: neither {layout.archive} nor {layout.parts[0]} of the binary version, "
        f"nor images train/<class>/*.png, nor Parquet files. {instructions(layout)}, or run `molslice "
        "prepare --config FILE --download`"
    )


def instructions(layout: Layout) -> str:
    """Describe how to get the archive of the binary version by hand."""
    return f"By hand: download {layout.archive} from {PAGE}"
