"""The base class of CIFAR-10 and CIFAR-100: the binary version, class folders, archives of them, Parquet."""

import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np

from molslice.data.images.base import Augment, Cutting, ImageDataset, Pictures, Tokens, to_gray
from molslice.data.images.decoding import Decoding, Item, class_folders, decode_all, is_image
from molslice.data.images.parquet_files import find_tables, read_table
from molslice.data.sequences import keep_arrays
from molslice.data.splits import Division
from molslice.files.cache import cache_folders, files_identity
from molslice.registry import near_names
from molslice.types import MolsliceError

PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
SIDE = 32
IMAGE_BYTES = 3 * SIDE * SIDE
LARGEST_MEMBER = 1 << 30  # bytes; a batch of CIFAR has 154 million
ARCHIVES = (".tar", ".tar.gz", ".tgz")


class Cifar(ImageDataset):
    """Color images of 32 x 32 pixels. A subclass sets the names of the files, as on the page of CIFAR.

    A record of the binary version has `label_bytes` class numbers, then 1,024 bytes each of red, green and
    blue, row by row.

    Args:
        root: The folder.
        tokens: `patches`, or `pixels` for one token per pixel (per color of a pixel without `gray`).
        patch: Side of a patch, in pixels.
        gray: Whether to convert colors to gray.
        augment: `none`, `crop`, `crop_flip`, `crop_flip_rand`, `resized_flip_rand` or
            `resized_flip_rand_mix`; see `ImageDataset`.
        valid_fraction: Fraction of the training images for the split `valid`.
        split_seed: Seed of the draw of `valid`.
        cache_dir: Folder for decoded images; by default the user's cache.

    Raises:
        MolsliceError: An option is invalid, or files are missing or damaged.

    Attributes:
        title: Name of the data set.
        hub: Name on the Hugging Face Hub.
        archive: Archive of the binary version.
        folder: Folder in that archive.
        parts: Files of the binary version, the test file last.
        label_bytes: Number of class numbers in a record.
        pickles: Files by which the Python version is recognized.
        label: Index of the class number to use.
        label_column: Name of the column of classes in Parquet files; None for a usual name.
        names_file: File with the names of the classes in the binary version; empty without one.
    """

    title: ClassVar[str]
    hub: ClassVar[str]
    archive: ClassVar[str]
    folder: ClassVar[str]
    parts: ClassVar[tuple[str, ...]]
    label_bytes: ClassVar[int]
    pickles: ClassVar[tuple[str, ...]]
    label: int = 0
    label_column: str | None = None
    names_file: str = ""

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
        tokens: Tokens = "patches",
        patch: int = 2,
        gray: bool = False,
        augment: Augment = "none",
        valid_fraction: float = 0.1,
        split_seed: int = 0,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        division = Division({"valid": valid_fraction}, split_seed)
        cutting = Cutting(tokens, patch, gray, augment)
        self.source = str(root)
        pictures, names = self._read(Path(root), gray, cache_dir)
        self.class_names = self._check_names(names)
        splits = division.divide(pictures.splits, self.source)
        self._take(replace(pictures, splits=splits), cutting)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Download the Parquet files of the Hugging Face Hub into `root`.

        Raises:
            MolsliceError: The library `datasets` is not installed, or the network or the disk failed.
        """
        from molslice.data.images.fetch import fetch_hub

        fetch_hub(cls.hub, Path(options["root"]))

    def _check_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the classes from the names in the files, which may be empty."""
        raise NotImplementedError

    def _read(
        self, root: Path, gray: bool, cache_dir: str | os.PathLike[str] | None
    ) -> tuple[Pictures, tuple[str, ...]]:
        """Read the images and the names of the classes; no names if the files have none."""
        if not root.is_dir():
            raise MolsliceError(f"no such folder: {root}. {self.instructions}")
        contents = self._binary_parts(root)
        if contents is not None:
            return self._read_binary(root, contents, gray), self._binary_names(root)
        images = self._find_images(root, cache_dir) if self.class_names else None
        if images is not None:
            return _decode(root, images, gray, cache_dir), ()
        files = find_tables(root)
        if not files:
            raise self._missing(root)
        table = read_table(files, label_column=self.label_column)
        pictures = table.pictures(root, Decoding(gray=gray), cache_dir, workers=1)
        _check_side(root, pictures.pixels)
        return pictures, table.class_names

    def _read_binary(self, root: Path, contents: Callable[[str], bytes], gray: bool) -> Pictures:
        images, labels, sizes = [], [], []
        record = self.label_bytes + IMAGE_BYTES
        for name in self.parts:
            data = contents(name)
            if not data or len(data) % record:
                raise MolsliceError(
                    f"{name} of {root} has {len(data)} bytes, not a multiple of the {record} bytes of an "
                    "image"
                )
            rows = np.frombuffer(data, np.uint8).reshape(-1, record)
            labels.append(rows[:, self.label].astype(np.int64))
            planes = rows[:, self.label_bytes :].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
            images.append(to_gray(planes) if gray else planes)
            sizes.append(len(rows))
        rows = np.arange(sum(sizes), dtype=np.int64)
        splits = {"train": rows[: -sizes[-1]], "test": rows[-sizes[-1] :]}
        return Pictures(np.ascontiguousarray(np.concatenate(images)), np.concatenate(labels), splits)

    def _binary_parts(self, root: Path) -> Callable[[str], bytes] | None:
        """Find the binary version in a folder, its subfolder or its archive."""
        for folder in (root, root / self.folder):
            there = [name for name in self.parts if (folder / name).is_file()]
            if there:
                self._check_complete(folder, there)
                return lambda name, folder=folder: (folder / name).read_bytes()
        archive = root / self.archive
        if not archive.is_file():
            return None
        contents = _archived(archive, self.parts)
        self._check_complete(archive, list(contents))
        return contents.__getitem__

    def _binary_names(self, root: Path) -> tuple[str, ...]:
        if not self.names_file:
            return ()
        for path in (root / self.names_file, root / self.folder / self.names_file):
            if path.is_file():
                return tuple(path.read_text(encoding="utf-8", errors="replace").split())
        archive = root / self.archive
        contents = _archived(archive, (self.names_file,)) if archive.is_file() else {}
        return tuple(contents.get(self.names_file, b"").decode(errors="replace").split())

    def _check_complete(self, place: Path, there: Sequence[str]) -> None:
        missing = [name for name in self.parts if name not in there]
        if missing:
            raise MolsliceError(f"{place} lacks {', '.join(missing)} of the binary version of {self.title}")

    def _find_images(self, root: Path, cache_dir: str | os.PathLike[str] | None) -> "_Images | None":
        """Find image files `train/<class>/*` and `test/<class>/*` in a folder or in its archives."""
        images = _in_folders(root, self.class_names)
        if images is not None:
            return images
        skipped = (self.archive, *self.pickles)
        archives = sorted(
            path for path in root.iterdir() if path.name.endswith(ARCHIVES) and path.name not in skipped
        )
        return _in_archives(root, archives, self.class_names, cache_dir) if archives else None

    def _missing(self, root: Path) -> MolsliceError:
        pickles = [name for name in self.pickles if (root / name).exists()]
        if pickles:
            return MolsliceError(
                f"{root} holds the Python version of {self.title} ({pickles[0]}), which is not supported: it "
                f"consists of pickles, which can run code. Get the binary version: {self.instructions}"
            )
        return MolsliceError(
            f"no {self.title} in {root}: neither {self.archive} nor {self.parts[0]} of the binary version, "
            f"nor images train/<class>/*.png, nor Parquet files. {self.instructions}, or run `molslice "
            "prepare --config FILE --download`"
        )


