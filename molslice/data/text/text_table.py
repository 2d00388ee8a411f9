"""A user's own texts: a table with a column of text and one or more columns of labels."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from molslice.data.splits import consecutive_rows
from molslice.data.text.base import TextDataset, describe_classes, text_division
from molslice.data.text.documents import Documents, Labeled
from molslice.data.text.tokenizing import DEFAULT_MAX_TOKENS, DEFAULT_TOKENS, Tokenizing
from molslice.files.records import Records, read_records
from molslice.files.tables import labels
from molslice.types import DataSpec, MolsliceError


class TextTable(TextDataset):
    """Texts from `.csv`, `.tsv`, `.jsonl` (each also with `.gz`) or `.parquet`.

    A single label column contains the class of each row. With a `separator`, its cells have any number of
    labels (in JSON lines and Parquet also as a list), and each label is a binary target. Several label
    columns are binary targets, 0 or 1, missing if a cell is empty.

    Args:
        path: The file; the training file if `valid_path` or `test_path` is given.
        text_column: Name of the column of texts.
        label_columns: Name or names of the columns of labels.
        separator: Separator between the labels of a cell.
        max_labels: Maximum number of labels with a separator: the most frequent over all files, ties in
            alphabetical order.
        valid_path: A file with the same columns to validate on.
        test_path: A file with the same columns to test on.

    Raises:
        MolsliceError: An option or a file is invalid. The message names file, row, column and value.
    """

    def __init__(
        self,
        *,
        path: str | os.PathLike[str],
        text_column: str = "text",
        label_columns: str | Sequence[str] = "label",
        separator: str | None = None,
        max_labels: int | None = None,
        valid_path: str | os.PathLike[str] | None = None,
        test_path: str | os.PathLike[str] | None = None,
        tokens: str = DEFAULT_TOKENS,
        vocabulary_size: int | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        lower: bool | None = None,
        valid_fraction: float = 0.1,
        test_fraction: float | None = None,
        seed: int = 0,
        folds: int | None = None,
        fold: int | None = None,
        fold_over: str = "all",
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.source, self.text_column = str(path), text_column
        self.label_columns: tuple[str, ...] = _checked_columns(label_columns, text_column)
        self.separator, self.max_labels = _checked_separator(separator, max_labels, self.label_columns)
        how = Tokenizing(tokens, vocabulary_size, max_tokens, lower)
        division = text_division(valid_fraction, test_fraction, seed, folds, fold, fold_over)
        given = {"train": path, "valid": valid_path, "test": test_path}
        self.files = {split: Path(file) for split, file in given.items() if file is not None}
        texts = self._take(self.read(Path(path)), division, test_fraction)
        self._tokenize(texts, how, cache_dir)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Derive the number of outputs from several label columns; None for a single one."""
        columns = options.get("label_columns", "label")
        several = not isinstance(columns, str) and len(columns) > 1
        return describe_classes(len(columns), options) if several else None

    def read(self, root: Path) -> Documents:  # noqa: ARG002 - the files are attributes
        """Read all files, one after the other."""
        columns = (self.text_column, *self.label_columns)
        tables = {split: read_records(path, columns) for split, path in self.files.items()}
        texts = {split: table.texts(self.text_column) for split, table in tables.items()}
        column, *others = self.label_columns
        if others:
            answers = np.concatenate([self._yes_or_no(table) for table in tables.values()])
            return self._documents(texts, answers, self.label_columns)
        if self.separator is None:
            return Documents.of_classes(
                {
                    split: Labeled(self.files[split], texts[split], [c.strip() for c in table.texts(column)])
                    for split, table in tables.items()
                },
                column,
            )
        lists = [names for table in tables.values() for names in self._lists(table)]
        counts = Counter(name for names in lists for name in names)
        frequent = sorted(counts, key=lambda name: (-counts[name], name))[: self.max_labels]
        if not frequent:
            raise MolsliceError(f"the column {column!r} of {self.source} has no label in any row")
        names = tuple(sorted(frequent))
        answers = np.array([[name in row for name in names] for row in lists], np.float32)
        return self._documents(texts, answers, names)

    def _documents(
        self, texts: dict[str, list[str]], labels: np.ndarray, names: tuple[str, ...]
    ) -> Documents:
        together = [text for rows in texts.values() for text in rows]
        return Documents(
            together, labels, names, (), consecutive_rows({k: len(rows) for k, rows in texts.items()})
        )

    def _yes_or_no(self, table: Records) -> np.ndarray:
        return np.stack([labels(table.texts(c), c, table.where) for c in self.label_columns], axis=1)

    def _lists(self, table: Records) -> list[set[str]]:
        """Split the cells into the labels of each row."""
        column, lists = self.label_columns[0], []
        for row, cell in enumerate(table.columns[column]):
            names = cell if isinstance(cell, list) else table.text_of(cell, row, column).split(self.separator)
            lists.append({table.text_of(name, row, column).strip() for name in names} - {""})
        return lists


def _checked_columns(label_columns: str | Sequence[str], text_column: str) -> tuple[str, ...]:
    columns = (label_columns,) if isinstance(label_columns, str) else tuple(label_columns)
    if not columns or not all(isinstance(column, str) for column in columns):
        raise MolsliceError(f"label_columns must name at least one column, got {label_columns!r}")
    if len({text_column, *columns}) <= len(columns):
        raise MolsliceError(
            f"label_columns must differ from each other and from {text_column!r}: {', '.join(columns)}"
        )
    return columns


def _checked_separator(
    separator: str | None, max_labels: int | None, columns: tuple[str, ...]
) -> tuple[str | None, int | None]:
    if separator is not None and (not separator or len(columns) > 1):
        raise MolsliceError(
            f"separator can be used with one label column only, got {separator!r} and {len(columns)} columns"
        )
    if max_labels is not None and (separator is None or type(max_labels) is not int or max_labels < 1):
        raise MolsliceError(f"max_labels must be a positive integer and needs separator, got {max_labels!r}")
    return separator, max_labels
