"""AAN: whether one of two papers of the ACL Anthology Network cites the other, from bytes."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from molslice.data.sequences import SequenceDataset, Sequences, keep_arrays, pack_reasons, unpack_reasons
from molslice.data.splits import consecutive_rows
from molslice.files import cache, lines
from molslice.files.progress import tracked
from molslice.types import DataSpec, MolsliceError, SequenceBatch

FILES = {
    "train": "new_aan_pairs.train.tsv",
    "valid": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
CELLS = ("label", "id1", "id2", "text1", "text2")
LABELS = {b"0": 0.0, b"0.0": 0.0, b"1": 1.0, b"1.0": 1.0}
MAX_TOKENS = 4000


class Aan(SequenceDataset):
    """Long Range Arena's byte-level retrieval: each row has two texts, as bytes 1 to 256 (0 is padding).

    A row with the wrong number of cells or without a text keeps its row number, without tokens.

    Args:
        root: Folder of new_aan_pairs.train.tsv, .eval.tsv and .test.tsv, plain or gzip. A line has the label,
            the id of each paper and the text of each paper, separated by tabs, without header or quotes.
        max_tokens: Maximum number of bytes per text; longer texts are truncated.
        cache_dir: Folder for the prepared bytes; by default the user's cache.

    Source: Radev et al. 2013 (the network); Tay et al. 2020, arXiv 2011.04006, section 2.2.3 (the task).
    """

    target_names, target_units, kind, class_names = ("cites",), ("",), "multiclass", ("no", "yes")
    row_name = "pairs"
    instructions = (
        "Download the pairs with their texts from the data release of Long Range Arena "
        "(github.com/google-research/long-range-arena, lra_release.gz, folder tsv_data)"
    )

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
        max_tokens: int = MAX_TOKENS,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(max_tokens, int) or max_tokens < 1:
            raise MolsliceError(f"max_tokens must be at least 1, got {max_tokens!r}")
        self.source, self._spec = str(root), self.describe({"max_tokens": max_tokens})
        files = _find_files(Path(root))
        identity = {
            "format": "aan-1",
            "sha256": [cache.file_checksum(file) for file in files],
            "max_tokens": max_tokens,
        }
        arrays = keep_arrays(cache.cache_folders(cache_dir), identity, lambda: _read(files, max_tokens))
        self.sequences = Sequences(arrays["first"], arrays["first_offsets"])
        self.pairs = Sequences(arrays["second"], arrays["second_offsets"])
        self.labels = np.asarray(arrays["labels"])
        self._errors = unpack_reasons(arrays)
        self.splits = consecutive_rows(dict(zip(FILES, arrays["counts"].tolist(), strict=True)))

    def collate(self, rows: np.ndarray | Sequence[int], draw: int | None = None) -> SequenceBatch:
        """Collate pairs into one padded batch; nothing in it is random."""
        batch = super().collate(rows, draw)
        assert batch.pair_tokens is not None
        # stored as bytes 0 to 255, which need half the space of the numbers 1 to 256
        tokens = batch.tokens + (1 if batch.token_mask is None else batch.token_mask)
        pair_tokens = batch.pair_tokens + (1 if batch.pair_mask is None else batch.pair_mask)
        return replace(batch, tokens=tokens, pair_tokens=pair_tokens)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec:
        """Derive the spec from the length."""
        length = options.get("max_tokens", MAX_TOKENS)
        return DataSpec(2, "ids", 257, max_tokens=length, paired=True, vocabulary="bytes")


def _find_files(root: Path) -> list[Path]:
    try:
        return [lines.find_file(root, name) for name in FILES.values()]
    except MolsliceError as error:
        raise MolsliceError(f"{error}. {Aan.instructions}") from error


def _read(files: Iterable[Path], max_tokens: int) -> dict[str, np.ndarray]:
    texts, lengths = (bytearray(), bytearray()), ([0], [0])
    labels: list[float] = []
    reasons: dict[int, str] = {}
    counts: list[int] = []
    for file in files:
        before = len(labels)
        rows = tracked(lines.read_byte_lines(file), f"reading {file.name}", unit="lines")
        for number, line in enumerate(rows, start=1):
            cells = line.split(b"\t")
            reason = _fault(cells)
            if reason:
                reasons[len(labels)] = f"{file.name}, line {number}: {reason}"
            for place in range(2):
                text = b"" if reason else cells[3 + place][:max_tokens]
                texts[place].extend(text)
                lengths[place].append(len(text))
            labels.append(np.nan if reason else LABELS[cells[0]])
        counts.append(len(labels) - before)
    if len(reasons) == len(labels):
        raise MolsliceError(
            f"no valid pair in the files: {reasons.get(0, 'they are empty')}. {Aan.instructions}"
        )
    return {
        "first": np.frombuffer(texts[0], np.uint8),
        "first_offsets": np.cumsum(lengths[0]),
        "second": np.frombuffer(texts[1], np.uint8),
        "second_offsets": np.cumsum(lengths[1]),
        "labels": np.array(labels, np.float32)[:, None],
        "counts": np.array(counts),
        **pack_reasons(reasons),
    }


def _fault(cells: list[bytes]) -> str:
    """Return the reason why a line is not a valid pair; empty for a valid line."""
    if len(cells) != len(CELLS):
        return f"{len(cells)} cells instead of {len(CELLS)}: {', '.join(CELLS)}"
    if cells[0] not in LABELS:
        return f"invalid label {cells[0].decode(errors='replace')[:20]!r}; choices: 0, 1"
    empty = [name for name, cell in zip(CELLS[3:], cells[3:], strict=True) if not cell]
    return f"{empty[0]} is empty" if empty else ""
