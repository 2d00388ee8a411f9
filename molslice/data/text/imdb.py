"""IMDB: 50,000 film reviews, positive or negative (Maas et al., ACL 2011)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from molslice.data.text.base import TextDataset
from molslice.data.text.documents import Documents, Labeled, read_class_folders
from molslice.files.atomic import atomic_path
from molslice.files.hub import download_folder, load_hub
from molslice.files.lines import find_any
from molslice.files.records import Records, read_records
from molslice.types import MolsliceError

SPLITS = ("train", "test")
HUB = "stanfordnlp/imdb"


class Imdb(TextDataset):
    """Reviews in the folder `root`, in one of three formats.

    The authors' folder aclImdb (train/pos/*.txt and so on), train.jsonl(.gz) and test.jsonl(.gz) with `text`
    and `label` (0 negative, 1 positive), or the Parquet files of the Hugging Face Hub (train*.parquet, also
    in plain_text/). The 50,000 reviews without a label are ignored. The options are those of `TextDataset`.
    """

    target = "sentiment"
    class_names = ("neg", "pos")
    instructions = (
        "By hand: unpack https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz and give its folder"
    )

    def read(self, root: Path) -> Documents:
        """Read both splits."""
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
            found = read_records(path, ("text", "label"))
            texts += found.texts("text")
            classes += [self._class_of(found, row) for row in range(len(texts) - len(classes))]
        return Labeled(tables[0], texts, classes)

    def _class_of(self, found: Records, row: int) -> str:
        value = found.columns["label"][row]
        if isinstance(value, str) and value in self.class_names:
            return value
        if isinstance(value, int) and value in (0, 1):
            return self.class_names[value]
        raise MolsliceError(
            f"{found.where(row)}, column 'label': invalid label {value!r}; choices: 0 (neg), 1 (pos)"
        )

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Download both splits from the Hugging Face Hub into `root` as Parquet, unless they exist.

        Raises:
            MolsliceError: `root` is not set, `datasets` is not installed, or the network or the disk failed.
        """
        root = download_folder(options)
        if all(_find(root, split) for split in SPLITS):
            return
        for split, table in load_hub(HUB, SPLITS).items():
            with atomic_path(root / f"{split}.parquet") as partial:
                table.to_parquet(str(partial))


def _find(root: Path, split: str) -> list[Path]:
    """Find the folder or the files of a split; empty if it is missing."""
    if (root / split).is_dir():
        return [root / split]
    if path := find_any(root, f"{split}.jsonl"):
        return [path]
    return sorted(root.glob(f"{split}*.parquet")) or sorted(root.glob(f"plain_text/{split}*.parquet"))
