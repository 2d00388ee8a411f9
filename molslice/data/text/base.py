"""The base class of data sets of texts, with the same splits and tokens for all formats."""

import os
from abc import abstractmethod
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from molslice.data.sequences import SequenceDataset, Sequences, keep_arrays
from molslice.data.splits import DEFAULT_FRACTIONS, Division
from molslice.data.text.documents import Documents, Labeled, read_class_folders
from molslice.data.text.tokenizing import (
    DEFAULT_MAX_TOKENS,
    DEFAULT_TOKENS,
    Tokenizing,
    fingerprint,
    tokenize,
)
from molslice.files import cache
from molslice.files.hub import download_folder
from molslice.files.records import Records, read_records
from molslice.files.tables import Unreadable
from molslice.types import DataSpec, MolsliceError

FORMAT = "molslice-texts-1"
TRAIN_TEST = ("train", "test")


class TextDataset(SequenceDataset):
    """Texts with one class each, or with several binary labels. A subclass reads its format.

    A text without tokens keeps its row, with the reason in `errors`.

    Args:
        tokens: `words`, `bytes` or `subwords`; see `Tokenizing`.
        vocabulary_size: Rows of the embedding table; by default 16,000 for words and subwords, 257 for bytes.
        max_tokens: Maximum number of tokens per text; longer texts are truncated.
        lower: Whether to convert to lower case; by default only for words.
        valid_fraction: Fraction of the training rows for the split `valid`, if the source has none.
        test_fraction: Fraction of all rows for the split `test`, if the source has no test rows.
        seed: Seed of these draws.
        folds: Number of folds K of a cross-validation.
        fold: Number of the test fold, 0 to K - 1.
        fold_over: `all` makes folds of all rows, `train` of the rows outside the source's test split.
        cache_dir: Folder for the token ids; by default the user's cache.

    Attributes:
        target: Name of the target, such as `topic`.
        class_names: Names of the classes, if they are fixed for the format; otherwise set from the files.
    """

    row_name = "texts"
    target: ClassVar[str] = "class"

    def __init__(
        self,
        *,
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
        how = Tokenizing(tokens, vocabulary_size, max_tokens, lower)
        division = text_division(valid_fraction, test_fraction, seed, folds, fold, fold_over)
        texts = self._take(self.read(), division, test_fraction)
        training = self.splits["train"]
        identity = {
            "format": FORMAT,
            "texts": _checksum(texts),
            "training": sha256(training.tobytes()).hexdigest() if how.is_learned else None,
            "tokens": how.tokens,
            "vocabulary_size": how.size,
            "max_tokens": how.max_tokens,
            "lower": how.lowers,
        }
        folders = cache.cache_folders(cache_dir)
        arrays = keep_arrays(folders, identity, lambda: tokenize(texts, training, how))
        sequences = Sequences(arrays["values"], arrays["offsets"])
        vocabulary = fingerprint(arrays["vocabulary"], how)
        self._fill(sequences, how.size, how.max_tokens, vocabulary, how.tokens)

    @abstractmethod
    def read(self) -> Documents:
        """Read the rows from the files."""

    def _take(self, documents: Documents, division: Division, test_fraction: float | None) -> list[str]:
        """Set labels, names and splits. Return the texts, empty for unreadable rows."""
        self.target_names = documents.target_names
        self.target_units = ("",) * len(self.target_names)
        self.class_names = documents.class_names
        self.kind = "multiclass" if self.class_names else "classification"
        self.labels = documents.labels
        if test_fraction is not None and "test" in documents.parts:
            raise MolsliceError(f"test_fraction cannot be used: {self.source} has its own test split")
        # rows with several labels cannot be stratified by class
        strata = self.labels[:, 0] if self.class_names else np.zeros(len(self.labels))
        self.splits = division.divide(documents.parts, self.source, strata=strata)
        self._errors: dict[int, str] = {}
        texts = list(documents.texts)
        for row, text in enumerate(texts):
            reason = text.reason if isinstance(text, Unreadable) else _fault(text)
            if reason:
                self._errors[row], texts[row] = reason, ""
        return texts

    def _fill(self, sequences: Sequences, size: int, max_tokens: int, vocabulary: str, tokens: str) -> None:
        self.sequences = sequences
        for row in np.flatnonzero(sequences.lengths == 0).tolist():
            self._errors.setdefault(row, f"it has no {tokens}")
        if len(self._errors) == len(sequences):
            row, reason = next(iter(self._errors.items()))
            what = f"cannot read any of the {len(sequences)} {self.row_name} of {self.source}"
            raise MolsliceError(f"{what}; {self.where(row)}: {reason}")
        outputs = len(self.class_names) or len(self.target_names)
        self._spec = DataSpec(outputs, "ids", size, max_tokens=max_tokens, vocabulary=vocabulary)


class FolderTexts(TextDataset):
    """Texts with one class each in a folder.

    Args:
        root: Folder of the data.
    """

    def __init__(self, *, root: str | os.PathLike[str], **options: Any) -> None:  # noqa: ANN401
        self.root, self.source = Path(root), str(root)
        super().__init__(**options)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Derive the spec without the fingerprint, if the classes are fixed."""
        return describe_classes(len(cls.class_names), options) if cls.class_names else None

    def missing(self, looked_for: str) -> MolsliceError:
        """Create the error for a folder without some names, which are joined with `nor`."""
        what = (
            f"{self.root} has neither {looked_for}" if self.root.is_dir() else f"no such folder: {self.root}"
        )
        return MolsliceError(f"{what}. {self.advice()}")


class SplitTexts(FolderTexts):
    """Texts with fixed classes in a folder with files for train and test. The options are `TextDataset`'s.

    The files of a split are a folder with one folder per class, or tables with the columns `text` and
    `label`.

    Attributes:
        names: Names of the files or the folder of a split, in order of preference, with `{split}` for its
            name. They may be patterns. A folder ends with `/`, and a file may have the ending `.gz` too.
        folders: Arguments of `read_class_folders`.
    """

    names: ClassVar[tuple[str, ...]]
    folders: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def find(cls, root: Path, split: str) -> list[Path]:
        """Find the files or the folder of a split; empty if it is missing."""
        names = [name.format(split=split) for name in cls.names]
        choices = (sorted(root.glob(choice)) for name in names for choice in (name, f"{name}.gz"))
        return next(filter(None, choices), [])

    @classmethod
    @abstractmethod
    def fetch(cls, root: Path) -> None:
        """Download both splits into a folder, which exists."""

    def read(self) -> Documents:
        """Read both splits."""
        parts = {}
        for split in TRAIN_TEST:
            paths = self.find(self.root, split)
            if not paths:
                *names, last = (name.format(split=split) for name in self.names)
                raise self.missing(f"{', '.join(names)} nor {last}, with or without .gz")
            parts[split] = self.read_split(paths)
        return Documents.of_classes(parts, self.target, self.class_names)

    def read_split(self, paths: list[Path]) -> Labeled:
        """Read a split from its files or its folder."""
        if paths[0].is_dir():
            return read_class_folders(paths[0], **self.folders)
        tables = [read_records(path, ("text", "label")) for path in paths]
        texts = [text for table in tables for text in table.texts("text")]
        return Labeled(paths[0], texts, [name for table in tables for name in self.classes_of(table)])

    def classes_of(self, table: Records) -> list[str]:
        """Return the name of the class of each row of a table."""
        return table.texts("label")

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Download both splits into `root`, unless they exist."""
        root = download_folder(options)
        if not all(cls.find(root, split) for split in TRAIN_TEST):
            cls.fetch(root)


def text_division(
    valid_fraction: float,
    test_fraction: float | None,
    seed: int,
    folds: int | None,
    fold: int | None,
    fold_over: str,
) -> Division:
    """Create the division from the options of `TextDataset`, under the same names."""
    if folds is not None and test_fraction is not None:
        raise MolsliceError("test_fraction cannot be used with folds: a fold is the test split")
    test = DEFAULT_FRACTIONS["test"] if test_fraction is None else test_fraction
    return Division({"valid": valid_fraction, "test": test}, seed, folds, fold, fold_over)


def describe_classes(outputs: int, options: Mapping[str, Any]) -> DataSpec:
    """Derive the spec from the number of outputs and the options, without a fingerprint."""
    how = Tokenizing.of_options(options)
    return DataSpec(outputs, "ids", how.size, max_tokens=how.max_tokens)


def _fault(text: str) -> str:
    """Return the reason why a text is unreadable; empty for a readable text."""
    if not text.strip():
        return "no text"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"character {error.start} is an unpaired surrogate"
    return ""


def _checksum(texts: list[str]) -> str:
    """Compute the SHA-256 of the texts and their lengths, independent of the file format."""
    total = sha256()
    for text in texts:
        data = text.encode()
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()
