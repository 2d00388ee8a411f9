"""Text for language models: WikiText in the formats in which people have it, or any plain text."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from molslice.data.base import Dataset
from molslice.data.lexicon import BYTES, Lexicon, Line, check_kind
from molslice.data.prepare import cache_folders, file_checksum
from molslice.data.sequences import checked_rows, keep_arrays
from molslice.data.wikitext_files import BY_HAND, download_wikitext, find_texts, read_text
from molslice.types import DataSpec, MolsliceError, SequenceBatch

DEFAULT_LENGTH = 512
HELD_OUT = 0.1  # of the lines of a training text without one to validate on
SPLITS = ("train", "valid", "test")
LEAST_VOCABULARY = 3  # unknown, the end of a line, and something to say


class Wikitext(Dataset):
    """Windows of a text, of which every token but the first of the text is predicted once.

    A row is `length` tokens (the last one of a text fewer) and the token after each of them, which a batch
    holds as `pair_tokens`; so a window begins with one token of context. `targets` is the number of predicted
    tokens.

    Args:
        root: a folder with `wiki.train.tokens`, `wiki.valid.tokens` and `wiki.test.tokens`, or `.raw`, also
            with `.gz`, or with Parquet files (`train*.parquet`, `valid*.parquet`, `test*.parquet`) that have
            a column `text`, one line a row.
        train_path: a text to train on, in the place of the one in `root`: UTF-8, also with gzip, or Parquet.
        valid_path: one to validate on. Where there is none, the last tenth of the lines of the text to train
            on are held out.
        test_path: one to test on; there may be none.
        tokens: `words`, what stands between white space, and `<eos>` at the end of each line, as WikiText
            counts; `characters`; or `bytes`. In a folder that has both, words come from `.tokens`, the
            others from `.raw`.
        vocabulary_size: rows of the model's table, `<unk>` and the end of a line among them: the most
            frequent tokens of the text to train on, all others being `<unk>`. Where it has fewer, the last
            rows are never looked up. By default as many as it has.
        length: of a window.
        version: the WikiText that `molslice prepare --download` fetches, `2` or `103`.
        cache_dir: where the text as numbers is kept, by default the user's cache.

    Raises:
        MolsliceError: whatever is wrong with the options or the files.

    Source: Merity et al. 2016, arXiv 1609.07843; windows and their context as fairseq cuts them with
    `--sample-break-mode none`.
    """

    kind = "tokens"
    target_names = ("next_token",)
    target_units = ("",)
    noun = "windows"
    how_to_get = BY_HAND

    def __init__(
        self,
        *,
        root: str | os.PathLike[str] | None = None,
        train_path: str | os.PathLike[str] | None = None,
        valid_path: str | os.PathLike[str] | None = None,
        test_path: str | os.PathLike[str] | None = None,
        tokens: str = "words",
        vocabulary_size: int | None = None,
        length: int = DEFAULT_LENGTH,
        version: int = 103,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        _check_options(tokens, vocabulary_size, length)
        given = {"train": train_path, "valid": valid_path, "test": test_path}
        paths = {split: Path(path) for split, path in given.items() if path is not None}
        texts = find_texts(None if root is None else Path(root), paths, tokens, version)
        self.source = str(root if train_path is None else train_path)
        self.length = length
        arrays = self._prepare(texts, tokens, vocabulary_size, cache_dir)
        self.text = arrays["text"]
        self.lexicon = Lexicon(tokens, tuple(json.loads(arrays["entries"].tobytes())))
        self.vocabulary_size = vocabulary_size or len(self.lexicon)
        self._cut(dict(zip(SPLITS, arrays["lengths"].tolist(), strict=True)))

    def _prepare(
        self,
        texts: Mapping[str, Sequence[Path]],
        tokens: str,
        vocabulary_size: int | None,
        cache_dir: str | os.PathLike[str] | None,
    ) -> dict[str, np.ndarray]:
        """The splits end to end as numbers, how long each is, and the entries of the lexicon as JSON."""

        def build() -> dict[str, np.ndarray]:
            def lines(split: str, doing: str) -> Iterator[Line]:
                shown = {"unit": " lines", "unit_scale": True, "delay": 2, "disable": None, "leave": False}
                return iter(tqdm(_lines_of(split, texts, tokens), doing, file=sys.stderr, **shown))

            lexicon = Lexicon.of_text(tokens, lines("train", "counting tokens"), vocabulary_size)
            parts = [lexicon.encode_lines(lines(split, f"reading {split}")) for split in SPLITS]
            return {
                "text": np.concatenate(parts),
                "lengths": np.array([len(part) for part in parts]),
                "entries": np.frombuffer(json.dumps(lexicon.entries).encode(), np.uint8),
            }

        identity = {
            "format": "wikitext",
            "sha256": {split: [file_checksum(path) for path in paths] for split, paths in texts.items()},
            "tokens": tokens,
            "vocabulary_size": vocabulary_size,
        }
        return keep_arrays(cache_folders(cache_dir), identity, build)

    def _cut(self, sizes: Mapping[str, int]) -> None:
        """Where the windows begin in `text`, how long they are, and whose they are."""
        starts, lengths, first, row = [], [], 0, 0
        self.splits = {}
        for split, size in sizes.items():
            begins = np.arange(first, first + max(size - 1, 0), self.length)
            starts.append(begins)
            lengths.append(np.minimum(self.length, first + size - 1 - begins))
            if len(begins):
                self.splits[split] = np.arange(row, row + len(begins))
            elif split == "train":
                raise MolsliceError(f"{self.source} has {size} tokens to train on; at least 2 are needed")
            first, row = first + size, row + len(begins)
        self._starts, self._lengths = np.concatenate(starts), np.concatenate(lengths)

    @property
    def spec(self) -> DataSpec:
        """As many outputs as tokens in the vocabulary."""
        return _spec(self.vocabulary_size, self.length, self.lexicon.name)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Bytes have a vocabulary by themselves, and otherwise `vocabulary_size` says how many there are."""
        size, tokens = options.get("vocabulary_size"), options.get("tokens", "words")
        length = options.get("length", DEFAULT_LENGTH)
        _check_options(tokens, size, length)
        if tokens == "bytes":
            return _spec(BYTES, length, Lexicon(tokens).name)
        return None if size is None else _spec(size, length, "")

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The lexicon: without it what a model generates is numbers."""
        return {"lexicon": self.lexicon.to_mapping()}

    @property
    def num_tokens(self) -> np.ndarray:
        """Of each window, what the model reads."""
        return self._lengths

    @property
    def targets(self) -> np.ndarray:
        """The number of predicted tokens: that of the tokens read."""
        return self._lengths[:, None].astype(np.float32)

    def count_targets(self, rows: np.ndarray) -> int:
        """The predicted tokens of the rows."""
        return int(self._lengths[rows].sum())

    def collate(self, rows: np.ndarray | Sequence[int], draw: int | None = None) -> SequenceBatch:  # noqa: ARG002
        """The windows as one padded batch; `pair_tokens` is what comes next at each of `tokens`.

        Raises:
            MolsliceError: no rows, or a row that is not there.
        """
        rows = checked_rows(rows, self._lengths, self.source)
        lengths = self._lengths[rows][:, None]
        places = np.arange(lengths.max())
        mask = places < lengths
        at = self._starts[rows][:, None] + np.minimum(places, lengths - 1)
        tokens, following = (np.where(mask, self.text[at + step], 0).astype(np.int64) for step in (0, 1))
        return SequenceBatch(
            torch.from_numpy(tokens),
            None if mask.all() else torch.from_numpy(mask),
            torch.from_numpy(self.targets[rows]),
            torch.from_numpy(rows),
            torch.from_numpy(following),
        )

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Fetch WikiText into the folder `root`, with `<unk>` for words and as written for the others.

        Raises:
            MolsliceError: no `root`, an unknown version, the library is missing, or the fetching fails.
        """
        check_kind(options.get("tokens", "words"))
        download_wikitext(options)


