"""Decode image files with Pillow into one array of equal sizes, and cache it."""

import io
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from molslice.data.images.base import Pictures, check_count
from molslice.data.sequences import keep_arrays
from molslice.data.splits import Splits
from molslice.files.cache import cache_folders
from molslice.files.pillow import damages, import_pillow
from molslice.files.processes import check_workers
from molslice.files.progress import Progress
from molslice.registry import check_choice
from molslice.types import MolsliceError

if TYPE_CHECKING:
    from PIL import Image

Fit = Literal["crop", "squash"]
Item = bytes | Path | str  # contents of the file, its path, or the reason why it is missing
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
IN_MEMORY_BYTES = 1 << 30  # larger arrays are memory-mapped files
CHUNK_ROWS = 1024
SINGLE_THREAD_ROWS = 2 * CHUNK_ROWS  # threads save no time for fewer rows


@dataclass(frozen=True, slots=True)
class Decoding:
    """How an image file is converted to pixels.

    The orientation in the EXIF data is ignored, as is usual for these data sets.

    Attributes:
        size: Side of the resulting square image, in pixels. If None, images keep their size, which must be
            the same for all.
        fit: `crop` resizes the shorter side to `size` and takes the center, `squash` resizes both sides to
            `size`. Both are bicubic.
        gray: Whether to convert colors to gray.
        cache_dir: Folder for the pixels; by default the user's cache.
        workers: Number of threads; by default all cores.
    """

    size: int | None = None
    fit: Fit = "crop"
    gray: bool = False
    cache_dir: str | os.PathLike[str] | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            check_count("size", self.size)
        check_choice("fit of images", self.fit, get_args(Fit))
        check_workers(self.workers)

    def decode(
        self, items: Callable[[], Iterable[Item]], count: int, identity: Mapping[str, Any]
    ) -> tuple[np.ndarray, dict[int, str]]:
        """Decode images, or load them from the cache; large arrays are memory-mapped.

        Args:
            items: Returns an iterator over the files in the order of the rows.
            count: Number of files.
            identity: Everything that the files depend on, as JSON values; the key of the cache.

        Returns:
            The pixels, uint8 [rows, height, width, colors], black for an unreadable image, and the reasons
            why images are unreadable, by row number.
        """
        folders = cache_folders(self.cache_dir)

        def build() -> dict[str, np.ndarray]:
            pixels, failed = _decode(items(), count, self, folders)
            text = json.dumps({str(row): reason for row, reason in failed.items()})
            return {"pixels": pixels, "failed": np.frombuffer(text.encode(), np.uint8)}

        how = {"size": self.size, "fit": self.fit, "gray": self.gray}
        arrays = keep_arrays(folders, {"images": dict(identity), "count": count, **how}, build)
        failed = json.loads(bytes(arrays["failed"]).decode())
        return arrays["pixels"], {int(row): reason for row, reason in failed.items()}


@dataclass(frozen=True, slots=True)
class EncodedImages:
    """Image files with their classes and splits.

    Attributes:
        items: Returns an iterator over the files in the order of the rows.
        identity: Everything that the files depend on, as JSON values; the key of the cache.
        labels: As in `Pictures`.
        splits: As in `Pictures`.
        class_names: As in `Pictures`.
    """

    items: Callable[[], Iterable[Item]]
    identity: Mapping[str, Any]
    labels: np.ndarray
    splits: Splits
    class_names: tuple[str, ...] = ()

    def decode(self, how: Decoding) -> Pictures:
        """Decode all images, or load them from the cache."""
        pixels, failed = how.decode(self.items, len(self.labels), self.identity)
        return Pictures(pixels, self.labels, self.splits, failed, self.class_names)


def is_image(path: PurePath) -> bool:
    """Return whether a file name has the suffix of an image."""
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")


def class_folders(folder: Path) -> dict[str, list[Path]]:
    """Find the images in each subfolder, at any depth.

    Returns:
        The sorted images by name of the subfolder, sorted by name. Subfolders without images are left out.
    """
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    images = {
        inner.name: sorted(path for path in inner.rglob("*") if is_image(path) and path.is_file())
        for inner in folders
    }
    return {name: paths for name, paths in images.items() if paths}


def _decode(
    items: Iterable[Item], count: int, how: Decoding, folders: Sequence[Path]
) -> tuple[np.ndarray, dict[int, str]]:
    open_image, failures = import_pillow().open, damages()
    failed: dict[int, str] = {}
    pixels: np.ndarray | None = None

    def decode(item: Item) -> np.ndarray | str:
        if isinstance(item, str):
            return item
        try:
            with open_image(item if isinstance(item, Path) else io.BytesIO(item)) as image:
                return _pixels(image, how)
        except failures as error:
            return " ".join(str(error).split()) or type(error).__name__

    threads = 1 if count < SINGLE_THREAD_ROWS else how.workers or os.cpu_count() or 1
    first = 0
    for row, (item, image) in enumerate(_in_order(items, count, decode, threads)):
        if isinstance(image, str):
            failed[row] = f"{item.name}: {image}" if isinstance(item, Path) else image
            continue
        if pixels is None:
            pixels, first = _allocate((count, *image.shape), folders), row
        if image.shape != pixels.shape[1:]:
            sizes = [" x ".join(map(str, shape[:2])) for shape in (pixels.shape[1:], image.shape)]
            raise MolsliceError(
                f"the images differ in size: {sizes[0]} in row {first + 1}, {sizes[1]} in row {row + 1}"
                f"{f' ({item})' if isinstance(item, Path) else ''}; set the option size"
            )
        pixels[row] = image
    if pixels is None:
        reason = next(iter(failed.values()), "")
        raise MolsliceError(f"none of the {count} images can be read; the first: {reason}")
    return pixels, failed


def _in_order(
    items: Iterable[Item], count: int, decode: Callable[[Item], np.ndarray | str], threads: int
) -> Iterator[tuple[Item, np.ndarray | str]]:
    """Yield items with their results, in order. Threads are sufficient: Pillow releases the GIL."""
    iterator = iter(items)
    with (
        ThreadPoolExecutor(threads) as pool,
        Progress("reading images", count, "images") as bar,
    ):
        while chunk := list(itertools.islice(iterator, CHUNK_ROWS)):
            yield from zip(chunk, pool.map(decode, chunk) if threads > 1 else map(decode, chunk), strict=True)
            bar.update(len(chunk))


def _pixels(image: "Image.Image", how: Decoding) -> np.ndarray:
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"its mode {image.mode} has more than 8 bits per color, which is not supported")
    image = image.convert("L" if how.gray else "RGB")
    if how.size is not None and image.size != (how.size, how.size):
        box = None
        if how.fit == "crop":
            side = min(image.size)
            left, top = ((length - side) / 2 for length in image.size)
            box = (left, top, left + side, top + side)
        image = image.resize((how.size, how.size), import_pillow().Resampling.BICUBIC, box=box)
    pixels = np.asarray(image)
    return pixels[..., None] if how.gray else pixels


def _allocate(shape: tuple[int, ...], folders: Sequence[Path]) -> np.ndarray:
    """Allocate zeros in memory, or for a large array in an unnamed file that is freed with the array."""
    if np.prod(shape, dtype=np.int64) > IN_MEMORY_BYTES:
        for folder in folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder) as file:
                    return np.memmap(file, np.uint8, "w+", shape=shape)
            except OSError:  # the disk is not writable or full
                continue
    return np.zeros(shape, np.uint8)
