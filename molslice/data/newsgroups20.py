"""20 Newsgroups, divided by date (Lang 1995; the version "bydate" of J. Rennie)."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from molslice.data.documents import Documents, Labeled, read_class_folders
from molslice.data.hub import download_folder, keep_file
from molslice.data.lines import find_any
from molslice.data.records import read_json_lines, text_of
from molslice.data.texts import TextDataset
from molslice.types import MolsliceError

SPLITS = ("train", "test")
NAME = "20news-bydate-{}"


class Newsgroups20(TextDataset):
    """Postings of the folder `root`, with their headers.

    Either the folders 20news-bydate-train and 20news-bydate-test with a folder for each group, whose files
    are Latin-1, or the files 20news-bydate-train.jsonl(.gz) and the same of the test, with `text` and
    `label`, the name of the group. 11,314 rows to train on and 7,532 to test on. The options are those of
    `TextDataset`.
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
    how_to_get = "By hand: unpack http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz"

    def read(self, root: Path) -> Documents:
        """Both splits."""
        parts = {split: self._read_split(root, split) for split in SPLITS}
        return Documents.of_classes(parts, self.target, self.class_names)

    def _read_split(self, root: Path, split: str) -> Labeled:
        path, name = _find(root, split), NAME.format(split)
        if path is None:
            raise self.missing(root, f"{name}/ nor {name}.jsonl(.gz)")
        if path.is_dir():
            return read_class_folders(path, encoding="latin-1")
        columns = read_json_lines(path, ("text", "label"))
        texts = [text_of(value, path, row, "text") for row, value in enumerate(columns["text"])]
        groups = [text_of(value, path, row, "label") for row, value in enumerate(columns["label"])]
        return Labeled(path, texts, groups)

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Fetch both splits through scikit-learn into `root`, as JSON lines; nothing where they are there.

        Raises:
            MolsliceError: no `root`, or whatever the network or the disk says.
        """
        root = download_folder(options)
        if all(_find(root, split) for split in SPLITS):
            return
        from sklearn.datasets import fetch_20newsgroups

        files = {split: root / f"{NAME.format(split)}.jsonl" for split in SPLITS}
        with TemporaryDirectory(prefix=".sklearn-", dir=root) as cache:  # its cache is a pickle: not kept
            for split, path in files.items():
                try:
                    found: Any = fetch_20newsgroups(data_home=cache, subset=split, shuffle=False)
                except OSError as error:
                    raise MolsliceError(f"20 Newsgroups could not be fetched: {error}") from error
                rows = zip(found["data"], found["target"], strict=True)
                lines = [
                    json.dumps({"label": found["target_names"][k], "text": text}) + "\n" for text, k in rows
                ]
                keep_file(path, lambda part, lines=lines: part.write_text("".join(lines), "utf-8"))


def _find(root: Path, split: str) -> Path | None:
    """The folder of a split, else its file."""
    name = NAME.format(split)
    if (root / name).is_dir():
        return root / name
    return find_any(root, f"{name}.jsonl")
