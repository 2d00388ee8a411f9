"""Images in Parquet files, as the Hugging Face Hub has them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from molslice.data.image_files import Decoding, Fit
from molslice.data.image_splits import Dividing, checked_scale
from molslice.data.image_tables import find_tables, read_table
from molslice.data.images import Augment, Cutting, ImageDataset, Tokens
from molslice.types import MolsliceError


class ImageParquet(ImageDataset):
    """Parquet files with a column of image files and one of classes.

    The split of a file is in its name (`train-00000-of-00002.parquet`) or in that of its folder; val and
    validation mean valid. An image that cannot be read keeps its row, with the reason. Decoded images are
    kept in the cache, rows x size x size x 3 bytes.

    Args:
        root: the folder of the files, at any depth, or the one file.
        hub: the data set of the Hugging Face Hub that `prepare --download` fetches into `root`, for instance
            zh-plus/tiny-imagenet.
        image_column: by default the one column of images.
        label_column: by default `label` or `labels`.
        size: the side to which images are brought; by default they stay as they are, all of one size.
        fit: `crop` brings the shorter side to `size` and takes the middle, `squash` changes proportions.
        tokens: `patches`, or `pixels` for one token a pixel (a color of a pixel where they are not grey).
        patch: side of a patch.
        grey: grey images instead of colors.
        augment: `none`, `crop`, `crop_flip`, or with RandAugment `crop_flip_rand` or `resized_flip_rand`.
        mean: of each color as a share of 255, with `std`; by default that of the training split. A model must
            be evaluated with those that it was trained with.
        std: the spread that goes with `mean`.
        valid_fraction: share of the training images that becomes `valid` where the files have none.
        test_fraction: the same for `test` where they have neither.
        split_seed: of drawing them.
        valid_as_test: their `valid` is the test split, as is customary where the true one is hidden.
        workers: threads that decode, by default all cores.
        cache_dir: where decoded images are kept, by default the user's cache.

    Raises:
        MolsliceError: an option that is none, files that are missing or damaged, or a missing column.
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
        grey: bool = False,
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
        cutting, how = Cutting(tokens, patch, grey, augment), Decoding(size, fit, grey)
        scale = checked_scale(mean, std, cutting)
        dividing = Dividing(valid_fraction, test_fraction, split_seed, valid_as_test)
        self.source, place = str(root), Path(root)
        files = find_tables(place) if place.exists() else []
        if not files:
            fetched = f"; `molslice prepare --config ... --download` fetches {hub}" if hub else ""
            raise MolsliceError(f"no Parquet file in {place}{fetched}")
        table = read_table(files, image_column, label_column)
        self.class_names = table.class_names or tuple(map(str, range(int(table.labels.max()) + 1)))
        splits = dividing.divide(table.splits, self.source)
        pictures = table.pictures(place, how, cache_dir, workers)
        self._take(replace(pictures, splits=splits), cutting, scale)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Fetch the data set `hub` into `root` through the library `datasets`.

        Raises:
            MolsliceError: `hub` is missing, or the library, or the network or the disk fails.
        """
        from molslice.data.fetch import fetch_hub

        name = options.get("hub")
        if not isinstance(name, str) or not name:
            raise MolsliceError("image_parquet: give hub, the name of a data set of the Hugging Face Hub")
        fetch_hub(name, Path(options["root"]))
