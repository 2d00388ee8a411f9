"""20 Newsgroups, split by date (Lang 1995; J. Rennie's version "bydate")."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from molslice.data.text.base import TRAIN_TEST, SplitTexts
from molslice.files.atomic import write_atomically
from molslice.types import MolsliceError

NAME = "20news-bydate-{split}"


class Newsgroups20(SplitTexts):
    """Postings in the folder `root`, with their headers: 11,314 for train and valid, 7,532 for test.

    Either the folders 20news-bydate-train and 20news-bydate-test with one folder of Latin-1 files per group,
    or the files 20news-bydate-train.jsonl(.gz) and 20news-bydate-test.jsonl(.gz) with `text` and `label`, the
    name of the group. `TextDataset` describes the options.
    """

    target = "group"
    names = (f"{NAME}/", f"{NAME}.jsonl")
    folders = MappingProxyType({"encoding": "latin-1"})
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
