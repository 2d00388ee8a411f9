"""The base class of CIFAR-10 and CIFAR-100: the binary version, class folders, archives of them, Parquet."""

import os
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar

import numpy as np

from molslice.data.images.base import Augment, Cutting, ImageDataset, Pictures, Tokens, to_gray
from molslice.data.images.decoding import Decoding, EncodedImages, Item, class_folders, is_image
from molslice.data.images.parquet_files import fetch_hub, read_tables
from molslice.data.sequences import keep_arrays
from molslice.data.splits import Division, consecutive_rows
from molslice.files.cache import cache_folders, files_identity
from molslice.registry import near_names
from molslice.types import MolsliceError

PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
SIDE = 32
IMAGE_BYTES = 3 * SIDE * SIDE
LARGEST_MEMBER = 1 << 30  # bytes; a batch of CIFAR has 154 million
ARCHIVES = (".tar", ".tar.gz", ".tgz")
SPLITS = ("train", "test")


class Cifar(ImageDataset):
    """Color images of 32 x 32 pixels. A subclass sets the names of the files, as on the page of CIFAR.

    A record of the binary version has `label_bytes` class numbers, then 1,024 bytes each of red, green and
    blue, row by row.

    Args:
        root: The folder.
        valid_fraction: Fraction of the training images for the split `valid`.
        split_seed: Seed of the draw of `valid`.

    Attributes:
        title: Name of the data set.
        hub: Name on the Hugging Face Hub.
        archive: Archive of the binary version.
        folder: Folder in that archive.
        parts: Files of the binary version, the test file last.
        label_bytes: Number of class numbers in a record.
        pickles: Files by which the Python version is recognized.
        num_classes: Number of classes.
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
    num_classes: int
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
        pictures = self._read(Path(root), Decoding(gray=gray, cache_dir=cache_dir, workers=1))
        names = pictures.class_names
        if names and (len(names) != self.num_classes or names != (self.class_names or names)):
            same_count = len(names) == self.num_classes
            what = "other classes, or another order, than" if same_count else f"{len(names)} classes, not"
            raise MolsliceError(
                f"{root} has {what} the {self.num_classes} of {self.title}: {', '.join(names[:10])}"
            )
        if not names:
            self.class_names = self.class_names or tuple(map(str, range(self.num_classes)))
        height, width = pictures.pixels.shape[1:3]
        if (height, width) != (SIDE, SIDE):
            raise MolsliceError(f"{root} holds images of {height} x {width} pixels, expected {SIDE} x {SIDE}")
        self._take(replace(pictures, splits=division.divide(pictures.splits, self.source)), cutting)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Download the Parquet files of the Hugging Face Hub into `root`."""
        fetch_hub(cls.hub, Path(options["root"]))

    def _read(self, root: Path, how: Decoding) -> Pictures:
        if not root.is_dir():
            raise MolsliceError(f"no such folder: {root}. {self.instructions}")
        if files := self._binary_files(root):
            return self._read_binary(root, files, how.gray)
        images = self._find_images(root, how.cache_dir) if self.class_names else None
        images = images or read_tables(root, label_column=self.label_column)
        if images is None:
            raise self._missing(root)
        return images.decode(how)

    def _binary_files(self, root: Path) -> dict[str, bytes]:
        """Read the binary version in a folder, its subfolder or its archive; empty without it."""
        places = (root, root / self.folder, root / self.archive)
        for place in places:
            files = _files_in(place, (*self.parts, self.names_file))
            missing = [name for name in self.parts if name not in files]
            if not missing:
                for other in places:  # the names of the classes need not be beside the images
                    if self.names_file and self.names_file not in files:
                        files |= _files_in(other, (self.names_file,))
                return files
            if place.is_file() or len(missing) < len(self.parts):
                raise MolsliceError(
                    f"{place} lacks {', '.join(missing)} of the binary version of {self.title}"
                )
        return {}

    def _read_binary(self, root: Path, files: Mapping[str, bytes], gray: bool) -> Pictures:
        images, labels, record = [], [], self.label_bytes + IMAGE_BYTES
        for name in self.parts:
            if not files[name] or len(files[name]) % record:
                raise MolsliceError(
                    f"{name} of {root} has {len(files[name])} bytes, not a multiple of the {record} bytes of "
                    "an image"
                )
            rows = np.frombuffer(files[name], np.uint8).reshape(-1, record)
            labels.append(rows[:, self.label].astype(np.int64))
            planes = rows[:, self.label_bytes :].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
            images.append(to_gray(planes) if gray else planes)
        splits = consecutive_rows({"train": sum(map(len, labels[:-1])), "test": len(labels[-1])})
        pixels = np.ascontiguousarray(np.concatenate(images))
        names = tuple(files.get(self.names_file, b"").decode(errors="replace").split())
        return Pictures(pixels, np.concatenate(labels), splits, class_names=names)

    def _find_images(self, root: Path, cache_dir: str | os.PathLike[str] | None) -> EncodedImages | None:
        """Find images `train/<class>/*` and `test/<class>/*` in a folder or in its archives; None without."""
        splits = [split for split in SPLITS if (root / "train").is_dir() and (root / split).is_dir()]
        groups = [group for split in splits for group in class_folders(root / split).values()]
        paths = [path for group in groups for path in group]
        skipped = (self.archive, *self.pickles)
        archives = sorted(
            path for path in root.iterdir() if path.name.endswith(ARCHIVES) and path.name not in skipped
        )

        def items() -> Iterable[Item]:
            return paths or (read() for *_, read in _images_in(archives))

        if paths:
            identity = {"files": files_identity(paths, root)}
            index = self._index((path.parent, path.relative_to(root).parts[:2]) for path in paths)
        elif not archives:
            return None
        else:
            identity = {"archives": files_identity(archives, root)}
            index = keep_arrays(
                cache_folders(cache_dir),
                {"classes": list(self.class_names), **identity},
                lambda: self._index((archive, path.parts[-3:]) for archive, path, _ in _images_in(archives)),
            )
        labels, is_test = np.asarray(index["labels"]), np.asarray(index["is_test"])
        if not len(labels):
            return None
        rows = {"train": np.flatnonzero(~is_test), "test": np.flatnonzero(is_test)}
        for split in SPLITS:
            if not len(rows[split]):
                raise MolsliceError(f"{root} has no images {split}/<class>/*.png or *.jpg")
        return EncodedImages(items, identity, labels, rows)

    def _index(self, images: Iterable[tuple[Path, Sequence[str]]]) -> dict[str, np.ndarray]:
        """Convert the place of each image and the parts of its path, split and class first, to labels."""
        labels, is_test = [], []
        for place, (split, name, *_) in images:
            if name not in self.class_names:
                raise MolsliceError(
                    f"unknown class {name!r} in {place}; {near_names(name, self.class_names)}"
                )
            labels.append(self.class_names.index(name))
            is_test.append(split == "test")
        return {"labels": np.array(labels, np.int64), "is_test": np.array(is_test, bool)}

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


def _files_in(place: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Read the files with these names that a folder, or an archive in any of its folders, has."""
    if place.is_file():
        return {path.name: read() for path, read in _members(place) if path.name in names}
    return {name: (place / name).read_bytes() for name in names if (place / name).is_file()}


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


def _images_in(archives: Iterable[Path]) -> Iterator[tuple[Path, PurePosixPath, Callable[[], bytes]]]:
    """Yield the archive, the path and a function that reads it for each image `train/<class>/<name>`."""
    for archive in archives:
        for path, read in _members(archive):
            if is_image(path) and len(path.parts) > 2 and path.parts[-3] in SPLITS:
                yield archive, path, read
