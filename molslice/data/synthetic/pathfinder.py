"""Pathfinder: whether the two marked ends in a picture belong to one contour."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from molslice.data import splits
from molslice.data.sequences import SequenceDataset, Sequences, keep_arrays, pack_reasons, unpack_reasons
from molslice.data.synthetic.pathfinder_rule import RULES, PathfinderRule, draw_pictures, pictures
from molslice.files import cache, lines
from molslice.files.cache import files_identity
from molslice.files.pillow import damages, import_pillow
from molslice.files.processes import WorkerPool, check_workers, count_cores
from molslice.files.progress import Progress
from molslice.types import DataSpec, MolsliceError

SIZE = 32
CHUNK = 250  # pictures drawn at once
PARALLEL_CHUNKS = 8  # fewer chunks are drawn in the calling process
NUMPY_MAGIC = b"\x93NUMPY"
Drawn = tuple[np.ndarray, np.ndarray]  # pixels uint8 [rows, size * size] and labels [rows]


class Pathfinder(SequenceDataset):
    """Long Range Arena's Pathfinder (32 x 32) and Path-X (128 x 128): one token per gray pixel, row by row.

    Without `root`, pictures are generated deterministically from the options by `pathfinder_rule`, and
    cached. The options of the difficulty have by default the values of the arena's hard pictures of the same
    size. From the distance of the two marks alone, an accuracy of 54% is possible on generated pictures of
    32 x 32 pixels, and more with shorter contours: compare accuracies with this number.

    Args:
        root: Folder of the arena's files: `metadata/*.npy` lists the folder, file, number and label of each
            picture, such as `imgs/0/sample_0.png`. Metadata are lines of text, as in the arena's download, or
            a numpy array of text, as written by the published generator. A pickled array is refused, because
            it could run code. Rows are divided at random with `seed`. An unreadable picture keeps its row,
            with the reason.
        size: Side of a picture in pixels: 32, 64, 128 or 256 as in the arena, or 16 for small machines.
        num_distractors: Maximum number of short contours.
        contour_length: Number of dashes of a long contour.
        counts: Number of generated pictures of train, valid and test.
        seed: Seed of the generator or the split.
        workers: Number of processes for the generator; by default all cores for many pictures.
        cache_dir: Folder for the pixels; by default the user's cache.

    Source: Tay et al. 2020, arXiv 2011.04006, sections 2.2.5 and 2.2.6, after Linsley et al. 2018, arXiv
    1805.08315.
    """

    target_names, target_units, kind, class_names = ("connected",), ("",), "multiclass", ("no", "yes")
    row_name = "pictures"

    def __init__(
        self,
        *,
        root: str | os.PathLike[str] | None = None,
        size: int = SIZE,
        num_distractors: int | None = None,
        contour_length: int | None = None,
        counts: tuple[int, int, int] = (160_000, 20_000, 20_000),
        seed: int = 0,
        workers: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        hardness = {"num_distractors": num_distractors, "contour_length": contour_length}
        changes = {name: value for name, value in hardness.items() if value is not None}
        if size not in RULES:
            raise MolsliceError(f"size must be one of {', '.join(map(str, RULES))}, got {size!r}")
        splits.check_counts(counts)
        splits.checked_seed(seed)
        check_workers(workers)
        folders = cache.cache_folders(cache_dir)
        if root is None:
            rule = replace(RULES[size], **changes)
            self.source = f"Pathfinder of {size} x {size} pixels"
            identity = {"format": "pathfinder-rule-1", "rule": rule, "counts": list(counts), "seed": seed}
            arrays = keep_arrays(folders, identity, lambda: _make(rule, sum(counts), seed, workers))
            self.splits = splits.consecutive_rows(dict(zip(splits.NAMES, counts, strict=True)))
        else:
            if changes:
                raise MolsliceError(
                    f"{', '.join(changes)} cannot be used with root, whose pictures exist already"
                )
            self.source = str(root)
            arrays = _kept_folder(Path(root), size, folders)
            division = splits.Division(splits.DEFAULT_FRACTIONS, seed)
            self.splits = division.divide({"train": np.arange(len(arrays["labels"]))}, self.source)
        self._spec = self.describe({"size": size})
        self._errors = unpack_reasons(arrays)
        self.labels = np.asarray(arrays["labels"])
        lengths = np.full(len(self.labels), size * size)
        lengths[arrays["failed"]] = 0
        self.sequences = Sequences(arrays["pixels"], np.concatenate([[0], lengths.cumsum()]))

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec:
        """Derive the spec from the size."""
        length = options.get("size", SIZE) ** 2
        return DataSpec(2, "ids", 256, max_tokens=length, vocabulary="gray levels")


def read_table(path: Path) -> list[tuple[str, str, int]]:
    """Read folder, file and label of each picture in a metadata file, lines or a numpy array of text."""
    with path.open("rb") as file:
        is_array = file.read(len(NUMPY_MAGIC)) == NUMPY_MAGIC
    if is_array:
        rows: list[list[str]] = _load_text(path).astype(str).tolist()
    else:
        rows = [line.split() for line in lines.read_lines(path) if line.strip()]
    for number, row in enumerate(rows, start=1):
        if len(row) < 4 or row[3] not in ("0", "1"):
            raise MolsliceError(
                f"{path}, line {number}: expected folder, file, number and a label of 0 or 1, got {row[:4]}"
            )
    return [(row[0], row[1], int(row[3])) for row in rows]


def _load_text(path: Path) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise MolsliceError(
            f"cannot read {path} without pickle, which could run code, or it is damaged. If you trust it, "
            "save it as text: numpy.savetxt(new_path, numpy.load(path, allow_pickle=True), fmt='%s')"
        ) from error
    if array.dtype.kind not in "US" or array.ndim != 2:
        raise MolsliceError(f"{path}: expected rows of text, got {array.dtype} {list(array.shape)}")
    return array


def _make(rule: PathfinderRule, count: int, seed: int, workers: int | None) -> dict[str, np.ndarray]:
    pixels = np.empty((count, rule.size * rule.size), np.uint8)
    labels = np.empty((count, 1), np.float32)
    chunks = [range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
    with Progress("making pictures", count, "pictures") as bar:
        for rows, drawn in zip(chunks, _drawn(rule, seed, chunks, workers), strict=True):
            pixels[rows.start : rows.stop], labels[rows.start : rows.stop, 0] = drawn
            bar.update(len(rows))
    return {"pixels": pixels.reshape(-1), "labels": labels, **pack_reasons({})}


def _drawn(rule: PathfinderRule, seed: int, chunks: list[range], workers: int | None) -> Iterator[Drawn]:
    """Draw pixels and labels of each chunk, in order, with worker processes for many chunks."""
    if workers is None:
        workers = 1 if len(chunks) < PARALLEL_CHUNKS else count_cores()
    with WorkerPool(workers if workers > 1 else 0, "draws pictures") as pool:
        yield from pool.map(_draw, ((rule, seed, rows) for rows in chunks))


def _draw(rule: PathfinderRule, seed: int, rows: range) -> Drawn:
    chosen = list(pictures(rule, rows, seed))
    return draw_pictures(chosen).reshape(len(rows), -1), np.array([picture.label for picture in chosen])


def _kept_folder(root: Path, size: int, folders: Sequence[Path]) -> dict[str, np.ndarray]:
    tables = sorted((root / "metadata").glob("*.npy"), key=lambda path: (len(path.stem), path.stem))
    rows = [row for table in tables for row in read_table(table)]
    if not rows:
        raise MolsliceError(
            f"{root} has no metadata/*.npy with a list of pictures. Set root to a folder of the data of Long "
            "Range Arena (github.com/google-research/long-range-arena), for instance "
            "pathfinder32/curv_contour_length_14, or leave out root to generate pictures"
        )
    files = [root / folder / name for folder, name, _ in rows]
    identity = {
        "format": "pathfinder-folder-2",
        "size": size,
        "sha256": [cache.file_checksum(table) for table in tables],
        "files": files_identity([file for file in files if file.exists()], root),
    }
    labels = np.array([label for _, _, label in rows], np.float32)[:, None]
    return keep_arrays(folders, identity, lambda: _read_files(root, files, labels, size))


def _read_files(root: Path, files: list[Path], labels: np.ndarray, size: int) -> dict[str, np.ndarray]:
    open_image, failures = import_pillow().open, damages()
    pixels = np.empty((len(files), size * size), np.uint8)
    reasons: dict[int, str] = {}
    with Progress("reading pictures", len(files), "pictures") as bar:
        for row, file in enumerate(files):
            try:
                with open_image(file) as image:
                    gray = np.asarray(image.convert("L"))
                if gray.shape != (size, size):
                    raise ValueError(f"{gray.shape[1]} x {gray.shape[0]} pixels instead of {size} x {size}")
                pixels[row - len(reasons)] = gray.reshape(-1)
            except failures as error:
                reasons[row] = f"{file.relative_to(root)}: {getattr(error, 'strerror', None) or error}"
            bar.update()
    if len(reasons) == len(files):
        raise MolsliceError(f"cannot read any of the {len(files)} pictures of {root}; {reasons[0]}")
    kept = pixels[: len(files) - len(reasons)].reshape(-1)
    return {"pixels": kept, "labels": labels, **pack_reasons(reasons)}
