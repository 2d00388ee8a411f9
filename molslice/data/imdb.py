"""IMDB: 50,000 film reviews, positive or negative (Maas et al., ACL 2011)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from molslice.data.documents import Documents, Labeled, read_class_folders
from molslice.data.hub import download_folder, keep_file, load_hub
from molslice.data.lines import find_any
from molslice.data.records import read_records, text_of
from molslice.data.texts import TextDataset
from molslice.types import MolsliceError

SPLITS = ("train", "test")
HUB = "stanfordnlp/imdb"


class Imdb(TextDataset):
    """Reviews of the folder `root`, in one of the forms in which people have them.

    The folder aclImdb of the authors (train/pos/*.txt and so on), train.jsonl(.gz) and test.jsonl(.gz) with
    `text` and `label` (0 negative, 1 positive), or the Parquet files of the Hugging Face Hub (train*.parquet,
    also in plain_text/). Their 50,000 reviews without a label are not read. The options are those of
    `TextDataset`.
    """

    target = "sentiment"
    class_names = ("neg", "pos")
    how_to_get = (
        "By hand: unpack https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz, its folder is root"
    )

    def read(self, root: Path) -> Documents:
        """Both splits."""
        parts = {split: self._read_split(root, split) for split in SPLITS}
        return Documents.of_classes(parts, self.target, self.class_names)

    def _read_split(self, root: Path, split: str) -> Labeled:
        tables = _find(root, split)
        if not tables:
            raise self.missing(root, f"{split}/, {split}.jsonl(.gz) nor {split}*.parquet")
        if tables[0].is_dir():
            return read_class_folders(tables[0], self.class_names, pattern="*.txt")
        texts: list[str] = []
        classes: list[str] = []
        for path in tables:
            columns = read_records(path, ("text", "label"))
            texts += [text_of(value, path, row, "text") for row, value in enumerate(columns["text"])]
            classes += [self._class_of(value, path, row) for row, value in enumerate(columns["label"])]
        return Labeled(tables[0], texts, classes)

    def _class_of(self, value: object, path: Path, row: int) -> str:
        if isinstance(value, str) and value in self.class_names:
            return value
        if isinstance(value, int) and value in (0, 1):
            return self.class_names[value]
        raise MolsliceError(
            f"{path}, row {row} (counted from 0), column 'label': {value!r} is neither 0 (neg) nor 1 (pos)"
        )

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Fetch both splits from the Hugging Face Hub into `root`, as Parquet; nothing where they are there.

        Raises:
            MolsliceError: no `root`, no library `datasets`, or whatever the network or the disk says.
        """
        root = download_folder(options)
        if all(_find(root, split) for split in SPLITS):
            return
        for split, table in load_hub(HUB, SPLITS).items():
            keep_file(root / f"{split}.parquet", lambda part, table=table: table.to_parquet(str(part)))


def _find(root: Path, split: str) -> list[Path]:
    """What a split is read from: the folder of its classes, or files; nothing if it is missing."""
    if (root / split).is_dir():
        return [root / split]
    if path := find_any(root, f"{split}.jsonl"):
        return [path]
    return sorted(root.glob(f"{split}*.parquet")) or sorted(root.glob(f"plain_text/{split}*.parquet"))
