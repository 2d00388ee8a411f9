"""A user's own texts: a table with a column of text and one or more columns of labels."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from molslice.data.splits import consecutive_rows
from molslice.data.text.base import TextDataset, describe_classes
from molslice.data.text.documents import Documents, Labeled
from molslice.files.records import Records, read_records
from molslice.files.tables import labels
from molslice.types import DataSpec, MolsliceError


class TextColumns:
    """The columns of a table of texts; the arguments are options of `TextTable`."""

    def __init__(
        self,
        text_column: str,
        label_columns: str | Sequence[str],
        separator: str | None = None,
        max_labels: int | None = None,
    ) -> None:
        columns = (label_columns,) if isinstance(label_columns, str) else tuple(label_columns)
        if not columns or not all(isinstance(column, str) for column in columns):
            raise MolsliceError(f"label_columns must name at least one column, got {label_columns!r}")
        if len({text_column, *columns}) <= len(columns):
            raise MolsliceError(
                f"label_columns must differ from each other and from {text_column!r}: {', '.join(columns)}"
            )
        if separator is not None and (not separator or len(columns) > 1):
            raise MolsliceError(
                f"separator can be used with one label column only, got {separator!r} and {len(columns)} "
                "columns"
            )
        if max_labels is not None and (separator is None or type(max_labels) is not int or max_labels < 1):
            raise MolsliceError(
                f"max_labels must be a positive integer and needs separator, got {max_labels!r}"
            )
        self.text, self.separator, self.max_labels = text_column, separator, max_labels
        self.labels: tuple[str, ...] = columns

    def read(self, files: Mapping[str, Path]) -> Documents:
        """Read the file of each split."""
        tables = {split: read_records(path, (self.text, *self.labels)) for split, path in files.items()}
        texts = {split: table.texts(self.text) for split, table in tables.items()}
        column = self.labels[0]
        if len(self.labels) == 1 and self.separator is None:
            parts = {
                split: Labeled(files[split], texts[split], [cell.strip() for cell in table.texts(column)])
                for split, table in tables.items()
            }
            return Documents.of_classes(parts, column)
        names = self.labels
        if self.separator is None:
            answers = np.concatenate([self._yes_or_no(table) for table in tables.values()])
        else:
            lists = [names for table in tables.values() for names in self._lists(table)]
            counts = Counter(name for names in lists for name in names)
            names = tuple(sorted(sorted(counts, key=lambda name: (-counts[name], name))[: self.max_labels]))
            if not names:
                raise MolsliceError(f"the column {column!r} of {files['train']} has no label in any row")
            answers = np.array([[name in row for name in names] for row in lists], np.float32)
        together = [text for rows in texts.values() for text in rows]
        rows = consecutive_rows({split: len(rows) for split, rows in texts.items()})
        return Documents(together, answers, names, (), rows)

    def _yes_or_no(self, table: Records) -> np.ndarray:
        return np.stack([labels(table.texts(c), c, table.where) for c in self.labels], axis=1)

    def _lists(self, table: Records) -> list[set[str]]:
        """Split the cells into the labels of each row."""
        column, lists = self.labels[0], []
        for row, cell in enumerate(table.columns[column]):
            names = cell if isinstance(cell, list) else table.text_of(cell, row, column).split(self.separator)
            lists.append({table.text_of(name, row, column).strip() for name in names} - {""})
        return lists


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
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.source, given = str(path), {"train": path, "valid": valid_path, "test": test_path}
        self.files = {split: Path(file) for split, file in given.items() if file is not None}
        self.columns = TextColumns(text_column, label_columns, separator, max_labels)
        super().__init__(**options)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Derive the number of outputs from several label columns; None for a single one."""
        columns = options.get("label_columns", "label")
        several = not isinstance(columns, str) and len(columns) > 1
        return describe_classes(len(columns), options) if several else None

    def read(self) -> Documents:
        """Read all files, one after the other."""
        return self.columns.read(self.files)
