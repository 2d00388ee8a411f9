"""The vocabulary of a language model: text to token ids and back. It is saved with the model."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Any, Self

import numpy as np

from molslice.data.sequences import smallest_type
from molslice.registry import check_choice
from molslice.types import MolsliceError

KINDS = ("words", "characters", "bytes")
UNKNOWN = "<unk>"
LINE_ENDS = {"words": "<eos>", "characters": "\n"}
BYTES = 256
BLOCK = 20_000  # lines encoded at once

Line = str | bytes  # without line end; bytes only for tokens that are bytes


@dataclass(frozen=True, slots=True)
class Lexicon:
    r"""The meaning of each token id.

    Attributes:
        kind: `words` (separated by white space, with `<eos>` at the end of each line), `characters` (Unicode,
            with \n at the end of each line) or `bytes` (of UTF-8).
        entries: The token of each id, starting with `<unk>` for unknown tokens and the line end; empty for
            bytes.

    Raises:
        MolsliceError: The kind is unknown, or the entries have another start or duplicates.
    """

    kind: str
    entries: tuple[str, ...] = ()
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_choice("tokens", self.kind, KINDS)
        begin = () if self.kind == "bytes" else (UNKNOWN, LINE_ENDS[self.kind])
        numbers = {entry: number for number, entry in enumerate(self.entries)}
        if self.entries[: len(begin)] != begin or len(numbers) != len(self.entries):
            raise MolsliceError(
                f"invalid {self.kind} of a language model, which begin with {self.entries[:5]}"
            )
        object.__setattr__(self, "_numbers", numbers)

    def __len__(self) -> int:
        return BYTES if self.kind == "bytes" else len(self.entries)

    @classmethod
    def of_text(cls, kind: str, lines: Iterable[Line], size: int | None = None) -> Self:
        """Collect the tokens of a text, most frequent first; ties are in Unicode order.

        At most `size` entries are kept, including `<unk>` and the line end; by default all tokens.
        """
        if kind == "bytes":
            return cls(kind)
        counts: Counter[str] = Counter()
        for line in lines:
            assert isinstance(line, str)
            counts.update(line.split() if kind == "words" else line)
        begin = (UNKNOWN, LINE_ENDS[kind])
        entries = sorted(counts.keys() - set(begin), key=lambda entry: (-counts[entry], entry))
        return cls(kind, (*begin, *entries)[:size])

    @property
    def line_end(self) -> int:
        """Token id of the line end."""
        return ord("\n") if self.kind == "bytes" else 1

    @property
    def name(self) -> str:
        """Fingerprint: lexicons with the same name are equal."""
        if self.kind == "bytes":
            return "bytes"
        digest = sha256(json.dumps(self.entries).encode()).hexdigest()
        return f"{self.kind}-{digest[:12]}"

    def encode_lines(self, lines: Iterable[Line]) -> np.ndarray:
        """Encode lines with their line ends.

        Returns:
            Token ids [n] in the smallest integer type.
        """
        parts, rest = [np.zeros(0, smallest_type(len(self)))], iter(lines)
        while block := list(islice(rest, BLOCK)):
            parts.append(self._encode_block(block))
        return np.concatenate(parts)

    def _encode_block(self, lines: list[Line]) -> np.ndarray:
        if self.kind == "bytes":
            # the bytes of the command line that are not UTF-8 are surrogates in Python's text
            encoded = (x if isinstance(x, bytes) else x.encode(errors="surrogateescape") for x in lines)
            data = b"".join(x + b"\n" for x in encoded)
            return np.frombuffer(data, np.uint8)
        find = self._numbers.get
        return np.fromiter((find(x, 0) for x in self._entries_of(lines)), smallest_type(len(self)))

    def _entries_of(self, lines: list[Line]) -> Iterator[str]:
        end = LINE_ENDS[self.kind]
        for line in lines:
            assert isinstance(line, str)
            yield from line.split() if self.kind == "words" else line
            yield end

    def encode(self, text: str) -> list[int]:
        """Encode a text without adding a final line end."""
        return self.encode_lines(text.split("\n")).tolist()[:-1]

    def unknown(self, text: str) -> list[str]:
        """Find the distinct unknown tokens of a text, in order."""
        if self.kind == "bytes":
            return []
        return list(dict.fromkeys(x for x in self._entries_of([*text.split("\n")]) if x not in self._numbers))

    def decode(self, numbers: Iterable[int]) -> str:
        """Decode token ids to text: words separated by spaces, invalid UTF-8 as replacement characters."""
        if self.kind == "bytes":
            return bytes(numbers).decode(errors="replace")
        entries = [self.entries[number] for number in numbers]
        if self.kind == "characters":
            return "".join(entries)
        lines = " ".join("\n" if word == LINE_ENDS["words"] else word for word in entries).split("\n")
        return "\n".join(line.strip() for line in lines)

    def to_mapping(self) -> dict[str, Any]:
        """Convert to JSON values, the inverse of `from_mapping`."""
        return {"kind": self.kind, "entries": list(self.entries)}

    @classmethod
    def from_mapping(cls, mapping: Any) -> Self:  # noqa: ANN401
        """Create from the JSON values of `to_mapping`."""
        if not isinstance(mapping, Mapping) or not {"kind", "entries"} <= mapping.keys():
            raise MolsliceError(f"cannot read the tokens of a language model: {str(mapping)[:60]}")
        entries = mapping["entries"]
        if not isinstance(entries, list | tuple) or not all(isinstance(entry, str) for entry in entries):
            raise MolsliceError(
                f"the tokens of a language model must be a list of texts: {str(entries)[:60]}"
            )
        return cls(mapping["kind"], tuple(entries))
