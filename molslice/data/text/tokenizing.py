"""Convert text to token ids: bytes, words or subwords. The vocabulary is learned from the training split."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any, Self

import numpy as np

from molslice.data.sequences import Sequences, smallest_type
from molslice.files.progress import tracked
from molslice.registry import check_choice
from molslice.types import MolsliceError

DEFAULT_TOKENS = "words"
DEFAULT_MAX_TOKENS = 512
DEFAULT_VOCABULARY = 16_000
BYTES_VOCABULARY = 257  # padding and the bytes
# padding, unknown and a word; padding and bytes
LEAST_VOCABULARY = {"words": 3, "subwords": BYTES_VOCABULARY}
UNKNOWN = 1  # an unknown word; 0 is padding, as everywhere
# runs of letters (also beyond ASCII) and digits, and single punctuation marks, as in the Singularformer
# authors' code for IMDB, BBC and 20NG (Wu et al., IJCAI 2023, utils.py of their repository)
WORD = re.compile(r"[^\W_]+|[,;.!?()'\"]")
CHUNK = 1000  # texts encoded at once

Encoded = tuple[str, Iterator[np.ndarray]]  # the vocabulary as text, and the ids of each text


@dataclass(frozen=True, slots=True)
class Tokenizing:
    """How a text is converted to token ids; 0 is padding.

    Attributes:
        tokens: `bytes` (of UTF-8, as 1 to 256), `words` (runs of letters and digits, and single punctuation
            marks; 1 for unknown words), or `subwords` (byte-level BPE, Sennrich et al. 2016, without unknown
            tokens).
        vocabulary_size: Rows of the embedding table, including padding and unknown. If the training split has
            fewer words, the last rows are unused.
        max_tokens: Maximum number of tokens per text; longer texts are truncated.
        lower: Whether to convert to lower case; by default only for words.
    """

    tokens: str = DEFAULT_TOKENS
    vocabulary_size: int | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    lower: bool | None = None

    def __post_init__(self) -> None:
        check_choice("tokens", self.tokens, ENCODERS)
        size = self.vocabulary_size
        if self.tokens == "bytes" and size not in (None, BYTES_VOCABULARY):
            raise MolsliceError(f"vocabulary_size of bytes must be {BYTES_VOCABULARY}, got {size!r}")
        least = LEAST_VOCABULARY.get(self.tokens, 0)
        if size is not None and (type(size) is not int or size < least):
            raise MolsliceError(f"vocabulary_size of {self.tokens} must be at least {least}, got {size!r}")
        if type(self.max_tokens) is not int or self.max_tokens < 1:
            raise MolsliceError(f"max_tokens must be at least 1, got {self.max_tokens!r}")
        if self.lower not in (None, True, False):
            raise MolsliceError(f"lower must be true or false, got {self.lower!r}")

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Self:
        """Create from the options of a data set; missing options have their defaults."""
        return cls(**{f.name: options[f.name] for f in fields(cls) if f.name in options})

    @property
    def size(self) -> int:
        """Number of rows of the embedding table."""
        if self.tokens == "bytes":
            return BYTES_VOCABULARY
        return DEFAULT_VOCABULARY if self.vocabulary_size is None else self.vocabulary_size

    @property
    def is_learned(self) -> bool:
        """Whether the vocabulary is learned from the training split."""
        return self.tokens != "bytes"

    @property
    def lowers(self) -> bool:
        """Whether texts are converted to lower case."""
        return self.tokens == "words" if self.lower is None else self.lower


def tokenize(texts: Sequence[str], training: np.ndarray, how: Tokenizing) -> dict[str, np.ndarray]:
    """Convert all texts to token ids, with the vocabulary of the rows `training`.

    Returns:
        `values` and `offsets` of `Sequences`, and `vocabulary`, the UTF-8 bytes for `fingerprint`.
    """
    if how.lowers:
        texts = [text.lower() for text in texts]
    vocabulary, rows = ENCODERS[how.tokens](texts, training, how)
    counted = tracked(rows, "tokenizing", len(texts), "texts")
    sequences = Sequences.pack(counted, smallest_type(how.size))
    stored = np.frombuffer(vocabulary.encode(), np.uint8)
    return {"values": sequences.values, "offsets": sequences.offsets, "vocabulary": stored}


def fingerprint(vocabulary: np.ndarray, how: Tokenizing) -> str:
    """Compute a short name of the `vocabulary` of `tokenize`. The same name means the same token ids."""
    case = "-lower" if how.lowers else ""
    return f"{how.tokens}{case}-{sha256(vocabulary.tobytes()).hexdigest()[:12]}"


def _encode_bytes(texts: Sequence[str], training: np.ndarray, how: Tokenizing) -> Encoded:  # noqa: ARG001
    def rows() -> Iterator[np.ndarray]:
        for text in texts:
            # a character has at least one byte, so the first max_tokens characters are sufficient
            data = text[: how.max_tokens].encode()[: how.max_tokens]
            yield np.frombuffer(data, np.uint8).astype(np.uint16) + 1

    return "bytes", rows()


def _encode_words(texts: Sequence[str], training: np.ndarray, how: Tokenizing) -> Encoded:
    counts: Counter[str] = Counter()
    for row in training:
        counts.update(WORD.findall(texts[int(row)]))
    by_frequency = sorted(counts, key=lambda word: (-counts[word], word))  # ties in alphabetical order
    words = by_frequency[: how.size - UNKNOWN - 1]
    number = {word: place for place, word in enumerate(words, start=UNKNOWN + 1)}

    def rows() -> Iterator[np.ndarray]:
        for text in texts:
            words_of_text = WORD.findall(text)[: how.max_tokens]
            yield np.array([number.get(word, UNKNOWN) for word in words_of_text], np.int64)

    return json.dumps(words), rows()


def _encode_subwords(texts: Sequence[str], training: np.ndarray, how: Tokenizing) -> Encoded:
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    except ImportError as error:
        raise MolsliceError(
            "tokens: subwords needs the library tokenizers: pip install 'molslice[text]'"
        ) from error
    # a space before the first word, so that its subwords are the same as elsewhere
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level  # pyright: ignore[reportAttributeAccessIssue]
    # no padding token: it would match a text that contains its name
    trainer = trainers.BpeTrainer(
        vocab_size=how.size - 1,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=sorted(byte_level.alphabet()),
    )
    tokenizer.train_from_iterator((texts[int(row)] for row in training), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    learned = sorted(model["vocab"], key=model["vocab"].__getitem__), model["merges"]

    def rows() -> Iterator[np.ndarray]:
        for start in range(0, len(texts), CHUNK):
            for encoding in tokenizer.encode_batch(list(texts[start : start + CHUNK])):
                yield np.array(encoding.ids[: how.max_tokens], np.int64) + 1

    return json.dumps(learned), rows()


ENCODERS: dict[str, Callable[[Sequence[str], np.ndarray, Tokenizing], Encoded]] = {
    "bytes": _encode_bytes,
    "words": _encode_words,
    "subwords": _encode_subwords,
}
