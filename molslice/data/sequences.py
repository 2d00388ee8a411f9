"""Sequences concatenated in flat arrays, their cache, and the base class of data sets of sequences."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from molslice.data.base import Dataset
from molslice.files.atomic import atomic_folder
from molslice.files.cache import FAILING, array_checksum, failing_disk
from molslice.types import MolsliceError, SequenceBatch

logger = logging.getLogger(__name__)

HEADER = "header.json"
FORMAT = "molslice-sequences-2"


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """Concatenated sequences: row r is `values[offsets[r]:offsets[r + 1]]`.

    Attributes:
        values: Token ids [sum n] in the smallest integer type, or features [sum n, F].
        offsets: Start of each row and end of the last one, int64 [rows + 1].
    """

    values: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return np.asarray(self.values[self.offsets[row] : self.offsets[row + 1]])

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each row, int64 [rows]."""
        return np.diff(self.offsets)

    @classmethod
    def pack(cls, rows: Iterable[np.ndarray | Sequence[int]], dtype: np.dtype | type | str) -> Self:
        """Concatenate rows, each [n] or [n, F], as `dtype`; an integer that does not fit is an error."""
        arrays = [np.asarray(row) for row in rows]
        offsets = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        filled = [array for array in arrays if len(array)]
        values = np.concatenate(filled) if filled else np.zeros(0, dtype)
        kind = np.dtype(dtype)
        if kind.kind in "iu" and len(values):
            limits = np.iinfo(kind.name)
            if values.min() < limits.min or values.max() > limits.max:
                raise MolsliceError(
                    f"numbers {values.min()} to {values.max()} do not fit into {kind}, "
                    f"which holds {limits.min} to {limits.max}"
                )
        return cls(np.ascontiguousarray(values, dtype=kind), offsets)

    def cut(self, max_tokens: int) -> "Sequences":
        """Truncate each row to `max_tokens` tokens. Return self if no row is longer."""
        lengths = self.lengths
        if not len(lengths) or lengths.max() <= max_tokens:
            return self
        kept = np.arange(len(self.values)) - np.repeat(self.offsets[:-1], lengths) < max_tokens
        offsets = np.concatenate([np.zeros(1, np.int64), np.minimum(lengths, max_tokens).cumsum()])
        return Sequences(np.asarray(self.values[kept]), offsets)

    def padded(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Pad rows to a batch.

        Args:
            rows: Row numbers [B].

        Returns:
            The values [B, N] as int64 or [B, N, F] as float32, zero at padding. The mask of real tokens,
            bool [B, N], or None if there is no padding.
        """
        starts, lengths = self.offsets[rows], self.lengths[rows]
        width = int(lengths.max(initial=1))
        mask = np.arange(width) < lengths[:, None]
        dtype = np.int64 if self.values.dtype.kind in "iu" else np.float32
        values = np.zeros((len(rows), width, *self.values.shape[1:]), dtype)
        values[mask] = self.values[(starts[:, None] + np.arange(width))[mask]]
        return torch.from_numpy(values), None if mask.all() else torch.from_numpy(mask)


def smallest_type(count: int) -> np.dtype:
    """Return the smallest unsigned integer type for 0 to `count` - 1."""
    return np.min_scalar_type(max(count - 1, 0))


class SequenceDataset(Dataset):
    """Sequences with targets. A subclass sets the attributes below and the attributes of `Dataset`.

    Attributes:
        sequences: One sequence per row; empty for an unreadable row.
        pairs: Second sequence of each row, for tasks that compare two; otherwise None.
        labels: Targets, float32 [rows, T]; NaN if missing.
    """

    sequences: Sequences
    pairs: Sequences | None = None
    labels: np.ndarray
    row_name = "sequences"

    @property
    def num_tokens(self) -> np.ndarray:
        """Number of tokens of each row, int [rows]: of both sequences for a pair, 0 if one is empty."""
        lengths = self.sequences.lengths
        if self.pairs is None:
            return lengths
        others = self.pairs.lengths
        return np.where((lengths > 0) & (others > 0), lengths + others, 0)

    def content_checksums(self, checksum: Callable[[np.ndarray], str]) -> dict[str, str]:
        """Compute checksums of the sequences; see `Dataset.content_checksums`."""
        parts = {"sequences": self.sequences, "pairs": self.pairs}
        arrays = {
            name: (sequences.values, sequences.offsets)
            for name, sequences in parts.items()
            if sequences is not None
        }
        return {name: " ".join(map(checksum, pair)) for name, pair in arrays.items()}

    @property
    def targets(self) -> np.ndarray:
        """Targets, float32 [rows, T]; NaN if missing."""
        return self.labels

    def collate(self, rows: np.ndarray | Sequence[int], draw: int | None = None) -> SequenceBatch:  # noqa: ARG002
        """Collate sequences into one padded batch; nothing in it is random."""
        rows = checked_rows(rows, self.num_tokens, self.source)
        tokens, mask = self.sequences.padded(rows)
        pair = (None, None) if self.pairs is None else self.pairs.padded(rows)
        return SequenceBatch(
            tokens, mask, torch.from_numpy(self.targets[rows]), torch.from_numpy(rows), pair[0], pair[1]
        )


def checked_rows(rows: np.ndarray | Sequence[int], num_tokens: np.ndarray, source: str) -> np.ndarray:
    """Check that rows can be batched, and return a copy, int64 [B].

    Args:
        rows: Row numbers [B].
        num_tokens: Tokens of every row of the data set, int [rows]; 0 for an unreadable row.
        source: Name of the data set, for messages.
    """
    rows = np.array(rows, dtype=np.int64)
    if rows.ndim != 1 or not len(rows):
        raise MolsliceError(f"a batch needs a list of at least one row, got shape {list(rows.shape)}")
    if rows.min() < 0 or rows.max() >= len(num_tokens):
        raise MolsliceError(
            f"rows {rows.min()} to {rows.max()} are out of range: {source} has {len(num_tokens)} rows"
        )
    if not num_tokens[rows].all():
        failed = rows[num_tokens[rows] == 0][:5].tolist()
        raise MolsliceError(f"cannot batch rows of {source} that could not be read: {failed}")
    return rows


def pack_reasons(reasons: Mapping[int, str]) -> dict[str, np.ndarray]:
    """Convert the reasons of unreadable rows, by row number, to arrays for the cache."""
    failed = np.array(list(reasons), np.int64)
    return {"failed": failed, "reasons": np.array(list(reasons.values()), np.str_)}


def unpack_reasons(arrays: Mapping[str, np.ndarray]) -> dict[int, str]:
    """Convert the arrays of `pack_reasons` back to reasons by row number."""
    return dict(zip(arrays["failed"].tolist(), arrays["reasons"].tolist(), strict=True))


def keep_arrays(
    folders: Sequence[Path], identity: Mapping[str, Any], build: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Load arrays from a cache, or build them and write them there.

    They are written atomically into the first writable folder. If no folder is writable, they stay in memory,
    with a warning.

    Args:
        folders: Cache folders, in order of preference.
        identity: Everything that the arrays depend on (file checksums, options), as JSON values. Its hash is
            the name of the cached folder.
        build: Computes the arrays.

    Returns:
        The arrays by name, memory-mapped if they are in a cache.

    Raises:
        MolsliceError: The disk is full or broken.
    """
    text = json.dumps([FORMAT, identity], sort_keys=True, default=str)
    name = hashlib.sha256(text.encode()).hexdigest()[:24]
    for folder in folders:
        cached = _open_arrays(folder / name)
        if cached is not None:
            return cached
    arrays = dict(build())
    for folder in folders:
        kept = _write_arrays(folder, name, identity, arrays)
        if kept is not None:
            return kept
    tried = ", ".join(map(str, folders)) or "no folder"
    logger.warning("cannot write the cache in %s; prepared data stay in memory and are not reused", tried)
    return arrays


def _write_arrays(
    folder: Path, name: str, identity: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray] | None:
    """Write arrays and open them; None if the folder is not writable."""
    place = folder / name
    try:
        # an existing folder is damaged, or it would have been opened
        with atomic_folder(place, replace=True) as unfinished:
            for label, array in arrays.items():
                np.save(unfinished / f"{label}.npy", array)
            stated = {label: _describe(array) for label, array in arrays.items()}
            header = {"format": FORMAT, "identity": dict(identity), "arrays": stated}
            (unfinished / HEADER).write_text(
                json.dumps(header, indent=2, default=str) + "\n", encoding="utf-8"
            )
    except OSError as error:
        if error.errno in FAILING:
            raise MolsliceError(failing_disk(error)) from error
        return _open_arrays(place)  # another process may have been faster
    return _open_arrays(place, verify=False)


def _open_arrays(place: Path, *, verify: bool = True) -> dict[str, np.ndarray] | None:
    """Open arrays of a cache; None if they are not there, or damaged if `verify` compares checksums."""
    try:
        stated = json.loads((place / HEADER).read_text(encoding="utf-8"))["arrays"]
        arrays = {name: np.load(place / f"{name}.npy", mmap_mode="r") for name in stated}
        sound = not verify or {name: _describe(array) for name, array in arrays.items()} == stated
    except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError):  # EOFError: an empty file
        return None
    return arrays if sound else None


def _describe(array: np.ndarray) -> dict[str, Any]:
    return {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": array_checksum(array)}
