"""Read lines of SMILES, identify molecules by keys, and select the rows of a corpus.

A key is the first eight bytes of the SHA-256, as an integer. The probability that any two of ten million
molecules share a key is 3e-6.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from molslice.chem.canonical import canonical_molecule
from molslice.chem.connectivity import main_connectivity
from molslice.chem.smiles import ChemError, parse_smiles
from molslice.data.molecules.ogb_split import read_split_file
from molslice.data.molecules.pcqm4m import SPLITS, TABLE
from molslice.files.atomic import atomic_file
from molslice.files.lines import read_byte_lines
from molslice.files.tables import open_table
from molslice.types import MolsliceError

MAX_HEAVY = 64
SHARD_LINES = 10_000
USUAL_NAMES = ("smiles", "canonical_smiles", "isomeric_smiles", "mol", "molecule", "structure", "drug")
# why a line is not a row; index 0 is for lines that are rows
REASONS = (
    "",
    "blank line",
    "cannot be parsed",
    f"more than {MAX_HEAVY} heavy atoms",
    "no heavy atom",
    "canonical SMILES cannot be parsed",
)


def key_of(text: str) -> int:
    """Compute the key of a canonical SMILES or of a skeleton."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


@dataclass(frozen=True, slots=True)
class Shard:
    """Consecutive lines of one file.

    Attributes:
        reasons: Index into `REASONS` for each line, uint8 [n].
        smiles: Canonical SMILES of each line, empty if the line is not a row.
        keys: Key of the canonical SMILES, uint64 [n].
        skeletons: Key of the skeleton of the main fragment, uint64 [n].
    """

    reasons: np.ndarray
    smiles: list[str]
    keys: np.ndarray
    skeletons: np.ndarray

    @classmethod
    def of_lines(cls, lines: Sequence[bytes]) -> "Shard":
        """Parse lines of a SMILES. Text after a blank is ignored."""
        rows = [_read_line(line) for line in lines]
        reasons, smiles, keys, skeletons = zip(*rows, strict=True) if rows else ((), (), (), ())
        return cls(
            np.array(reasons, np.uint8),
            list(smiles),
            np.array(keys, np.uint64),
            np.array(skeletons, np.uint64),
        )

    def write(self, path: Path) -> None:
        """Write the shard atomically."""
        text = np.frombuffer("\n".join(self.smiles).encode(), np.uint8)
        with atomic_file(path) as file:
            np.savez_compressed(
                file, reasons=self.reasons, keys=self.keys, skeletons=self.skeletons, smiles=text
            )

    @classmethod
    def read(cls, path: Path) -> "Shard":
        """Read the result of `write`."""
        with np.load(path) as arrays:
            smiles = arrays["smiles"].tobytes().decode().split("\n")
            return cls(arrays["reasons"], smiles, arrays["keys"], arrays["skeletons"])


def _read_line(line: bytes) -> tuple[int, str, int, int]:
    words = line.split(maxsplit=1)
    if not words:
        return 1, "", 0, 0
    try:
        mol, smiles = canonical_molecule(words[0].decode("utf-8", "replace"))
    except ChemError:
        return 2, "", 0, 0
    heavy = mol.GetNumHeavyAtoms()
    reason = 3 if heavy > MAX_HEAVY else 4 if heavy == 0 else 5 if smiles is None else 0
    if reason or smiles is None:
        return reason, "", 0, 0
    return 0, smiles, key_of(smiles), key_of(main_connectivity(mol))


def write_shard(lines: Sequence[bytes], path: Path) -> int:
    """Parse the lines of a shard and write them to a file; returns the number of lines."""
    Shard.of_lines(lines).write(path)
    return len(lines)


def shards_of_file(path: Path) -> Iterator[list[bytes]]:
    """Yield the lines of a file in shards. Only one shard is in memory."""
    lines: list[bytes] = []
    for line in read_byte_lines(path):
        lines.append(line)
        if len(lines) == SHARD_LINES:
            yield lines
            lines = []
    if lines:
        yield lines


@dataclass(frozen=True, slots=True)
class Excluded:
    """The skeletons of a table whose molecules are excluded.

    Attributes:
        file: Name of the table or of the data set.
        rows: Number of its rows.
        unreadable: Number of rows without a molecule.
        skeletons: Keys of the skeletons of the main fragments, uint64, sorted and unique.
    """

    file: str
    rows: int
    unreadable: int
    skeletons: np.ndarray


