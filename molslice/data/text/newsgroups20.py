"""20 Newsgroups, split by date (Lang 1995; J. Rennie's version "bydate")."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from molslice.data.text.base import TextDataset
from molslice.data.text.documents import Documents, Labeled, read_class_folders
from molslice.files.atomic import write_atomically
from molslice.files.hub import download_folder
from molslice.files.lines import find_any
from molslice.files.records import read_json_lines
from molslice.types import MolsliceError

SPLITS = ("train", "test")
NAME = "20news-bydate-{}"


class Newsgroups20(TextDataset):
    """Postings in the folder `root`, with their headers: 11,314 for train and valid, 7,532 for test.

    Either the folders 20news-bydate-train and 20news-bydate-test with one folder of Latin-1 files per group,
    or the files 20news-bydate-train.jsonl(.gz) and 20news-bydate-test.jsonl(.gz) with `text` and `label`, the
    name of the group. The options are those of `TextDataset`.
    """

    target = "group"
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

    def read(self, root: Path) -> Documents:
        """Read both splits."""
        parts = {split: self._read_split(root, split) for split in SPLITS}
        return Documents.of_classes(parts, self.target, self.class_names)

    def _read_split(self, root: Path, split: str) -> Labeled:
        path, name = _find(root, split), NAME.format(split)
        if path is None:
            raise self.missing(root, f"{name}/ nor {name}.jsonl(.gz)")
        if path.is_dir():
            return read_class_folders(path, encoding="latin-1")
        found = read_json_lines(path, ("text", "label"))
        return Labeled(path, found.texts("text"), found.texts("label"))

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Download both splits with scikit-learn into `root` as JSON lines, unless they exist.

        Raises:
            MolsliceError: `root` is not set, or the network or the disk failed.
        """
        root = download_folder(options)
        if all(_find(root, split) for split in SPLITS):
            return
        from sklearn.datasets import fetch_20newsgroups

        files = {split: root / f"{NAME.format(split)}.jsonl" for split in SPLITS}
        with TemporaryDirectory(
            prefix=".sklearn-", dir=root
        ) as cache:  # deleted afterwards: scikit-learn's cache is a pickle
            for split, path in files.items():
                try:
                    found: Any = fetch_20newsgroups(data_home=cache, subset=split, shuffle=False)
                except OSError as error:
                    raise MolsliceError(f"cannot download 20 Newsgroups: {error}") from error
                rows = zip(found["data"], found["target"], strict=True)
                lines = [
                    json.dumps({"label": found["target_names"][k], "text": text}) + "\n" for text, k in rows
                ]
                write_atomically(path, "".join(lines))


def _find(root: Path, split: str) -> Path | None:
    """Find the folder of a split, otherwise its file."""
    name = NAME.format(split)
    if (root / name).is_dir():
        return root / name
    return find_any(root, f"{name}.jsonl")
