"""Text for language models: WikiText in its common formats, or any plain text."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from molslice.data.base import Dataset
from molslice.data.sequences import checked_rows, keep_arrays
from molslice.data.splits import NAMES
from molslice.data.text.lexicon import BYTES, KINDS, Lexicon, Line
from molslice.files.atomic import atomic_file
from molslice.files.cache import cache_folders, file_checksum
from molslice.files.hub import claim_folder, download_folder, load_hub
from molslice.files.lines import find_any, read_byte_lines, read_lines
from molslice.files.progress import tracked
from molslice.files.tables.parquet import read_parquet
from molslice.registry import check_choice
from molslice.types import DataSpec, MolsliceError, SequenceBatch

DEFAULT_LENGTH = 512
HELD_OUT = 0.1  # fraction of the training lines for validation, without a validation text
LEAST_VOCABULARY = 3  # unknown, the line end, and one token
PARQUET_MAGIC = b"PAR1"
COLUMN = "text"
VERSIONS = (2, 103)
HUB = "Salesforce/wikitext"  # name on the Hugging Face Hub
HUB_SPLITS = {"train": "train", "valid": "validation", "test": "test"}
BY_HAND = (
    "By hand: download the Parquet files of https://huggingface.co/datasets/Salesforce/wikitext, or set "
    "data.train_path to any other text"
)
INSTRUCTIONS = f"`molslice prepare --config FILE --download` downloads WikiText into data.root. {BY_HAND}"


class Wikitext(Dataset):
    """Consecutive windows of a text; every token except the first is predicted once.

    A row has `length` tokens (fewer in the last window of a text) and the token after each of them, which is
    `pair_tokens` of a batch. `targets` is the number of predicted tokens. With `context`, windows of valid
    and test overlap, and `pair_mask` of a batch is false at tokens that the window before predicts.

    Args:
        root: Folder with `wiki.train.tokens`, `wiki.valid.tokens` and `wiki.test.tokens`, or `.raw`, each
            also with `.gz`, or with Parquet files (`train*.parquet`, `valid*.parquet`, `test*.parquet`) that
            have a column `text` with one line per row.
        train_path: Training text, instead of the one in `root`: UTF-8, also with gzip, or Parquet.
        valid_path: Validation text. Without one, the last tenth of the training lines is held out.
        test_path: Test text; optional.
        tokens: `words` (separated by white space, with `<eos>` at the end of each line, as WikiText counts),
            `characters`, or `bytes`. In a folder with both formats, words are read from `.tokens`, the
            others from `.raw`. Each line ends with one line feed, whatever its end in the file, and a byte
            order mark is left out.
        vocabulary_size: Rows of the embedding table, including `<unk>` and the line end: the most frequent
            tokens of the training text; all others are `<unk>`. By default all tokens. If the text has
            fewer, the last rows are unused.
        length: Number of tokens of a window.
        context: Minimum number of tokens before each predicted token of valid and test, except in the first
            window of a text. Evaluation takes length / (length - context) as long.
        version: Version of WikiText that `molslice prepare --download` downloads, `2` or `103`.
        cache_dir: Folder for the token ids; by default the user's cache.

    Source: Merity et al. 2016, arXiv 1609.07843; windows as in fairseq with `--sample-break-mode none`,
    `context` as its `--context-window`.
    """

    kind = "tokens"
    target_names = ("next_token",)
    target_units = ("",)
    row_name = "windows"
    instructions = BY_HAND

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
        context: int = 0,
        version: int = 103,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        _check_options(tokens, vocabulary_size, length)
        if type(context) is not int or not 0 <= context < length:
            raise MolsliceError(f"context must be at least 0 and less than length={length}, got {context!r}")
        given = {"train": train_path, "valid": valid_path, "test": test_path}
        paths = {split: Path(path) for split, path in given.items() if path is not None}
        texts = _find_texts(None if root is None else Path(root), paths, tokens, version)
        self.source = str(root if train_path is None else train_path)
        self.length, self.context = length, context
        arrays = self._prepare(texts, tokens, vocabulary_size, cache_dir)
        self.text = arrays["text"]
        self.lexicon = Lexicon(tokens, tuple(json.loads(arrays["entries"].tobytes())))
        self._spec = _spec(vocabulary_size or len(self.lexicon), length, self.lexicon.name)
        sizes: dict[str, int] = dict(zip(NAMES, arrays["lengths"].tolist(), strict=True))
        self._check_sizes(sizes, texts)
        self._cut(sizes)

    def _prepare(
        self,
        texts: Mapping[str, Sequence[Path]],
        tokens: str,
        vocabulary_size: int | None,
        cache_dir: str | os.PathLike[str] | None,
    ) -> dict[str, np.ndarray]:
        """Encode the splits: concatenated ids, the length of each split, and the lexicon as JSON."""

        def build() -> dict[str, np.ndarray]:
            lines = tracked(_lines_of("train", texts, tokens), "counting tokens", unit="lines")
            lexicon = Lexicon.of_text(tokens, lines, vocabulary_size)
            texts_of_splits = (
                tracked(_lines_of(name, texts, tokens), f"reading {name}", unit="lines") for name in NAMES
            )
            parts = [lexicon.encode_lines(lines) for lines in texts_of_splits]
            return {
                "text": np.concatenate(parts),
                "lengths": np.array([len(ids) for ids in parts]),
                "entries": np.frombuffer(json.dumps(lexicon.entries).encode(), np.uint8),
            }

        identity = {
            "format": "wikitext",
            "sha256": {split: [file_checksum(path) for path in paths] for split, paths in texts.items()},
            "tokens": tokens,
            "vocabulary_size": vocabulary_size,
        }
        return keep_arrays(cache_folders(cache_dir), identity, build)

    def _check_sizes(self, sizes: Mapping[str, int], texts: Mapping[str, Sequence[Path]]) -> None:
        """Refuse a split without a token to predict."""
        for split in ("train", "valid", *texts):
            if sizes[split] > 1:
                continue
            if split in texts:
                source, advice = ", ".join(map(str, texts[split])), ""
            else:
                source, advice = f"the last tenth of {self.source}", "; give a longer text or valid_path"
            raise MolsliceError(f"{source} has fewer than 2 tokens, too few for the split {split}{advice}")

    def _cut(self, sizes: Mapping[str, int]) -> None:
        """Set start, length and context of each window in the text, and the rows of each split."""
        starts, lengths, contexts, first, row = [], [], [], 0, 0
        self.splits = {}
        for split, size in sizes.items():
            context, predicted = 0 if split == "train" else self.context, max(size - 1, 0)
            # the first window predicts all its tokens, each of the others at least one
            stop = max(predicted - context, min(predicted, 1))
            begins = np.arange(first, first + stop, self.length - context)
            contexts.append(np.where(begins > first, context, 0))
            starts.append(begins)
            lengths.append(np.minimum(self.length, first + size - 1 - begins))
            if len(begins):
                self.splits[split] = np.arange(row, row + len(begins))
            first, row = first + size, row + len(begins)
        self._starts, self._lengths = np.concatenate(starts), np.concatenate(lengths)
        self._contexts = np.concatenate(contexts)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Derive the spec for bytes or for a given `vocabulary_size`; None otherwise."""
        size, tokens = options.get("vocabulary_size"), options.get("tokens", "words")
        length = options.get("length", DEFAULT_LENGTH)
        _check_options(tokens, size, length)
        if tokens == "bytes":
            return _spec(BYTES, length, Lexicon(tokens).name)
        return None if size is None else _spec(size, length, "")

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The lexicon, which converts generated ids to text."""
        return {"lexicon": self.lexicon.to_mapping()}

    @property
    def num_tokens(self) -> np.ndarray:
        """Number of input tokens of each window, int [rows]."""
        return self._lengths

    @property
    def targets(self) -> np.ndarray:
        """Number of predicted tokens of each window, float32 [rows, 1]."""
        return (self._lengths - self._contexts)[:, None].astype(np.float32)

    def count_targets(self, rows: np.ndarray) -> int:
        """Count the predicted tokens of the rows."""
        return int((self._lengths - self._contexts)[rows].sum())

    def collate(self, rows: np.ndarray | Sequence[int], draw: int | None = None) -> SequenceBatch:  # noqa: ARG002
        """Collate windows into one padded batch; `pair_tokens` has the next token of each of `tokens`."""
        rows = checked_rows(rows, self._lengths, self.source)
        lengths = self._lengths[rows][:, None]
        places = np.arange(lengths.max())
        mask = places < lengths
        at = self._starts[rows][:, None] + np.minimum(places, lengths - 1)
        predicted = mask & (places >= self._contexts[rows][:, None])
        tokens, following = (np.where(mask, self.text[at + step], 0).astype(np.int64) for step in (0, 1))
        return SequenceBatch(
            torch.from_numpy(tokens),
            None if mask.all() else torch.from_numpy(mask),
            torch.from_numpy(self.targets[rows]),
            torch.from_numpy(rows),
            torch.from_numpy(following),
            torch.from_numpy(predicted) if self._contexts[rows].any() else None,
        )

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        r"""Download the three files of WikiText-2 or WikiText-103 into `root`; existing files are kept.

        The files are `.tokens` for words, with `<unk>` for rare ones, otherwise `.raw`. On the Hub each line
        has its line end, and the line " \n" is empty; the written files equal the original ones.
        """
        check_choice("tokens", options.get("tokens", "words"), KINDS)
        version = options.get("version", 103)
        _check_version(version)
        root = download_folder(options)
        source = {"hub": HUB, "subset": f"wikitext-{version}"}  # .tokens and .raw may be in the same folder
        claim_folder(root, source)
        ending, subset = ("tokens", "v1") if options.get("tokens", "words") == "words" else ("raw", "raw-v1")
        files = {split: root / f"wiki.{split}.{ending}" for split in HUB_SPLITS}
        missing = {HUB_SPLITS[split]: path for split, path in files.items() if not path.is_file()}
        if missing:
            tables = load_hub(HUB, list(missing), f"{source['subset']}-{subset}")
            claim_folder(
                root, source, fetched=not any(_in_folder(root, split, "words") for split in HUB_SPLITS)
            )
            for split, rows in tables.items():
                with atomic_file(missing[split]) as stream:
                    stream.writelines((row[COLUMN] or " \n").encode() for row in rows)


def _check_options(tokens: str, vocabulary_size: int | None, length: int) -> None:
    check_choice("tokens", tokens, KINDS)
    if vocabulary_size is not None:
        if tokens == "bytes":
            raise MolsliceError(f"vocabulary_size of bytes must be {BYTES}, got {vocabulary_size!r}")
        if type(vocabulary_size) is not int or vocabulary_size < LEAST_VOCABULARY:
            raise MolsliceError(
                f"vocabulary_size must be at least {LEAST_VOCABULARY}, got {vocabulary_size!r}"
            )
    if type(length) is not int or length < 1:
        raise MolsliceError(f"length must be at least 1, got {length!r}")


def _spec(size: int, length: int, name: str) -> DataSpec:
    return DataSpec(size, "ids", vocabulary_size=size, max_tokens=length, vocabulary=name)


def _lines_of(split: str, texts: Mapping[str, Sequence[Path]], tokens: str) -> Iterator[Line]:
    """Read the lines of a split; without a validation text, valid is the last training lines."""

    def read(name: str) -> Iterator[Line]:
        for path in texts.get(name, ()):
            yield from _read_text(path, as_bytes=tokens == "bytes")

    if "valid" in texts or split == "test":
        return read(split)
    count = sum(1 for _ in read("train"))
    if count < 2:
        raise MolsliceError(
            f"{texts['train'][0]} has {count} lines, too few to hold some out; set valid_path"
        )
    kept = count - max(1, int(HELD_OUT * count))
    return islice(read("train"), kept) if split == "train" else islice(read("train"), kept, None)


def _find_texts(
    root: Path | None, given: Mapping[str, Path], tokens: str, version: int
) -> dict[str, Sequence[Path]]:
    """Find the files of each split: the given one, otherwise those in the folder `root`."""
    _check_version(version)
    if root is None and "train" not in given:
        raise MolsliceError(f"set data.root or data.train_path to a training text. {INSTRUCTIONS}")
    if root is not None and not root.is_dir():
        raise MolsliceError(f"no such folder: {root}. {INSTRUCTIONS}")
    for path in given.values():
        if not path.is_file():
            raise MolsliceError(f"no such file: {path}")
    texts: dict[str, Sequence[Path]] = {split: [path] for split, path in given.items()}
    for split in HUB_SPLITS:
        if split not in texts and root is not None and (files := _in_folder(root, split, tokens)):
            texts[split] = files
    if "train" not in texts:
        raise MolsliceError(
            f"{root} has no wiki.train.tokens, wiki.train.raw (also .gz) or train*.parquet. {INSTRUCTIONS}"
        )
    return texts


def _in_folder(root: Path, split: str, tokens: str) -> Sequence[Path]:
    endings = ("tokens", "raw") if tokens == "words" else ("raw", "tokens")
    path = find_any(root, *(f"wiki.{split}.{ending}" for ending in endings))
    return sorted(root.glob(f"{split}*.parquet")) if path is None else [path]


def _read_text(path: Path, *, as_bytes: bool = False) -> Iterator[Line]:
    """Yield the lines of a text without line ends; for Parquet, the lines of the column `text`."""
    with path.open("rb") as file:
        is_parquet = file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    if is_parquet:
        for rows in read_parquet(path, [COLUMN]):
            for row in rows[COLUMN]:  # a row of WikiText is a line with its line end, or empty
                yield from str(row or "").removesuffix("\n").split("\n")
    else:
        yield from read_byte_lines(path) if as_bytes else read_lines(path)


def _check_version(version: object) -> None:
    if version not in VERSIONS:
        raise MolsliceError(f"invalid version {version!r}; choices: {', '.join(map(str, VERSIONS))}")