def read_excluded(path: Path, column: str | None) -> Excluded:
    """Read the molecules of a table, or the molecules of a data set that are not for training.

    Args:
        path: A CSV file, plain or gzip; or the folder of a data set in the layout of PCQM4M, of which all
            splits but train are read.
        column: Name of the column of SMILES of a table; None searches for one of `USUAL_NAMES`.

    Raises:
        MolsliceError: The table cannot be read, or the column is missing.
    """
    wanted = None
    if path.is_dir():
        splits = read_split_file(path / SPLITS)
        wanted = {int(row) for name, split_rows in splits.items() if name != "train" for row in split_rows}
        column = "smiles"
    keys: set[int] = set()
    rows = unreadable = 0
    with open_table(path if wanted is None else path / TABLE) as table:
        name = column or _find_column(path, table.names)
        for chunk in table.chunks(10_000, [name]):
            for row, text in enumerate(chunk[name], start=chunk.first - 1):
                if wanted is not None and row not in wanted:
                    continue
                rows += 1
                try:
                    keys.add(key_of(main_connectivity(parse_smiles(text))))
                except ChemError:
                    unreadable += 1
    return Excluded(path.name, rows, unreadable, np.array(sorted(keys), np.uint64))


def _find_column(path: Path, names: Sequence[str]) -> str:
    for usual in USUAL_NAMES:
        for name in names:
            if name.strip().lower() == usual:
                return name
    raise MolsliceError(
        f"{path}: cannot find the column of SMILES ({', '.join(USUAL_NAMES)}); its columns are "
        f"{', '.join(names)}. Name it with --smiles-column"
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows of a corpus, and the reasons why other lines are not rows.

    Attributes:
        lines: Numbers of the chosen lines of each shard, from 0.
        counts: Number of lines by reason, for each input file.
        excluded: Number of molecules excluded by the skeletons of each table.
        candidates: Number of distinct molecules that remain.
    """

    lines: list[np.ndarray]
    counts: dict[str, dict[str, int]]
    excluded: dict[str, int]
    candidates: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(map(len, self.lines))


def select(
    shards: Iterable[tuple[str, Path]],
    excluded: Sequence[Excluded],
    wanted: int | None,
    labeled: np.ndarray,
) -> Selection:
    """Select the first line of each molecule whose skeleton is in no table.

    This needs about 100 bytes of memory for each line.

    Args:
        shards: Name of the input file and path of each shard, in order.
        excluded: The tables. A molecule counts for the first table that has its skeleton.
        wanted: Number of rows; None for all. The rows with the smallest keys are selected, so that a larger
            corpus contains a smaller one.
        labeled: Keys of molecules that are always selected, uint64.
    """
    names: list[str] = []
    parts: dict[str, list[np.ndarray]] = {"reasons": [], "keys": [], "skeletons": []}
    for name, path in shards:
        shard = Shard.read(path)
        names.append(name)
        for field, values in parts.items():
            values.append(getattr(shard, field))
    if not names:
        return Selection([], {}, {table.file: 0 for table in excluded}, 0)
    sizes = [len(reasons) for reasons in parts["reasons"]]
    reason, key, skeleton = (np.concatenate(values) for values in parts.values())
    readable = np.flatnonzero(reason == 0)
    left = np.zeros(len(key), bool)
    left[readable[np.unique(key[readable], return_index=True)[1]]] = True
    counts = _count(names, sizes, reason, (reason == 0) & ~left)
    by_table = {}
    for table in excluded:
        is_excluded = left & np.isin(skeleton, table.skeletons)
        by_table[table.file] = int(is_excluded.sum())
        left &= ~is_excluded
    chosen = np.flatnonzero(left)
    if wanted is not None and wanted < len(chosen):
        is_wanted = np.isin(key[chosen], labeled)
        is_wanted[np.argsort(key[chosen])[:wanted]] = True
        chosen = chosen[is_wanted]
    bounds = np.cumsum([0, *sizes])
    lines = np.split(chosen, np.searchsorted(chosen, bounds[1:-1]))
    lines = [shard_lines - start for shard_lines, start in zip(lines, bounds[:-1], strict=True)]
    return Selection(lines, counts, by_table, int(left.sum()))


def _count(
    names: Sequence[str], sizes: Sequence[int], reason: np.ndarray, repeated: np.ndarray
) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    start = 0
    for name, size in zip(names, sizes, strict=True):
        shard_reasons, duplicates = reason[start : start + size], int(repeated[start : start + size].sum())
        start += size
        file_counts = counts.setdefault(name, {"lines": 0, **dict.fromkeys(REASONS[1:], 0), "duplicate": 0})
        file_counts["lines"] += size
        file_counts["duplicate"] += duplicates
        for number, why in enumerate(REASONS[1:], start=1):
            file_counts[why] += int((shard_reasons == number).sum())
    return counts
