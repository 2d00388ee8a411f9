"""One's own texts: a folder for each class, a file for each text, as BBC News comes."""

from pathlib import Path

from molslice.data.documents import Documents, read_class_folders
from molslice.data.splits import NAMES, split_folders
from molslice.data.texts import TextDataset


class TextFolder(TextDataset):
    """Texts of `root/<class>/*.txt`, or of `root/train/<class>/*.txt` and the same of test and perhaps valid.

    The folders may also be called `training`, `val`, `validation` and `testing`. Files are UTF-8; one that is
    not is read as Latin-1. Files of another ending are not read. The classes are the names of the folders in
    the order of the alphabet. The options are those of `TextDataset`.
    """

    how_to_get = "It takes one folder for each class with files .txt, or train/ and test/ with such folders"

    def read(self, root: Path) -> Documents:
        """All folders."""
        if not root.is_dir():
            raise self.missing(root, "")
        named = split_folders(root)
        if not named:
            return Documents.of_classes({"train": read_class_folders(root, pattern="*.txt")}, self.target)
        parts = {
            split: read_class_folders(named[split], pattern="*.txt") for split in NAMES if split in named
        }
        return Documents.of_classes(parts, self.target)