def _archived(archive: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Read the members with these names, in any folder of the archive."""
    return {path.name: read() for path, read in _members(archive) if path.name in names}


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


class _Images(NamedTuple):
    items: Callable[[], Iterator[Item]]
    labels: np.ndarray  # int64 [rows]
    is_test: np.ndarray  # bool [rows]
    identity: dict[str, Any]


def _decode(root: Path, images: _Images, gray: bool, cache_dir: str | os.PathLike[str] | None) -> Pictures:
    splits = {"train": np.flatnonzero(~images.is_test), "test": np.flatnonzero(images.is_test)}
    for split, rows in splits.items():
        if not len(rows):
            raise MolsliceError(f"{root} has no images {split}/<class>/*.png or *.jpg")
    pixels, failed = decode_all(
        images.items, len(images.labels), Decoding(gray=gray), images.identity, cache_dir, workers=1
    )
    _check_side(root, pixels)
    return Pictures(pixels, images.labels, splits, failed)


def _in_folders(root: Path, classes: Sequence[str]) -> _Images | None:
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
    return _Images(lambda: iter(paths), np.array(labels, np.int64), np.array(is_test), identity)


def _in_archives(
    root: Path, archives: Sequence[Path], classes: Sequence[str], cache_dir: str | os.PathLike[str] | None
) -> _Images | None:
    identity = {"archives": files_identity(archives, root)}

    def members() -> Iterator[tuple[Path, PurePosixPath, Callable[[], bytes]]]:
        for archive in archives:
            for path, read in _members(archive):
                if is_image(path) and len(path.parts) > 2 and path.parts[-3] in ("train", "test"):
                    yield archive, path, read

    def index() -> dict[str, np.ndarray]:
        columns = [
            (_class_of(path.parts[-2], classes, archive), path.parts[-3] == "test")
            for archive, path, _ in members()
        ]
        columns = np.array(columns, np.int64).reshape(-1, 2)
        return {"labels": columns[:, 0], "is_test": columns[:, 1].astype(bool)}

    arrays = keep_arrays(cache_folders(cache_dir), {"classes": list(classes), **identity}, index)
    labels, is_test = np.asarray(arrays["labels"]), np.asarray(arrays["is_test"])
    if not len(labels):
        return None
    return _Images(lambda: (read() for _, _, read in members()), labels, is_test, identity)


def _class_of(name: str, classes: Sequence[str], place: Path) -> int:
    if name not in classes:
        raise MolsliceError(f"unknown class {name!r} in {place}; {near_names(name, classes)}")
    return classes.index(name)


def _check_side(root: Path, pixels: np.ndarray) -> None:
    height, width = pixels.shape[1:3]
    if (height, width) != (SIDE, SIDE):
        raise MolsliceError(f"{root} holds images of {height} x {width} pixels, expected {SIDE} x {SIDE}")
