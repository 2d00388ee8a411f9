"""Several stores of molecules read as one: their rows one after the other, without a copy in memory."""

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from operator import eq
from pathlib import Path
from typing import Any

import numpy as np

from molslice.chem import have_same_features
from molslice.data.molecules.store_files import ABOUT, HEADER, OFFSETS, OPTIONAL_LAYOUT
from molslice.files.atomic import SUFFIX
from molslice.number_text import counted
from molslice.types import MolsliceError

FEATURES = "version of the featurizer"
_COUNTED = re.compile(r"(.*?)(\d+)-of-(\d+)")


class JoinedArray:
    """Arrays read as one array, concatenated along the first axis.

    `joined[rows]` for an integer, a slice, integers or booleans is an array with the rows of the parts that
    it needs. Other indices, `numpy.asarray(joined)` and NumPy's functions copy all rows into memory.

    Args:
        parts: Arrays that differ only in their number of rows.
        shifts: A number for each part that is added to its values; None adds nothing.

    Attributes:
        parts: The arrays.
        shape: Shape of all rows together.
        dtype: Type of the values.
    """

    def __init__(self, parts: Sequence[np.ndarray], shifts: Sequence[int] | None = None) -> None:
        self.parts, self._shifts = tuple(parts), shifts
        lengths = np.array([len(array) for array in parts])
        self._ends = lengths.cumsum()
        self._starts = self._ends - lengths
        self._bounds = self._ends.tolist()  # a search for one row is faster in a list
        self.shape, self.dtype = (int(self._ends[-1]), *parts[0].shape[1:]), parts[0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes of all rows."""
        return sum(array.nbytes for array in self.parts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:  # noqa: ANN401, ARG002
        return np.concatenate([self._part(number) for number in range(len(self.parts))]).astype(
            self.dtype if dtype is None else dtype, copy=False
        )

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401
        if isinstance(index, int | np.integer) and 0 <= index < len(self):
            number = bisect_right(self._bounds, index)
            return self._part(number, index - self._bounds[number] + len(self.parts[number]))
        if isinstance(index, tuple):
            return np.asarray(self)[index]
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1 and start < stop:
                return self._range(start, stop)
            index = np.arange(start, stop, step)
        rows = np.asarray(index)
        if rows.dtype == bool:
            rows = np.arange(len(self))[rows]
        if rows.size and not -len(self) <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"rows {rows.min()} to {rows.max()} are out of range for {len(self)} rows")
        rows = np.where(rows < 0, rows + len(self), rows)
        return self._gather(rows) if rows.ndim else self[int(rows)]

    def _part(self, number: int, rows: Any = slice(None)) -> np.ndarray:  # noqa: ANN401
        values = self.parts[number][rows]
        return values + self._shifts[number] if self._shifts is not None else values

    def _range(self, start: int, stop: int) -> np.ndarray:
        """Return consecutive rows, at least one, without a copy if they are in a single part."""
        pieces = []
        for number in range(bisect_right(self._bounds, start), bisect_left(self._bounds, stop) + 1):
            begin = self._bounds[number] - len(self.parts[number])
            pieces.append(self._part(number, slice(max(start - begin, 0), stop - begin)))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        numbers = np.searchsorted(self._ends, rows, side="right")
        # a stable sort of 16-bit numbers takes linear time
        order = np.argsort(numbers.astype(np.uint16) if len(self.parts) < 2**16 else numbers, kind="stable")
        sizes = np.bincount(numbers, minlength=len(self.parts))
        within = (rows - self._starts[numbers])[order]
        gathered = np.empty((len(rows), *self.shape[1:]), self.dtype)
        end = 0
        for number in np.flatnonzero(sizes).tolist():
            chosen = slice(end, end := end + int(sizes[number]))
            # the mode only avoids a buffer: all rows are in range
            self.parts[number].take(within[chosen], axis=0, out=gathered[chosen], mode="clip")
        if self._shifts is not None:
            gathered += np.repeat(self._shifts, sizes)
        values = np.empty_like(gathered)
        values[order] = gathered
        return values


def join_arrays(stores: Sequence[Mapping[str, np.ndarray]]) -> dict[str, JoinedArray]:
    """Join the arrays of stores that agree with each other."""
    joined = {name: JoinedArray([store[name] for store in stores]) for name in stores[0]}
    for name, array in OFFSETS.items():
        totals = np.cumsum([0, *(len(store[array]) for store in stores)]).tolist()
        # the last offset of a store is the first one of the next
        parts = [store[name][:-1] for store in stores[:-1]] + [stores[-1][name]]
        joined[name] = JoinedArray(parts, totals[:-1])
    return joined


def join_headers(
    names: Sequence[str], stores: Sequence[Mapping[str, np.ndarray]], headers: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Check that stores can be read as one, and join their headers.

    Raises:
        MolsliceError: A store differs from the first one. The message names it and what differs.
    """
    _check_optional_arrays(names, stores)
    properties = [_shared_properties(*pair) for pair in zip(stores, headers, strict=True)]
    first = properties[0]
    for name, stated in zip(names, properties, strict=True):
        for what, value in stated.items():
            alike = have_same_features if what == FEATURES else eq
            if not alike(value, first[what]):
                raise MolsliceError(
                    f"{name} and {names[0]} cannot be read as one store: they differ in {what}: "
                    f"{value or 'no'} and {first[what] or 'no'}"
                )
    rows = np.cumsum([0, *(len(store["targets"]) for store in stores)]).tolist()
    others = len(headers) - 1
    header: dict[str, Any] = {
        "source": str(headers[0]["source"]) + (f" and {counted(others, 'other')}" if others else ""),
        "rows": rows[-1],
        "versions": _common([header.get("versions", {}) for header in headers]),
        "errors": {
            int(row) + first: reason
            for header, first in zip(headers, rows, strict=False)
            for row, reason in header["errors"].items()
        },
    }
    same = _shared(headers)
    for key in ("target_names", "target_units", "atom_target_names", "about"):
        if key in same:
            header[key] = same[key]
    if all("arrays" in stated for stated in headers):
        header["arrays"] = {name: _checksums(name, headers) for name in stores[0]}
    return header


def _check_optional_arrays(names: Sequence[str], stores: Sequence[Mapping[str, np.ndarray]]) -> None:
    """Refuse stores of which some lack an optional array that others have."""
    present = [{name for name in OPTIONAL_LAYOUT if name in arrays} for arrays in stores]
    for name, arrays in zip(names, present, strict=True):
        for owner, unlike in ((names[0], present[0] - arrays), (name, arrays - present[0])):
            if unlike:
                raise MolsliceError(
                    f"{name} and {names[0]} cannot be read as one store: only {owner} has "
                    f"{' and '.join(sorted(unlike))}"
                )


def _shared_properties(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> dict[str, Any]:
    """Return what stores that are read as one have in common."""
    descriptors, options = arrays.get("descriptors"), header.get("about", {}).get(ABOUT, {})
    return {
        "target names": list(header["target_names"]),
        "target units": list(header["target_units"]),
        "names of targets of atoms": list(header.get("atom_target_names", ())),
        "number of descriptors": 0 if descriptors is None else descriptors.shape[1],
        "order of the atoms": options.get("atom_order", ""),
        "treatment of mixtures": options.get("fragment", "keep"),
        "treatment of wildcards": options.get("wildcards", "refuse"),
        FEATURES: header.get("versions", {}).get("featurizer", ""),
    }


def _shared(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Keep what mappings have in common, also inside of mappings."""
    shared: dict[str, Any] = {}
    for key, value in values[0].items():
        others = [mapping.get(key) for mapping in values]
        if all(other == value for other in others):
            shared[key] = value
        elif all(isinstance(other, dict) for other in others):
            shared[key] = _shared([mapping[key] for mapping in values])
    return shared


def _common(versions: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Join the versions of stores; different versions of a library are listed."""
    names = dict.fromkeys(name for stated in versions for name in stated)
    return {
        name: ", ".join(dict.fromkeys(stated.get(name, "unknown") for stated in versions)) for name in names
    }


def _checksums(name: str, headers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    parts = [header["arrays"][name] for header in headers]
    rows = sum(array["shape"][0] for array in parts) - (name in OFFSETS) * (len(parts) - 1)
    total = hashlib.sha256("\n".join(array["sha256"] for array in parts).encode())
    return {"shape": [rows, *parts[0]["shape"][1:]], "sha256": total.hexdigest()}


def find_shards(folder: Path) -> list[Path]:
    """Find the stores in a folder, in the order of the numbers in their names.

    If all names are as in `00002-of-00010`, all of them are required.

    Returns:
        The folders of the stores; empty if `folder` is a store itself or holds no folder.

    Raises:
        MolsliceError: A store of the folder is missing or not complete.
    """
    if (folder / HEADER).exists() or not folder.is_dir():
        return []
    folders = [entry for entry in folder.iterdir() if entry.is_dir()]
    unfinished = next((entry for entry in folders if entry.name.endswith(SUFFIX)), None)
    if unfinished is not None:
        raise MolsliceError(
            f"{folder} is not complete: {unfinished.name} is being written or was left behind"
        )
    shards = sorted((entry for entry in folders if not entry.name.startswith(".")), key=_natural)
    matches = [_COUNTED.fullmatch(shard.name) for shard in shards]
    counted = [match for match in matches if match is not None]
    if counted and len(counted) == len(shards):
        _check_complete(folder, counted)
    return shards


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort by the numbers in a name, so that `part-10` follows `part-9`."""
    return [(int(text), "") if text.isdecimal() else (-1, text) for text in re.split(r"(\d+)", path.name)]


def _check_complete(folder: Path, names: Sequence[re.Match[str]]) -> None:
    prefix, digits, total = names[0].groups()
    numbers = {int(name[2]) for name in names}
    first = 0 if 0 in numbers else 1
    expected = range(first, int(total) + first)
    missing = next((number for number in expected if number not in numbers), None)
    if missing is not None:
        name = f"{prefix}{missing:0{len(digits)}d}-of-{total}"
        raise MolsliceError(f"{folder} is not complete: {name} is missing")