def _check_options(tokens: str, vocabulary_size: int | None, length: int) -> None:
    check_kind(tokens)
    if vocabulary_size is not None:
        if tokens == "bytes":
            raise MolsliceError(f"bytes have a vocabulary of {BYTES}, vocabulary_size is {vocabulary_size!r}")
        if type(vocabulary_size) is not int or vocabulary_size < LEAST_VOCABULARY:
            raise MolsliceError(
                f"vocabulary_size must be at least {LEAST_VOCABULARY}, got {vocabulary_size!r}"
            )
    if type(length) is not int or length < 1:
        raise MolsliceError(f"length must be at least 1, got {length!r}")


def _spec(size: int, length: int, name: str) -> DataSpec:
    return DataSpec(size, "ids", vocabulary_size=size, max_tokens=length, vocabulary=name)


def _lines_of(split: str, texts: Mapping[str, Sequence[Path]], tokens: str) -> Iterator[Line]:
    """The lines of a split; without a text to validate on, the last lines of the one to train on."""

    def read(name: str) -> Iterator[Line]:
        for path in texts.get(name, ()):
            yield from read_text(path, as_bytes=tokens == "bytes")

    if "valid" in texts or split == "test":
        return read(split)
    count = sum(1 for _ in read("train"))
    if count < 2:
        raise MolsliceError(f"{texts['train'][0]} has {count} lines: name what to validate on by valid_path")
    kept = count - max(1, int(HELD_OUT * count))
    return islice(read("train"), kept) if split == "train" else islice(read("train"), kept, None)
