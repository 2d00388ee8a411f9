"""Sequences end to end in flat arrays, as a folder that is read again, and the data sets made of them."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch

from molslice.data.base import Dataset
from molslice.data.store_writer import FAILING, failing_disk
from molslice.types import DataSpec, MolsliceError, SequenceBatch

logger = logging.getLogger(__name__)

HEADER = "header.json"
FORMAT = "molslice-sequences-1"


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """Sequences end to end: row r owns `values[offsets[r]:offsets[r + 1]]`.

    `values` are integers [sum n] in the smallest type that holds them, or numbers [sum n, F].
    """

    values: np.ndarray
    offsets: np.ndarray  # int64 [rows + 1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return np.asarray(self.values[self.offsets[row] : self.offsets[row + 1]])

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, int64 [rows]."""
        return np.diff(self.offsets)

    @classmethod
    def pack(cls, rows: Iterable[np.ndarray | Sequence[int]], dtype: np.dtype | type | str) -> Self:
        """Put rows end to end as `dtype`.

        Raises:
            MolsliceError: an integer that does not fit into `dtype`.
        """
        parts = [np.asarray(row) for row in rows]
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        filled = [part for part in parts if len(part)]
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
        """The same rows, of each the first `max_tokens` tokens; itself where none is longer."""
        lengths = self.lengths
        if not len(lengths) or lengths.max() <= max_tokens:
            return self
        kept = np.arange(len(self.values)) - np.repeat(self.offsets[:-1], lengths) < max_tokens
        offsets = np.concatenate([np.zeros(1, np.int64), np.minimum(lengths, max_tokens).cumsum()])
        return Sequences(np.asarray(self.values[kept]), offsets)

    def padded(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The rows side by side [B, N] or [B, N, F], zeros at padding, and their mask; None without padding.

        Integers come as int64, numbers as float32.
        """
        starts, lengths = self.offsets[rows], self.lengths[rows]
        width = int(lengths.max(initial=1))
        mask = np.arange(width) < lengths[:, None]
        dtype = np.int64 if self.values.dtype.kind in "iu" else np.float32
        values = np.zeros((len(rows), width, *self.values.shape[1:]), dtype)
        values[mask] = self.values[(starts[:, None] + np.arange(width))[mask]]
        return torch.from_numpy(values), None if mask.all() else torch.from_numpy(mask)


def smallest_type(count: int) -> np.dtype:
    """The smallest unsigned type that holds the numbers below `count`."""
    return np.min_scalar_type(max(count - 1, 0))


class SequenceDataset(Dataset):
    """Sequences with targets; a subclass sets the attributes below and those of `Dataset`.

    Attributes:
        sequences: one sequence a row; an empty one is a row that could not be read.
        pairs: the second sequence of each row, where a task compares two.
        labels: float32 [rows, T], NaN where missing.
    """

    sequences: Sequences
    pairs: Sequences | None = None
    labels: np.ndarray
    noun = "sequences"
    _spec: DataSpec
    _errors: Mapping[int, str] = MappingProxyType({})

    @property
    def spec(self) -> DataSpec:
        """What a model has to know of the data."""
        return self._spec

    @property
    def errors(self) -> Mapping[int, str]:
        """Why a row could not be read, by row; what is made has none."""
        return self._errors

    @property
    def num_tokens(self) -> np.ndarray:
        """Those of both sequences where there are two; zero where one of them is empty."""
        lengths = self.sequences.lengths
        if self.pairs is None:
            return lengths
        others = self.pairs.lengths
        return np.where((lengths > 0) & (others > 0), lengths + others, 0)

    @property
    def targets(self) -> np.ndarray:
        """The labels."""
        return self.labels

    def collate(self, rows: np.ndarray | Sequence[int], draw: int | None = None) -> SequenceBatch:  # noqa: ARG002
        """The sequences as one padded batch; nothing in it is random.

        Raises:
            MolsliceError: no rows, or a row that is not there or could not be read.
        """
        rows = checked_rows(rows, self.num_tokens, self.source)
        tokens, mask = self.sequences.padded(rows)
        pair = (None, None) if self.pairs is None else self.pairs.padded(rows)
        return SequenceBatch(
            tokens, mask, torch.from_numpy(self.targets[rows]), torch.from_numpy(rows), pair[0], pair[1]
        )


def checked_rows(rows: np.ndarray | Sequence[int], num_tokens: np.ndarray, source: str) -> np.ndarray:
    """Rows that can be batched, int64, a copy.

    Raises:
        MolsliceError: no rows, or a row that is not there or could not be read.
    """
    rows = np.array(rows, dtype=np.int64)
    if rows.ndim != 1 or not len(rows):
        raise MolsliceError(f"a batch takes a list of at least one row, got shape {list(rows.shape)}")
    if rows.min() < 0 or rows.max() >= len(num_tokens):
        raise MolsliceError(f"rows {rows.min()} to {rows.max()} of {source}, of {len(num_tokens)} rows")
    if not num_tokens[rows].all():
        failed = rows[num_tokens[rows] == 0][:5].tolist()
        raise MolsliceError(f"rows of {source} that could not be read cannot be batched: {failed}")
    return rows


def pack_reasons(reasons: Mapping[int, str]) -> dict[str, np.ndarray]:
    """Why rows could not be read, as arrays to keep."""
    failed = np.array(list(reasons), np.int64)
    return {"failed": failed, "reasons": np.array(list(reasons.values()), np.str_)}


def unpack_reasons(arrays: Mapping[str, np.ndarray]) -> dict[int, str]:
    """The inverse of `pack_reasons`."""
    return dict(zip(arrays["failed"].tolist(), arrays["reasons"].tolist(), strict=True))


def keep_arrays(
    folders: Sequence[Path], identity: Mapping[str, Any], build: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Arrays that take long to make: made the first time, found again under their identity, memory-mapped.

    They lie in the first of `folders` that can be written, under a name from `identity` (what they are made
    of: file checksums, options), and are written under another name and renamed when whole. Where nothing can
    be written they stay in memory, with a warning.

    Raises:
        MolsliceError: the disk is full or fails.
    """
    text = json.dumps([FORMAT, identity], sort_keys=True, default=str)
    name = hashlib.sha256(text.encode()).hexdigest()[:24]
    for folder in folders:
        found = _open_arrays(folder / name)
        if found is not None:
            return found
    arrays = dict(build())
    for folder in folders:
        if _write_arrays(folder, name, identity, arrays):
            return _open_arrays(folder / name) or arrays
    tried = ", ".join(map(str, folders)) or "no folder"
    logger.warning("what was made stays in memory and will be made again: nothing can be kept in %s", tried)
    return arrays


def _write_arrays(
    folder: Path, name: str, identity: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> bool:
    part, place = folder / f".{name}.{os.getpid()}.tmp", folder / name
    try:
        part.mkdir(parents=True, exist_ok=True)
        for label, array in arrays.items():
            np.save(part / f"{label}.npy", array)
        header = {"format": FORMAT, "identity": dict(identity), "arrays": sorted(arrays)}
        (part / HEADER).write_text(json.dumps(header, indent=2, default=str) + "\n", encoding="utf-8")
        shutil.rmtree(place, ignore_errors=True)  # damaged, or it would have been found
        part.replace(place)
    except OSError as error:
        if error.errno in FAILING:
            raise MolsliceError(failing_disk(error)) from error
        return _open_arrays(place) is not None  # another process may have been faster
    finally:
        shutil.rmtree(part, ignore_errors=True)  # also after Ctrl-C; gone already where all went well
    return True


def _open_arrays(place: Path) -> dict[str, np.ndarray] | None:
    try:
        header = json.loads((place / HEADER).read_text(encoding="utf-8"))
        return {name: np.load(place / f"{name}.npy", mmap_mode="r") for name in header["arrays"]}
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        EOFError,
    ):  # the last for a file that was cut to nothing
        return None
