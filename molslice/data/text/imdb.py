"""IMDB: 50,000 film reviews, positive or negative (Maas et al., ACL 2011)."""

from pathlib import Path

from molslice.data.text.base import TRAIN_TEST, SplitTexts
from molslice.data.text.documents import Labeled, read_class_folders
from molslice.files.atomic import atomic_path
from molslice.files.hub import load_hub
from molslice.files.lines import find_any
from molslice.files.records import Records, read_records
from molslice.types import MolsliceError

HUB = "stanfordnlp/imdb"


class Imdb(SplitTexts):
    """Reviews in the folder `root`, in one of three formats.

    The authors' folder aclImdb (train/pos/*.txt and so on), train.jsonl(.gz) and test.jsonl(.gz) with `text`
    and `label` (0 negative, 1 positive), or the Parquet files of the Hugging Face Hub (train*.parquet, also
    in plain_text/). The 50,000 reviews without a label are ignored. `TextDataset` describes the options.
    """

    target = "sentiment"
    expected = "{split}/, {split}.jsonl(.gz) nor {split}*.parquet"
    class_names = ("neg", "pos")
    instructions = (
        "By hand: unpack https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz and give its folder"
    )

    @staticmethod
    def find(root: Path, split: str) -> list[Path]:
        """Find the folder or the files of a split."""
        if (root / split).is_dir():
            return [root / split]
        if path := find_any(root, f"{split}.jsonl"):
            return [path]
        return sorted(root.glob(f"{split}*.parquet")) or sorted(root.glob(f"plain_text/{split}*.parquet"))

    def read_split(self, paths: list[Path]) -> Labeled:
        """Read one folder per class, or the columns `text` and `label`."""
        if paths[0].is_dir():
            return read_class_folders(paths[0], self.class_names, pattern="*.txt")
        texts: list[str] = []
        classes: list[str] = []
        for path in paths:
            table = read_records(path, ("text", "label"))
            texts += table.texts("text")
            classes += [self._class_of(table, row) for row in range(len(texts) - len(classes))]
        return Labeled(paths[0], texts, classes)

    @classmethod
    def fetch(cls, root: Path) -> None:
        """Download both splits from the Hugging Face Hub as Parquet."""
        for split, table in load_hub(HUB, TRAIN_TEST).items():
            with atomic_path(root / f"{split}.parquet") as partial:
                table.to_parquet(str(partial))

    def _class_of(self, table: Records, row: int) -> str:
        value = table.columns["label"][row]
        if isinstance(value, str) and value in self.class_names:
            return value
        if isinstance(value, int) and value in (0, 1):
            return self.class_names[value]
        raise MolsliceError(
            f"{table.where(row)}, column 'label': invalid label {value!r}; choices: 0 (neg), 1 (pos)"
        )
