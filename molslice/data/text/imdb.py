"""IMDB: 50,000 film reviews, positive or negative (Maas et al., ACL 2011)."""

from pathlib import Path
from types import MappingProxyType

from molslice.data.text.base import TRAIN_TEST, SplitTexts
from molslice.files.atomic import atomic_path
from molslice.files.hub import load_hub
from molslice.files.records import Records
from molslice.types import MolsliceError

HUB = "stanfordnlp/imdb"


class Imdb(SplitTexts):
    """Reviews in the folder `root`, in one of three formats.

    The authors' folder aclImdb (train/pos/*.txt and so on), train.jsonl(.gz) and test.jsonl(.gz) with `text`
    and `label` (0 negative, 1 positive), or the Parquet files of the Hugging Face Hub (train*.parquet, also
    in plain_text/). The 50,000 reviews without a label are ignored. `TextDataset` describes the options.
    """

    target = "sentiment"
    names = ("{split}/", "{split}.jsonl", "{split}*.parquet", "plain_text/{split}*.parquet")
    class_names = ("neg", "pos")
    folders = MappingProxyType({"names": class_names, "pattern": "*.txt"})
    instructions = (
        "By hand: unpack https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz and give its folder"
    )

    @classmethod
    def fetch(cls, root: Path) -> None:
        """Download both splits from the Hugging Face Hub as Parquet."""
        for split, table in load_hub(HUB, TRAIN_TEST).items():
            with atomic_path(root / f"{split}.parquet") as partial:
                table.to_parquet(str(partial))

    def classes_of(self, table: Records) -> list[str]:
        """Convert the labels 0 and 1, or the names of the classes, to names."""
        classes = []
        for row, value in enumerate(table.columns["label"]):
            if isinstance(value, int) and value in (0, 1):
                value = self.class_names[value]
            if value not in self.class_names:
                raise MolsliceError(
                    f"{table.where(row)}, column 'label': invalid label {value!r}; choices: 0 (neg), 1 (pos)"
                )
            classes.append(value)
        return classes
