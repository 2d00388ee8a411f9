"""20 Newsgroups, split by date (Lang 1995; J. Rennie's version "bydate")."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from molslice.data.text.base import TRAIN_TEST, SplitTexts
from molslice.data.text.documents import Labeled, read_class_folders
from molslice.files.atomic import write_atomically
from molslice.files.lines import find_any
from molslice.files.records import read_json_lines
from molslice.types import MolsliceError

NAME = "20news-bydate-{split}"


class Newsgroups20(SplitTexts):
    """Postings in the folder `root`, with their headers: 11,314 for train and valid, 7,532 for test.

    Either the folders 20news-bydate-train and 20news-bydate-test with one folder of Latin-1 files per group,
    or the files 20news-bydate-train.jsonl(.gz) and 20news-bydate-test.jsonl(.gz) with `text` and `label`, the
    name of the group. `TextDataset` describes the options.
    """

    target = "group"
    expected = f"{NAME}/ nor {NAME}.jsonl(.gz)"
    class_names = (
        "alt.atheism",
        "comp.graphics",
        "comp.os.ms-windows.misc",
        "comp.sys.ibm.pc.hardware",
        "comp.sys.mac.hardware",
        "comp.windows.x",
        "misc.forsale",
        "rec.autos",
        "rec.motorcycles",
        "rec.sport.baseball",
        "rec.sport.hockey",
        "sci.crypt",
        "sci.electronics",
        "sci.med",
        "sci.space",
        "soc.religion.christian",
        "talk.politics.guns",
        "talk.politics.mideast",
        "talk.politics.misc",
        "talk.religion.misc",
    )
    instructions = "By hand: unpack http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz"

    @staticmethod
    def find(root: Path, split: str) -> list[Path]:
        """Find the folder of a split, otherwise its file."""
        name = NAME.format(split=split)
        path = root / name if (root / name).is_dir() else find_any(root, f"{name}.jsonl")
        return [] if path is None else [path]

    def read_split(self, paths: list[Path]) -> Labeled:
        """Read one folder per group, or the columns `text` and `label`."""
        (path,) = paths
        if path.is_dir():
            return read_class_folders(path, encoding="latin-1")
        table = read_json_lines(path, ("text", "label"))
        return Labeled(path, table.texts("text"), table.texts("label"))

    @classmethod
    def fetch(cls, root: Path) -> None:
        """Download both splits with scikit-learn as JSON lines."""
        from sklearn.datasets import fetch_20newsgroups

        # the cache is deleted afterwards: it is a pickle
        with TemporaryDirectory(prefix=".sklearn-", dir=root) as cache:
            for split in TRAIN_TEST:
                try:
                    postings: Any = fetch_20newsgroups(data_home=cache, subset=split, shuffle=False)
                except OSError as error:
                    raise MolsliceError(f"cannot download 20 Newsgroups: {error}") from error
                names = postings["target_names"]
                lines = [
                    json.dumps({"label": names[group], "text": text}) + "\n"
                    for text, group in zip(postings["data"], postings["target"], strict=True)
                ]
                path = root / f"{NAME.format(split=split)}.jsonl"
                write_atomically(path, "".join(lines))
