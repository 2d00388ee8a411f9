"""A user's own texts: one folder per class and one file per text, as in BBC News."""

from molslice.data.splits import NAMES, split_folders
from molslice.data.text.base import FolderTexts
from molslice.data.text.documents import Documents, read_class_folders


class TextFolder(FolderTexts):
    """Texts in `root/<class>/*.txt`, or in `root/train/<class>/*.txt` with the same for test and valid.

    The split folders may also be named `training`, `val`, `validation` and `testing`; valid is optional.
    Files are UTF-8, otherwise Latin-1. Other file types are ignored. The classes are the sorted names of the
    folders. `TextDataset` describes the options.
    """

    instructions = "Expected one folder per class with .txt files, or train/ and test/ with such folders"

    def read(self) -> Documents:
        """Read all folders."""
        if not self.root.is_dir():
            raise self.missing("")
        named = split_folders(self.root) or {"train": self.root}
        parts = {
            split: read_class_folders(named[split], pattern="*.txt") for split in NAMES if split in named
        }
        return Documents.of_classes(parts, self.target)
