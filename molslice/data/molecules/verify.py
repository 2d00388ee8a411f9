"""Verify a store of molecules: every byte, every count, and whether the values are possible."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from molslice.data.molecules.joined import find_shards
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.store_files import (
    ARRAYS,
    HEADER,
    KEYS,
    LAYOUT,
    check_header_sum,
    find_wrong_counts,
    read_array,
    read_header,
)
from molslice.ops.vocabulary import ATOM_FEATURE_SIZES, BOND_FEATURE_SIZES
from molslice.types import MolsliceError

CODES_AT_ONCE = 1 << 20
CHUNK_ROWS = 50_000
Advance = Callable[[int], object]
Problems = Iterator[tuple[str, str]]  # the name of a file, and what is wrong with it


@dataclass(slots=True)
class StoreReport:
    """What a store contains, and what is wrong with it.

    Attributes:
        path: The folder.
        problems: What is wrong, one line each with the name of the file; empty for a sound store.
        stores: Number of stores; more than 1 for a folder of stores.
        rows: Number of rows.
        molecules: Number of rows with a molecule.
        atoms: Number of atoms.
        bonds: Number of bonds.
        bytes: Size of all files.
        targets: Names of the targets.
        schema_version: Version of the format.
        versions: Versions of the libraries that wrote the store.
    """

    path: Path
    problems: list[str] = field(default_factory=list)
    stores: int = 1
    rows: int = 0
    molecules: int = 0
    atoms: int = 0
    bonds: int = 0
    bytes: int = 0
    targets: list[str] = field(default_factory=list)
    schema_version: int = 0
    versions: dict[str, str] = field(default_factory=dict)


def verify_store(path: Path, advance: Advance = lambda size: None) -> StoreReport:
    """Verify a store or a folder of stores; the counts of the report include only sound parts.

    `advance` is called with the number of bytes that were read, for progress bars.
    """
    report = StoreReport(path)
    try:
        shards = find_shards(path)
    except MolsliceError as error:
        report.problems.append(str(error))
        return report
    for folder in shards or [path]:
        report.problems += _verify_folder(folder, report, advance)
    report.stores = max(1, len(shards))
    if shards:
        extra = sorted(entry for entry in path.iterdir() if entry not in shards)
        report.problems += [f"{entry} is not part of the store" for entry in extra]
    if not report.problems:
        try:
            report.versions = MoleculeStore.open(path, verify=False).header.get("versions", {})
        except MolsliceError as error:
            report.problems.append(str(error))
    return report


def _verify_folder(folder: Path, report: StoreReport, advance: Advance) -> list[str]:
    """Verify the names, then each file, then the counts, then the values; stop where that fails.

    Returns what is wrong. A sound folder is added to the counts of the report.
    """
    try:
        header = read_header(folder)
        check_header_sum(folder, header)
    except MolsliceError as error:
        return [str(error)]
    if problems := [*_wrong_names(folder, header)]:
        return [f"{folder / file} {problem}" for file, problem in problems]
    arrays, unreadable = dict[str, np.ndarray](), list[str]()
    for name in dict.fromkeys([*LAYOUT, *header["arrays"]]):
        try:
            array = read_array(folder, name, header, advance)
        except MolsliceError as error:
            unreadable.append(str(error))
            continue
        if name in ARRAYS:
            arrays[name] = array
    if unreadable:
        return unreadable
    problems = find_wrong_counts(arrays, header) or [*_wrong_reasons(arrays, header)]
    if problems := problems or [*_wrong_codes(arrays), *_wrong_ends(arrays)]:
        return [f"{folder / file} {problem}" for file, problem in problems]
    report.rows += header["rows"]
    report.molecules += int((np.diff(arrays["atom_offsets"]) > 0).sum())
    report.atoms += len(arrays["atoms"])
    report.bonds += len(arrays["bonds"])
    report.bytes += sum(entry.stat().st_size for entry in folder.iterdir())
    report.targets, report.schema_version = header["target_names"], header["schema_version"]
    return []


def _wrong_names(folder: Path, header: Mapping[str, Any]) -> Problems:
    for key in sorted(header.keys() - KEYS):
        yield HEADER, f"has the unknown key {key!r}"
    for key in ("target_names", "target_units", "atom_target_names"):
        if not all(isinstance(name, str) for name in header.get(key, [])):
            yield HEADER, f"has a value in {key} that is not text"
    expected = {HEADER, *(f"{name}.npy" for name in (*LAYOUT, *header["arrays"]))}
    present = {entry.name for entry in folder.iterdir()}
    for name in sorted(present - expected):
        yield name, f"is not named in {HEADER}"
    for name in sorted(expected - present):
        yield name, "is missing"
    for name in LAYOUT.keys() - header["arrays"].keys():
        yield HEADER, f"has no checksum of {name}.npy"


def _wrong_reasons(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> Problems:
    """Compare the rows with a reason and those without a molecule."""
    empty = set(np.flatnonzero(np.diff(arrays["atom_offsets"]) == 0).tolist())
    stated = {int(row) for row in header["errors"]}
    if stated - empty:
        row = min(stated - empty)
        what = "although it has atoms" if row < header["rows"] else "which does not exist"
        yield HEADER, f"has a reason for row {row}, {what}"
    if empty - stated:
        yield HEADER, f"has no reason why row {min(empty - stated)} has no molecule"


def _wrong_codes(arrays: Mapping[str, np.ndarray]) -> Problems:
    """Find the first impossible code of an atom and of a bond."""
    for kind, sizes in (("atom", ATOM_FEATURE_SIZES), ("bond", (256, 256, *BOND_FEATURE_SIZES))):
        values, offsets = arrays[f"{kind}s"], arrays[f"{kind}_offsets"]
        for start in range(0, len(values), CODES_AT_ONCE):
            wrong = values[start : start + CODES_AT_ONCE] >= np.array(sizes)
            if wrong.any():
                place, column = np.argwhere(wrong)[0] + (start, 0)
                row = int(np.searchsorted(offsets, place, side="right")) - 1
                where = f"row {row}, {kind} {place - offsets[row]}, column {column}"
                yield f"{kind}s.npy", f"has an impossible code at {where}: {values[place, column]}"
                break


def _wrong_ends(arrays: Mapping[str, np.ndarray]) -> Problems:
    """Find the first bond whose atoms do not exist or are the same."""
    sizes = np.diff(arrays["atom_offsets"])
    for start in range(0, len(sizes), CHUNK_ROWS):
        counts = sizes[start : start + CHUNK_ROWS]
        offsets = arrays["bond_offsets"][start : start + len(counts) + 1]
        owner = np.repeat(np.arange(len(counts)), np.diff(offsets))
        ends = arrays["bonds"][offsets[0] : offsets[-1], :2]
        wrong = (ends.max(1, initial=0) >= counts[owner]) | (ends[:, 0] == ends[:, 1])
        if wrong.any():
            place = int(wrong.argmax())
            row, bond = owner[place], place - (offsets[owner[place]] - offsets[0])
            problem = f"joins atoms {ends[place, 0]} and {ends[place, 1]} of {counts[row]}"
            yield "bonds.npy", f"has an impossible bond: bond {bond} of row {start + row} {problem}"
            return
