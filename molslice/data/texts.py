"""Data sets of texts: read, divided and turned into numbers in one way for all formats."""

import os
from abc import abstractmethod
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from molslice.data import prepare
from molslice.data.documents import Documents
from molslice.data.folds import Division
from molslice.data.sequences import SequenceDataset, Sequences, keep_arrays
from molslice.data.tokenizing import DEFAULT_MAX_TOKENS, DEFAULT_TOKENS, Tokenizing, fingerprint, tokenize
from molslice.types import DataSpec, MolsliceError

FORMAT = "molslice-texts-1"


class TextDataset(SequenceDataset):
    """Texts with one class each, or with several yes or no; a subclass reads its format.

    A text without a token keeps its row, with the reason in `errors`.

    Args:
        root: the folder of the data.
        tokens: `words`, `bytes` or `subwords`; see `Tokenizing` for this and the next three.
        vocabulary_size: rows of the model's table: 16,000 of words and subwords, 257 of bytes.
        max_tokens: a longer text is cut at its end.
        lower: all in lower case; by default words are.
        valid_fraction: share of the training rows that validates; see `Division` for this and the rest.
        test_fraction: share of all rows that tests, where the source names no test rows.
        seed: of the division.
        folds: K of a K-fold cross-validation.
        fold: which of the K folds tests, from 0.
        fold_over: folds of `all` rows, or of `train`, without the source's test rows.
        cache_dir: where the numbers are kept, by default the user's cache.

    Raises:
        MolsliceError: whatever is wrong with the options or the files.

    Attributes:
        target: what the classes are classes of.
        class_names: the classes where a format always has the same, else set when the data are read.
    """

    noun = "texts"
    target: ClassVar[str] = "class"

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
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
        self.source = str(root)
        how = Tokenizing(tokens, vocabulary_size, max_tokens, lower)
        division = Division(valid_fraction, test_fraction, seed, folds, fold, fold_over)
        texts = self._take(self.read(Path(root)), division)
        self._tokenize(texts, how, cache_dir)

    @abstractmethod
    def read(self, root: Path) -> Documents:
        """The rows of the format.

        Raises:
            MolsliceError: a file that is missing, or damaged.
        """

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Everything but the fingerprint, where the classes are known."""
        return describe_classes(len(cls.class_names), options) if cls.class_names else None

    @classmethod
    def missing(cls, root: Path, looked_for: str) -> MolsliceError:
        """What to raise where the data are not there."""
        what = f"{root} holds neither {looked_for}" if root.is_dir() else f"no such folder: {root}"
        return MolsliceError(f"{what}. {cls.advice()}")

    def _take(self, documents: Documents, division: Division) -> list[str]:
        """Labels, names and splits; gives back the texts, those that cannot be read empty."""
        self.target_names = documents.target_names
        self.target_units = ("",) * len(self.target_names)
        self.class_names = documents.class_names
        self.kind = "multiclass" if self.class_names else "classification"
        self.labels = documents.labels
        # several labels hold together: no classes that a part could have its share of
        strata = self.labels[:, 0] if self.class_names else np.zeros(len(self.labels))
        self.splits = division.divide(documents.parts, strata)
        self._errors: dict[int, str] = {}
        texts = list(documents.texts)
        for row, text in enumerate(texts):
            reason = _fault(text)
            if reason:
                self._errors[row], texts[row] = reason, ""
        return texts

    def _tokenize(
        self, texts: list[str], how: Tokenizing, cache_dir: str | os.PathLike[str] | None = None
    ) -> None:
        """Set the sequences and the spec, from the arrays that an earlier call kept if there are any."""
        training = self.splits["train"]
        arrays = keep_arrays(
            prepare.cache_folders(cache_dir),
            {
                "format": FORMAT,
                "texts": _checksum(texts),
                "training": sha256(training.tobytes()).hexdigest() if how.is_learned else None,
                "tokens": how.tokens,
                "vocabulary_size": how.size,
                "max_tokens": how.max_tokens,
                "lower": how.lowers,
            },
            lambda: tokenize(texts, training, how),
        )
        vocabulary = fingerprint(arrays["vocabulary"], how)
        self._fill(
            Sequences(arrays["values"], arrays["offsets"]), how.size, how.max_tokens, vocabulary, how.tokens
        )

    def _fill(self, sequences: Sequences, size: int, max_tokens: int, vocabulary: str, tokens: str) -> None:
        self.sequences = sequences
        for row in np.flatnonzero(sequences.lengths == 0).tolist():
            self._errors.setdefault(row, f"no {tokens} in it")
        if len(self._errors) == len(sequences):
            row, reason = next(iter(self._errors.items()))
            raise MolsliceError(
                f"none of the {len(sequences)} {self.noun} of {self.source} can be read; row {row}: {reason}"
            )
        outputs = len(self.class_names) or len(self.target_names)
        self._spec = DataSpec(outputs, "ids", size, max_tokens=max_tokens, vocabulary=vocabulary)


def describe_classes(outputs: int, options: Mapping[str, Any]) -> DataSpec:
    """The spec of so many outputs that a data set's options tell, without a fingerprint."""
    how = Tokenizing.of_options(options)
    return DataSpec(outputs, "ids", how.size, max_tokens=how.max_tokens)


def _fault(text: str) -> str:
    """Why a text cannot be read; empty where it can."""
    if not text.strip():
        return "no text"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"character {error.start} is half of a surrogate pair"
    return ""


def _checksum(texts: list[str]) -> str:
    """SHA-256 of the texts, whichever format they came in; their bounds count too."""
    total = sha256()
    for text in texts:
        data = text.encode()
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()
