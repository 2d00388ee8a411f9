"""One's own texts: a folder for each class, a file for each text, as BBC News comes."""

from pathlib import Path

from molslice.data.documents import Documents, read_class_folders
from molslice.data.splits import ALIASES, NAMES
from molslice.data.texts import TextDataset
from molslice.types import MolsliceError


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
        named = _split_folders(root)
        if not named:
            return Documents.of_classes({"train": read_class_folders(root, pattern="*.txt")}, self.target)
        parts = {
            split: read_class_folders(named[split], pattern="*.txt") for split in NAMES if split in named
        }
        return Documents.of_classes(parts, self.target)


def _split_folders(root: Path) -> dict[str, Path]:
    """The folder of each split, under whichever of its names; none without one to train on.

    Raises:
        MolsliceError: two folders of one split, or `root` cannot be read.
    """
    found: dict[str, list[Path]] = {}
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError as error:
        raise MolsliceError(f"{root}: {error.strerror}") from error
    for path in folders:
        name = path.name.lower()
        if (split := ALIASES.get(name, name)) in NAMES:
            found.setdefault(split, []).append(path)
    if "train" not in found:
        return {}  # its folders are classes, whatever their names
    for split, paths in found.items():
        if len(paths) > 1:
            names = " and ".join(path.name for path in paths)
            raise MolsliceError(f"{root}: {names} are both the split {split}; keep one of them")
    return {split: paths[0] for split, paths in found.items()}
