"""R8: the Reuters-21578 news of the eight most frequent topics that stand alone (Cardoso-Cachopo 2007)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from molslice.data.documents import Documents, Labeled
from molslice.data.hub import download_folder, keep_file, load_hub
from molslice.data.lines import find_any, read_lines
from molslice.data.texts import TextDataset
from molslice.types import MolsliceError

SPLITS = ("train", "test")
# the names in which people have the file of a split, each also with .gz
FILES = ("{}.tsv", "{}.txt", "r8-{}-all-terms.txt", "r8-{}-stemmed.txt", "r8-{}-no-stop.txt")
HUB = "yangwang825/reuters-21578"


class R8(TextDataset):
    """News of the folder `root`: train.tsv and test.tsv, a line `topic TAB text`, also compressed with gzip.

    The names of A. Cardoso-Cachopo's files (r8-train-all-terms.txt and so on) are known too. 5,485 rows to
    train on and 2,189 to test on. The options are those of `TextDataset`.
    """

    target = "topic"
    class_names = ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")
    how_to_get = "By hand: r8-train-all-terms.txt and r8-test-all-terms.txt from https://ana.cachopo.org/datasets-for-single-label-text-categorization"

    def read(self, root: Path) -> Documents:
        """Both splits."""
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
                raise MolsliceError(f"{path}, line {number} is not `topic TAB text`: {line[:40]!r}")
            texts.append(text)
            classes.append(topic.strip())
        return Labeled(path, texts, classes)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Fetch both splits from the Hugging Face Hub into `root`, as TSV; nothing where they are there.

        Raises:
            MolsliceError: no `root`, no library `datasets`, or whatever the network or the disk says.
        """
        root = download_folder(options)
        if all(_find(root, split) for split in SPLITS):
            return
        for split, rows in load_hub(HUB, SPLITS).items():
            lines = [f"{cls._topic(row['label'])}\t{' '.join(row['text'].split())}\n" for row in rows]
            keep_file(
                root / f"{split}.tsv", lambda part, lines=lines: part.write_text("".join(lines), "utf-8")
            )

    @classmethod
    def _topic(cls, label: object) -> str:
        """The Hub's labels are numbers of the topics in the order of the alphabet."""
        return cls.class_names[label] if isinstance(label, int) else str(label)


def _find(root: Path, split: str) -> Path | None:
    """The file that a split is read from; None where there is none."""
    return find_any(root, *(name.format(split) for name in FILES))
