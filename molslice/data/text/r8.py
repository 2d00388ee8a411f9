"""R8: Reuters-21578 news with exactly one of the eight most frequent topics (Cardoso-Cachopo 2007)."""

from pathlib import Path

from molslice.data.text.base import TRAIN_TEST, SplitTexts
from molslice.data.text.documents import Labeled
from molslice.files.atomic import write_atomically
from molslice.files.hub import load_hub
from molslice.files.lines import read_lines
from molslice.types import MolsliceError

HUB = "yangwang825/reuters-21578"


class R8(SplitTexts):
    """News in the folder `root`: train.tsv and test.tsv with lines `topic TAB text`, plain or with gzip.

    The names of A. Cardoso-Cachopo's files (r8-train-all-terms.txt and so on) are also accepted. 5,485 rows
    for train and valid, 2,189 for test. `TextDataset` describes the options.
    """

    target = "topic"
    names = (
        "{split}.tsv",
        "{split}.txt",
        "r8-{split}-all-terms.txt",
        "r8-{split}-stemmed.txt",
        "r8-{split}-no-stop.txt",
    )
    class_names = ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")
    instructions = "By hand: download r8-train-all-terms.txt and r8-test-all-terms.txt from https://ana.cachopo.org/datasets-for-single-label-text-categorization"

    def read_split(self, paths: list[Path]) -> Labeled:
        """Read lines of a topic, a tab and a text."""
        texts, classes = [], []
        for number, line in enumerate(read_lines(paths[0]), start=1):
            if not line.strip():
                continue
            topic, tab, text = line.partition("\t")
            if not tab:
                where = f"{paths[0]}, line {number}"
                raise MolsliceError(f"{where}: expected `topic TAB text`, got {line[:40]!r}")
            texts.append(text)
            classes.append(topic.strip())
        return Labeled(paths[0], texts, classes)

    @classmethod
    def fetch(cls, root: Path) -> None:
        """Download both splits from the Hugging Face Hub as TSV."""
        for split, rows in load_hub(HUB, TRAIN_TEST).items():
            lines = [f"{cls._topic(row['label'])}\t{' '.join(row['text'].split())}\n" for row in rows]
            write_atomically(root / f"{split}.tsv", "".join(lines))

    @classmethod
    def _topic(cls, label: object) -> str:
        """Convert a label of the Hub, the index of the topic in alphabetical order, to its name."""
        return cls.class_names[label] if isinstance(label, int) else str(label)
