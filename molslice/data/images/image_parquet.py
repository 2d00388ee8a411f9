"""Images in Parquet files, as on the Hugging Face Hub."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from molslice.data.images.decoding import EncodedImages
from molslice.data.images.labeled_files import ImageFiles
from molslice.data.images.parquet_files import fetch_hub, read_tables
from molslice.types import MolsliceError


class ImageParquet(ImageFiles):
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
    """

    def __init__(
        self,
        *,
        hub: str | None = None,
        image_column: str | None = None,
        label_column: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.hub, self.image_column, self.label_column = hub, image_column, label_column
        super().__init__(**options)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Download the data set `hub` into `root` with the library `datasets`."""
        name = options.get("hub")
        if not isinstance(name, str) or not name:
            raise MolsliceError(
                "image_parquet needs the option hub, a data set of the Hugging Face Hub, to download"
            )
        fetch_hub(name, Path(options["root"]))

    def _read(self, root: Path) -> EncodedImages:
        images = read_tables(root, self.image_column, self.label_column)
        if images is None:
            fetched = (
                f"; `molslice prepare --config FILE --download` downloads {self.hub}" if self.hub else ""
            )
            raise MolsliceError(f"no Parquet file in {root}{fetched}")
        numbers = map(str, range(int(images.labels.max()) + 1))
        return replace(images, class_names=images.class_names or tuple(numbers))
