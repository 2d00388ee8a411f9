"""Images in Parquet files, as on the Hugging Face Hub."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from molslice.data.images.base import Augment, Cutting, ImageDataset, Tokens
from molslice.data.images.decoding import Decoding, Fit
from molslice.data.images.dividing import checked_scale, divide
from molslice.data.images.parquet_files import find_tables, read_table
from molslice.data.splits import Division
from molslice.types import MolsliceError


class ImageParquet(ImageDataset):
    """Parquet files with a column of image files and a column of classes.

    The split of a file is given by its name (`train-00000-of-00002.parquet`) or its folder; val and
    validation mean valid. An unreadable image keeps its row, with the reason. Decoded images are
    cached as rows x size x size x 3 bytes.

    Args:
        root: Folder of the files, at any depth, or a single file.
        hub: Data set of the Hugging Face Hub that `prepare --download` downloads into `root`, for instance
            zh-plus/tiny-imagenet.
        image_column: Name of the column of images; by default the only such column.
        label_column: Name of the column of classes; by default `label` or `labels`.
        size: Side to which images are resized, in pixels; by default images keep their size, which must be
            the same for all.
        fit: `crop` resizes the shorter side to `size` and takes the center, `squash` resizes both sides.
        tokens: `patches`, or `pixels` for one token per pixel (per color of a pixel without `gray`).
        patch: Side of a patch, in pixels.
        gray: Whether to convert colors to gray.
        augment: `none`, `crop`, `crop_flip`, `crop_flip_rand`, `resized_flip_rand` or
            `resized_flip_rand_mix`; see `ImageDataset`.
        mean: Mean of each color as a fraction of 255, given with `std`; by default the mean of the
            training split. Evaluate a model with the values of its training.
        std: Standard deviation of each color, given with `mean`.
        valid_fraction: Fraction of the training images for `valid`, if the files lack this split.
        test_fraction: Fraction of the training images for `test`, if the files have neither split.
        split_seed: Seed of these draws.
        valid_as_test: Whether to use the split `valid` as the test split, as is usual if the test labels are
            not public.
        workers: Number of threads for decoding; by default all cores.
        cache_dir: Folder for decoded images; by default the user's cache.

    Raises:
        MolsliceError: An option is invalid, a file is missing or damaged, or a column is missing.
    """

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
        hub: str | None = None,
        image_column: str | None = None,
        label_column: str | None = None,
        size: int | None = None,
        fit: Fit = "crop",
        tokens: Tokens = "patches",
        patch: int = 16,
        gray: bool = False,
        augment: Augment = "none",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        valid_fraction: float = 0.1,
        test_fraction: float = 0.1,
        split_seed: int = 0,
        valid_as_test: bool = False,
        workers: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        cutting, how = Cutting(tokens, patch, gray, augment), Decoding(size, fit, gray)
        scale = checked_scale(mean, std, cutting)
        division = Division({"valid": valid_fraction, "test": test_fraction}, split_seed)
        self.source, place = str(root), Path(root)
        files = find_tables(place) if place.exists() else []
        if not files:
            fetched = f"; `molslice prepare --config ... --download` downloads {hub}" if hub else ""
            raise MolsliceError(f"no Parquet file in {place}{fetched}")
        table = read_table(files, image_column, label_column)
        self.class_names = table.class_names or tuple(map(str, range(int(table.labels.max()) + 1)))
        splits = divide(table.splits, division, self.source, valid_as_test=valid_as_test)
        pictures = table.pictures(place, how, cache_dir, workers)
        self._take(replace(pictures, splits=splits), cutting, scale)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Download the data set `hub` into `root` with the library `datasets`.

        Raises:
            MolsliceError: `hub` is not set, the library is not installed, or the network or the disk failed.
        """
        from molslice.data.images.fetch import fetch_hub

        name = options.get("hub")
        if not isinstance(name, str) or not name:
            raise MolsliceError(
                "image_parquet needs the option hub, a data set of the Hugging Face Hub, to download"
            )
        fetch_hub(name, Path(options["root"]))
