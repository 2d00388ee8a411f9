"""Texts with their labels, as returned by the readers of all formats."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from molslice.data.splits import consecutive_rows
from molslice.files.tables import place_of
from molslice.registry import near_names
from molslice.types import MolsliceError


class Labeled(NamedTuple):
    """The rows of one split.

    Attributes:
        source: File or folder, for messages.
        texts: Text of each row.
        classes: Name of the class of each row; empty if unknown.
    """

    source: Path
    texts: list[str]
    classes: list[str]


@dataclass(frozen=True, slots=True)
class Documents:
    """All rows of a source.

    Attributes:
        texts: Text of each row.
        labels: float32 [rows, T], NaN if missing: the number of a class, or without `class_names` 0 or 1 for
            each target.
        target_names: Names of the targets.
        class_names: Names of the classes; empty for binary targets.
        parts: Row numbers of each split of the source.
    """

    texts: list[str]
    labels: np.ndarray
    target_names: tuple[str, ...]
    class_names: tuple[str, ...]
    parts: dict[str, np.ndarray]

    @classmethod
    def of_classes(
        cls, parts: Mapping[str, Labeled], target: str, class_names: Sequence[str] = (), min_members: int = 1
    ) -> Self:
        """Create documents with one class per row.

        Args:
            parts: Rows of each split.
            target: Name of the target, such as `topic`.
            class_names: Names of the classes, in order; by default the sorted classes of the rows.
            min_members: Minimum number of rows per class over all splits; rows of smaller classes lose their
                label.
        """
        for split, labeled in parts.items():
            if not labeled.texts:
                raise MolsliceError(f"{labeled.source} has no rows for the split {split!r}")
        words = [word for labeled in parts.values() for word in labeled.classes]
        counts = Counter(filter(None, words))
        frequent = sorted(word for word, count in counts.items() if count >= min_members)
        names = tuple(class_names) or tuple(frequent)
        if not names:
            where = ", ".join(str(labeled.source) for labeled in parts.values())
            raise MolsliceError(f"{where}: no {target} has {min_members} rows or more")
        number = {name: place for place, name in enumerate(names)}
        for labeled in parts.values() if class_names else ():
            for row, word in enumerate(labeled.classes):
                if word and word not in number:
                    hint = near_names(word, names)
                    place = place_of(labeled.source, row + 1)
                    raise MolsliceError(f"{place}: unknown {target} {word!r}; {hint}")
        labels = np.array([number.get(word, np.nan) for word in words], np.float32)[:, None]
        texts = [text for labeled in parts.values() for text in labeled.texts]
        return cls(
            texts, labels, (target,), names, consecutive_rows({k: len(p.texts) for k, p in parts.items()})
        )


def read_class_folders(
    folder: Path, names: Sequence[str] = (), *, pattern: str = "*", encoding: str = "utf-8"
) -> Labeled:
    """Read one folder per class and one file per text, both sorted by name.

    A file in another encoding is read as Latin-1, in which every byte is a character; BBC News has a few such
    files. Hidden files and folders are skipped.

    Args:
        folder: Parent of the folders.
        names: Folders to read; by default all.
        pattern: File name pattern.
        encoding: Usual encoding of the files.
    """
    try:
        folders = [folder / name for name in names] or _visible(folder.iterdir())
        texts, classes = [], []
        for place in folders:
            if not place.is_dir() and not names:
                continue  # such as a README
            files = [file for file in _visible(place.glob(pattern)) if file.is_file()]
            if not files:
                raise MolsliceError(f"{place} has no files {pattern}")
            texts += [_decode(file.read_bytes(), encoding) for file in files]
            classes += [place.name] * len(files)
    except OSError as error:
        raise MolsliceError(f"cannot read {error.filename or folder}: {error.strerror}") from error
    if not texts:
        raise MolsliceError(f"{folder} has no class folders")
    return Labeled(folder, texts, classes)


def _visible(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if not path.name.startswith("."))


def _decode(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return data.decode("latin-1")
