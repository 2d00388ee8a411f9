"""Image files to one array: decoded by Pillow, brought to one size, kept for the next time."""

import hashlib
import io
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from tqdm import tqdm

from molslice.data.images import checked_count
from molslice.data.pillow import damages, import_pillow
from molslice.data.prepare import cache_folders
from molslice.data.sequences import keep_arrays
from molslice.registry import near_names
from molslice.types import MolsliceError

if TYPE_CHECKING:
    from PIL import Image

Fit = Literal["crop", "squash"]
Item = bytes | Path | str  # the file, where it lies, or why there is none
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
IN_MEMORY_BYTES = 1 << 30  # larger arrays are made in a file
CHUNK_ROWS = 1024
SINGLE_THREAD_ROWS = 2 * CHUNK_ROWS  # fewer are decoded before threads pay


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a file becomes pixels.

    `size` is the side of the square image that results, None leaves the size as it is, which then must be
    that of all. `fit` says how: `crop` brings the shorter side to `size` and takes the middle, `squash`
    changes the proportions. Both are bicubic. The orientation that a camera notes beside the pixels is not
    looked at, as is usual for these data sets.

    Raises:
        MolsliceError: an option that is none.
    """

    size: int | None = None
    fit: Fit = "crop"
    grey: bool = False

    def __post_init__(self) -> None:
        if self.size is not None:
            checked_count("size", self.size)
        if self.fit not in get_args(Fit):
            raise MolsliceError(f"fit of images is {self.fit!r}; {near_names(str(self.fit), get_args(Fit))}")


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """Pixels uint8 [rows, height, width, colors], and why a row has none (it is black then)."""

    pixels: np.ndarray
    failed: dict[int, str]


def decode_all(
    items: Callable[[], Iterable[Item]],
    count: int,
    how: Decoding,
    identity: Mapping[str, Any],
    cache_dir: str | os.PathLike[str] | None,
    workers: int | None = None,
) -> Decoded:
    """The images of `count` items, decoded the first time and found again under `identity`.

    Large ones are decoded into a file in the cache and stay memory-mapped.

    Args:
        items: begins to hand out the files in the order of their rows.
        count: how many there are.
        how: the size and the colors.
        identity: what the items are made of.
        cache_dir: where the arrays are kept, by default the user's cache.
        workers: threads, by default all cores.

    Raises:
        MolsliceError: no Pillow, or images of several sizes where `how` names none.
    """
    folders = cache_folders(cache_dir)

    def build() -> dict[str, np.ndarray]:
        decoded = _decode(items(), count, how, folders, workers)
        text = json.dumps({str(row): reason for row, reason in decoded.failed.items()})
        return {"pixels": decoded.pixels, "failed": np.frombuffer(text.encode(), np.uint8)}

    arrays = keep_arrays(folders, {"images": dict(identity), "count": count, **asdict(how)}, build)
    failed = json.loads(bytes(arrays["failed"]).decode())
    return Decoded(arrays["pixels"], {int(row): reason for row, reason in failed.items()})


def files_identity(paths: Sequence[Path], root: Path) -> str:
    """What distinguishes files without reading them, as one sum: places, bytes, times of the last change."""
    total = hashlib.sha256(f"{root.resolve()}\n".encode())  # unpacked archives may share names and times
    for path in paths:
        state = path.stat()
        total.update(f"{path.relative_to(root).as_posix()}\n{state.st_size} {state.st_mtime_ns}\n".encode())
    return total.hexdigest()


def is_image(path: PurePath) -> bool:
    """Whether the name of a file says that it is an image."""
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")


def class_folders(folder: Path) -> dict[str, list[Path]]:
    """The images of each folder in `folder`, at any depth, by its name; in the order of names."""
    found: dict[str, list[Path]] = {}
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        images = sorted(path for path in inner.rglob("*") if is_image(path) and path.is_file())
        if images:
            found[inner.name] = images
    return found


def _decode(
    items: Iterable[Item], count: int, how: Decoding, folders: Sequence[Path], workers: int | None
) -> Decoded:
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

    threads = 1 if count < SINGLE_THREAD_ROWS else workers or os.cpu_count() or 1
    first = 0
    for row, (item, found) in enumerate(_in_order(items, count, decode, threads)):
        if isinstance(found, str):
            failed[row] = f"{item.name}: {found}" if isinstance(item, Path) else found
            continue
        if pixels is None:
            pixels, first = _room((count, *found.shape), folders), row
        if found.shape != pixels.shape[1:]:
            sizes = [" x ".join(map(str, shape[:2])) for shape in (pixels.shape[1:], found.shape)]
            raise MolsliceError(
                f"the images differ in size: {sizes[0]} in row {first}, {sizes[1]} in row {row}"
                f"{f' ({item})' if isinstance(item, Path) else ''}; give the option size"
            )
        pixels[row] = found
    if pixels is None:
        pixels = np.zeros((count, how.size or 1, how.size or 1, 1 if how.grey else 3), np.uint8)
    return Decoded(pixels, failed)


def _in_order(
    items: Iterable[Item], count: int, decode: Callable[[Item], np.ndarray | str], threads: int
) -> Iterator[tuple[Item, np.ndarray | str]]:
    """Items and what became of them; Pillow lets go of the interpreter while it decodes."""
    iterator = iter(items)
    with (
        ThreadPoolExecutor(threads) as pool,
        tqdm(total=count, unit="image", unit_scale=True, file=sys.stderr, disable=None, delay=2) as bar,
    ):
        while chunk := list(itertools.islice(iterator, CHUNK_ROWS)):
            yield from zip(chunk, pool.map(decode, chunk) if threads > 1 else map(decode, chunk), strict=True)
            bar.update(len(chunk))


def _pixels(image: "Image.Image", how: Decoding) -> np.ndarray:
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"its mode is {image.mode}, of more than the 8 bits a color that are read")
    image = image.convert("L" if how.grey else "RGB")
    if how.size is not None and image.size != (how.size, how.size):
        image = _resized(image, how.size, how.fit)
    pixels = np.asarray(image)
    return pixels[..., None] if how.grey else pixels


def _resized(image: "Image.Image", size: int, fit: Fit) -> "Image.Image":
    from PIL import Image

    box = None
    if fit == "crop":
        side = min(image.size)
        left, top = ((length - side) / 2 for length in image.size)
        box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.BICUBIC, box=box)


def _room(shape: tuple[int, ...], folders: Sequence[Path]) -> np.ndarray:
    """Zeros, in memory or, where they are many, in a file without a name that goes when the array does."""
    if np.prod(shape, dtype=np.int64) > IN_MEMORY_BYTES:
        for folder in folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder) as file:
                    return np.memmap(file, np.uint8, "w+", shape=shape)
            except OSError:  # not to be written, or full
                continue
    return np.zeros(shape, np.uint8)
