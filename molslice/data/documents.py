"""Rows of text with their labels, as a source has them: what the readers of the formats return."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from molslice.registry import near_names
from molslice.types import MolsliceError

__all__ = ["Documents", "Labeled", "read_class_folders", "rows_of"]


class Labeled(NamedTuple):
    """The rows of one split: their texts, the name of each one's class (empty: unknown), and the place."""

    source: Path
    texts: list[str]
    classes: list[str]


@dataclass(frozen=True, slots=True)
class Documents:
    """All rows of a source.

    `labels` are [rows, T], NaN where missing: the number of one of `class_names`, or, where these are empty,
    0 or 1 of each of the targets. `parts` holds the rows of each split that the source names.
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
        """Rows of which each has one class.

        Args:
            parts: the rows by split.
            target: what the classes are classes of.
            class_names: in their order; by default those that are found, in the order of the alphabet.
            min_members: rows of a class with fewer of them, over all splits, lose their label.

        Raises:
            MolsliceError: a split without rows, a class that is none of `class_names`, or no class at all.
        """
        for split, part in parts.items():
            if not part.texts:
                raise MolsliceError(f"{part.source}, which is to be the split {split!r}, has no rows")
        words = [word for part in parts.values() for word in part.classes]
        names = tuple(class_names) or tuple(_found(words, min_members))
        if not names:
            where = ", ".join(str(part.source) for part in parts.values())
            raise MolsliceError(f"{where}: no {target} has {min_members} rows or more")
        number = {name: place for place, name in enumerate(names)}
        for part in parts.values() if class_names else ():
            for row, word in enumerate(part.classes):
                if word and word not in number:
                    hint = near_names(word, names)
                    raise MolsliceError(
                        f"{part.source}, row {row} (counted from 0): unknown {target} {word!r}; {hint}"
                    )
        labels = np.array([number.get(word, np.nan) for word in words], np.float32)[:, None]
        texts = [text for part in parts.values() for text in part.texts]
        return cls(texts, labels, (target,), names, rows_of({k: len(p.texts) for k, p in parts.items()}))


def _found(words: Sequence[str], min_members: int) -> list[str]:
    names, counts = np.unique([word for word in words if word], return_counts=True)
    return [str(name) for name, count in zip(names, counts, strict=True) if count >= min_members]


def rows_of(sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The rows of each split where they stand one split after the other."""
    bounds = np.cumsum([0, *sizes.values()])
    return {
        name: np.arange(start, stop, dtype=np.int64)
        for name, start, stop in zip(sizes, bounds[:-1], bounds[1:], strict=True)
    }


def read_class_folders(
    folder: Path, names: Sequence[str] = (), *, pattern: str = "*", encoding: str = "utf-8"
) -> Labeled:
    """One folder for each class, one file for each text, both in the order of their names.

    A file that is not of the encoding is read as Latin-1, in which every byte is a character: BBC News and
    others have single files of that kind. Hidden files and folders are left out.

    Args:
        folder: what holds the folders.
        names: the folders to read; by default all.
        pattern: which of their files.
        encoding: of the files.

    Raises:
        MolsliceError: a folder that is missing, cannot be read, or holds no such file.
    """
    try:
        found = [folder / name for name in names] or _visible(folder.iterdir())
        texts, classes = [], []
        for place in found:
            if not place.is_dir() and not names:
                continue  # a README beside the folders
            files = [file for file in _visible(place.glob(pattern)) if file.is_file()]
            if not files:
                raise MolsliceError(f"{place} holds no file {pattern}")
            texts += [_decode(file.read_bytes(), encoding) for file in files]
            classes += [place.name] * len(files)
    except OSError as error:
        raise MolsliceError(f"{error.filename or folder}: {error.strerror}") from error
    if not texts:
        raise MolsliceError(f"{folder} holds no folder of a class")
    return Labeled(folder, texts, classes)


def _visible(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if not path.name.startswith("."))


def _decode(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return data.decode("latin-1")
