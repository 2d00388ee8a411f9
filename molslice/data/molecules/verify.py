"""Verify a store of molecules: every byte, every count, and whether the values are possible."""

from collections.abc import Callable, Iterator
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
        _Verification(folder, report, advance).run()
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


class _Verification:
    """The verification of one folder, whose findings are added to a report."""

    def __init__(self, folder: Path, report: StoreReport, advance: Advance) -> None:
        self.folder, self.report, self.advance = folder, report, advance
        self.found = 0  # number of problems of this folder
        self.header: dict[str, Any] = {}
        self.arrays: dict[str, np.ndarray] = {}

    def run(self) -> None:
        """Verify the header, then each file, then the counts, then the values; stop where that fails."""
        for step in (self._header, self._files, self._counts, self._values):
            step()
            if self.found:
                return
        report = self.report
        report.rows += self.header["rows"]
        report.molecules += int((np.diff(self.arrays["atom_offsets"]) > 0).sum())
        report.atoms += len(self.arrays["atoms"])
        report.bonds += len(self.arrays["bonds"])
        report.bytes += sum(entry.stat().st_size for entry in self.folder.iterdir())
        report.targets, report.schema_version = self.header["target_names"], self.header["schema_version"]

    def _add(self, file: str, problem: str) -> None:
        self._fail(f"{self.folder / file} {problem}")

    def _fail(self, problem: str) -> None:
        self.found += 1
        self.report.problems.append(problem)

    def _header(self) -> None:
        try:
            self.header = read_header(self.folder)
            check_header_sum(self.folder, self.header)
        except MolsliceError as error:
            self._fail(str(error))
            return
        for key in sorted(self.header.keys() - KEYS):
            self._add(HEADER, f"has the unknown key {key!r}")
        for key in ("target_names", "target_units", "atom_target_names"):
            if not all(isinstance(name, str) for name in self.header.get(key, [])):
                self._add(HEADER, f"has a value in {key} that is not text")

    def _files(self) -> None:
        names = dict.fromkeys([*LAYOUT, *self.header["arrays"]])
        expected = {HEADER, *(f"{name}.npy" for name in names)}
        present = {entry.name for entry in self.folder.iterdir()}
        for name in sorted(present - expected):
            self._add(name, f"is not named in {HEADER}")
        for name in sorted(expected - present):
            self._add(name, "is missing")
        for name in LAYOUT.keys() - self.header["arrays"].keys():
            self._add(HEADER, f"has no checksum of {name}.npy")
        for name in names if not self.found else ():
            try:
                array = read_array(self.folder, name, self.header, self.advance)
            except MolsliceError as error:
                self._fail(str(error))
                continue
            if name in ARRAYS:
                self.arrays[name] = array

    def _counts(self) -> None:
        for file, problem in find_wrong_counts(self.arrays, self.header):
            self._add(file, problem)
        if not self.found:
            self._reasons()

    def _reasons(self) -> None:
        """Compare the rows with a reason and those without a molecule."""
        empty = set(np.flatnonzero(np.diff(self.arrays["atom_offsets"]) == 0).tolist())
        stated = {int(row) for row in self.header["errors"]}
        if stated - empty:
            row = min(stated - empty)
            what = "although it has atoms" if row < self.header["rows"] else "which does not exist"
            self._add(HEADER, f"has a reason for row {row}, {what}")
        if empty - stated:
            self._add(HEADER, f"has no reason why row {min(empty - stated)} has no molecule")

    def _values(self) -> None:
        for name, sizes in (("atoms", ATOM_FEATURE_SIZES), ("bonds", (256, 256, *BOND_FEATURE_SIZES))):
            self._codes(name, np.array(sizes))
        self._ends()

    def _codes(self, name: str, sizes: np.ndarray) -> None:
        values, offsets = self.arrays[name], self.arrays[f"{name[:-1]}_offsets"]
        for start in range(0, len(values), CODES_AT_ONCE):
            wrong = values[start : start + CODES_AT_ONCE] >= sizes
            if wrong.any():
                place, column = np.argwhere(wrong)[0]
                row = int(np.searchsorted(offsets, start + place, side="right")) - 1
                value = values[start + place, column]
                where = f"row {row}, {name[:-1]} {start + place - offsets[row]}, column {column}"
                self._add(f"{name}.npy", f"has an impossible code at {where}: {value}")
                return

    def _ends(self) -> None:
        """Check that the atoms of each bond exist and differ."""
        for start, stop in _row_chunks(self.header["rows"]):
            counts = np.diff(self.arrays["atom_offsets"][start : stop + 1])
            offsets = self.arrays["bond_offsets"][start : stop + 1]
            owner = np.repeat(np.arange(stop - start), np.diff(offsets))
            ends = self.arrays["bonds"][offsets[0] : offsets[-1], :2]
            wrong = (ends.max(1, initial=0) >= counts[owner]) | (ends[:, 0] == ends[:, 1])
            if wrong.any():
                place = int(wrong.argmax())
                row, bond = owner[place], place - (offsets[owner[place]] - offsets[0])
                problem = f"joins atoms {ends[place, 0]} and {ends[place, 1]} of {counts[row]}"
                self._add("bonds.npy", f"has an impossible bond: bond {bond} of row {start + row} {problem}")
                return


def _row_chunks(rows: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + CHUNK_ROWS, rows)) for start in range(0, rows, CHUNK_ROWS))
