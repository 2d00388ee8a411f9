"""R8: Reuters-21578 news with exactly one of the eight most frequent topics (Cardoso-Cachopo 2007)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from molslice.data.text.base import TextDataset
from molslice.data.text.documents import Documents, Labeled
from molslice.files.atomic import write_atomically
from molslice.files.hub import download_folder, load_hub
from molslice.files.lines import find_any, read_lines
from molslice.types import MolsliceError

SPLITS = ("train", "test")
# common names of the file of a split, each also with .gz
FILES = ("{}.tsv", "{}.txt", "r8-{}-all-terms.txt", "r8-{}-stemmed.txt", "r8-{}-no-stop.txt")
HUB = "yangwang825/reuters-21578"


class R8(TextDataset):
    """News in the folder `root`: train.tsv and test.tsv with lines `topic TAB text`, plain or with gzip.

    The names of A. Cardoso-Cachopo's files (r8-train-all-terms.txt and so on) are also accepted. 5,485 rows
    for train and valid, 2,189 for test. The options are those of `TextDataset`.
    """

    target = "topic"
    class_names = ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")
    instructions = "By hand: download r8-train-all-terms.txt and r8-test-all-terms.txt from https://ana.cachopo.org/datasets-for-single-label-text-categorization"

    def read(self, root: Path) -> Documents:
        """Read both splits."""
        parts = {split: self._read_split(root, split) for split in SPLITS}
        return Documents.of_classes(parts, self.target, self.class_names)

    def _read_split(self, root: Path, split: str) -> Labeled:
        path = _find(root, split)
        if path is None:
            names = [name.format(split) for name in FILES]
            raise self.missing(root, f"{', '.join(names[:-1])} nor {names[-1]}, with or without .gz")
        texts, classes = [], []
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip():
                continue
            topic, tab, text = line.partition("\t")
            if not tab:
                raise MolsliceError(f"{path}, line {number}: expected `topic TAB text`, got {line[:40]!r}")
            texts.append(text)
            classes.append(topic.strip())
        return Labeled(path, texts, classes)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Download both splits from the Hugging Face Hub into `root` as TSV, unless they exist.

        Raises:
            MolsliceError: `root` is not set, `datasets` is not installed, or the network or the disk failed.
        """
        root = download_folder(options)
        if all(_find(root, split) for split in SPLITS):
            return
        for split, rows in load_hub(HUB, SPLITS).items():
            lines = [f"{cls._topic(row['label'])}\t{' '.join(row['text'].split())}\n" for row in rows]
            write_atomically(root / f"{split}.tsv", "".join(lines))

    @classmethod
    def _topic(cls, label: object) -> str:
        """Convert a label of the Hub, the index of the topic in alphabetical order, to its name."""
        return cls.class_names[label] if isinstance(label, int) else str(label)


def _find(root: Path, split: str) -> Path | None:
    """Find the file of a split; None if it does not exist."""
    return find_any(root, *(name.format(split) for name in FILES))
