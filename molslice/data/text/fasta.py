"""Protein domains from a FASTA file with SCOPe classes in the headers."""

import os
import re
from pathlib import Path

import numpy as np

from molslice.data.sequences import Sequences
from molslice.data.text.base import TextDataset, text_division
from molslice.data.text.documents import Documents, Labeled
from molslice.data.text.tokenizing import DEFAULT_MAX_TOKENS
from molslice.files.lines import read_lines
from molslice.registry import check_choice
from molslice.types import MolsliceError

LEVELS = ("class", "fold", "superfamily", "family")  # the parts of a sccs such as a.1.1.2
SCCS = re.compile(r"[a-z]\.\d+\.\d+\.\d+")
VOCABULARY = 27  # padding and the letters
VOCABULARY_NAME = "residues-A-to-Z"


class Fasta(TextDataset):
    """Amino acid sequences of SCOPe domains from a FASTA file, one token per residue (A to Z as 1 to 26).

    A header is `>sid sccs description`, as in ASTRAL: `>d1ux8a_ a.1.1.1 (A:) ...` (Fox, Brenner and Chandonia
    2014; https://scop.berkeley.edu/astral). A sequence with a character other than a letter keeps its row,
    with the reason; a final `*` is allowed.

    Args:
        path: The file, plain or gzip; the training file if `test_path` is given.
        test_path: A file in the same format to test on.
        level: Level to predict: `class` (a), `fold` (a.1), `superfamily` (a.1.1) or `family` (a.1.1.2).
        min_members: Minimum number of rows per class; rows of smaller classes lose their label. The
            Singularformer paper uses 2.
        max_tokens: Maximum number of residues; longer sequences are truncated.
    """

    row_name = "proteins"
    instructions = "Download sequences with SCOPe classes from https://scop.berkeley.edu/astral"

    def __init__(
        self,
        *,
        path: str | os.PathLike[str],
        test_path: str | os.PathLike[str] | None = None,
        level: str = "fold",
        min_members: int = 1,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        valid_fraction: float = 0.1,
        test_fraction: float | None = None,
        seed: int = 0,
        folds: int | None = None,
        fold: int | None = None,
        fold_over: str = "all",
    ) -> None:
        self.source = str(path)
        check_choice("level", level, LEVELS)
        for name, value in (("min_members", min_members), ("max_tokens", max_tokens)):
            if type(value) is not int or value < 1:
                raise MolsliceError(f"{name} must be at least 1, got {value!r}")
        self.level, self.min_members = level, min_members
        given = {"train": path, "test": test_path}
        self.files = {split: Path(file) for split, file in given.items() if file is not None}
        division = text_division(valid_fraction, test_fraction, seed, folds, fold, fold_over)
        sequences = self._take(self.read(), division, test_fraction)
        rows = [self._residues(row, text)[:max_tokens] for row, text in enumerate(sequences)]
        self._fill(Sequences.pack(rows, np.uint8), VOCABULARY, max_tokens, VOCABULARY_NAME, "residues")

    def read(self) -> Documents:
        """Read all files, one after the other."""
        depth = LEVELS.index(self.level) + 1
        parts = {split: _read_fasta(path, depth) for split, path in self.files.items()}
        return Documents.of_classes(parts, self.level, min_members=self.min_members)

    def _residues(self, row: int, text: str) -> np.ndarray:
        """Convert A to Z to 1 to 26; empty for a sequence with any other character."""
        letters = text.removesuffix("*")
        wrong = re.search(r"[^A-Za-z]", letters)
        if wrong:
            self._errors[row] = f"invalid residue {wrong.group()!r} at position {wrong.start()} (from 0)"
            return np.empty(0, np.uint8)
        return np.frombuffer(letters.upper().encode(), np.uint8) - np.uint8(ord("A") - 1)


def _read_fasta(path: Path, depth: int) -> Labeled:
    texts: list[str] = []
    classes: list[str] = []
    parts: list[str] = []  # lines of the current sequence
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith(">"):
            if classes:
                texts.append("".join(parts))
            parts = []
            words = line[1:].split(maxsplit=2)
            if len(words) < 2 or not SCCS.fullmatch(words[1]):
                raise MolsliceError(
                    f"{path}, line {number}: expected `>sid sccs`, sccs like a.1.1.1, got {line[:60]!r}"
                )
            classes.append(".".join(words[1].split(".")[:depth]))
        elif line.strip():
            if not classes:
                raise MolsliceError(f"{path}, line {number}: sequence before the first header: {line[:40]!r}")
            parts.append("".join(line.split()))
    if not classes:
        raise MolsliceError(f"{path} has no sequence header")
    texts.append("".join(parts))
    return Labeled(path, texts, classes)
