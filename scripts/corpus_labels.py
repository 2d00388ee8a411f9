"""Read quantum labels and sort the charges into the order of the atoms in a store.

The source is a log of make_gap_data.py or a folder such as data/gap_xtb_100k. A log has its settings in the
first line, then one JSON object per line with `smiles` and either labels or a reason. Labels of molecules in
the valid and test splits of data/gap_xtb and of its large form are excluded, so that a model trained on the
corpus can be tested there.
"""

import hashlib
import json
import math
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from corpus_keys import key_of

from molslice.chem.canonical import canonical_molecule, canonical_order
from molslice.chem.connectivity import connectivity
from molslice.chem.featurize import molecule_arrays
from molslice.chem.smiles import ChemError
from molslice.data.molecules.pcqm4m import TABLE
from molslice.files.atomic import atomic_file
from molslice.files.tables import numbers, read_columns
from molslice.types import MoleculeArrays, MolsliceError

CHUNK_LINES = 2_000
CHARGES = "charges.npz"
CHARGE_UNITS = 1_000  # of an elementary charge
TRAIN_TENTHS = 8  # of ten, by the key of the skeleton: the rule of data/gap_xtb
# name of the target, its unit, and its name in the log
QUANTUM = (
    ("gap", "eV", "gap_ev"),
    ("homo", "eV", "homo_ev"),
    ("lumo", "eV", "lumo_ev"),
    ("dipole", "D", "dipole_debye"),
    ("energy_per_atom", "eV", "energy_ev"),
)
PER_ATOM = "energy_per_atom_ev"
# name in the log of each column of a folder
COLUMNS = {
    "homolumogap": "gap_ev",
    "homo_ev": "homo_ev",
    "lumo_ev": "lumo_ev",
    "dipole_debye": "dipole_debye",
    PER_ATOM: PER_ATOM,
}
OUTCOMES = ("labeled", "without label", "held out by gap_xtb", "cannot be parsed")


class Record(NamedTuple):
    """The labels of one molecule.

    Attributes:
        key: Key of its canonical SMILES.
        values: Quantum labels in the order of `QUANTUM`, NaN if missing.
        charges: Partial charge of each atom in the order of the arrays, in elementary charges.
        identity: Checksum of the arrays that the charges belong to.
    """

    key: int
    values: list[float]
    charges: np.ndarray
    identity: int


def arrays_identity(molecule: MoleculeArrays) -> int:
    """Compute a checksum of the arrays of a molecule."""
    content = hashlib.sha256(molecule.atoms.tobytes() + molecule.bonds.tobytes())
    return int.from_bytes(content.digest()[:8], "big")


def read_record(record: dict[str, Any]) -> Record | str:
    """Convert one object of the log; returns one of `OUTCOMES` if it cannot be used."""
    if "reason" in record or "gap_ev" not in record:
        return "without label"
    try:
        mol, smiles = canonical_molecule(record["smiles"])
        order = canonical_order(record["smiles"])
        molecule = molecule_arrays(smiles or "")
    except ChemError:
        return "cannot be parsed"
    if key_of(connectivity(mol)) % 10 >= TRAIN_TENTHS:
        return "held out by gap_xtb"
    charges = np.array(record.get("charges", []), np.float64)
    values = [float(record.get(name, math.nan)) for *_, name in QUANTUM]
    if PER_ATOM in record:  # of a folder, whose charges lack those of the hydrogens
        values[-1] = float(record[PER_ATOM])
        if len(charges) != len(order):
            raise MolsliceError(f"{record['smiles']} has {len(order)} atoms, but {len(charges)} charges")
    else:
        values[-1] = values[-1] / len(charges) if len(charges) else math.nan
    # the charges of the atoms of the SMILES are before those of the added hydrogens
    heavy = charges[order] if len(charges) >= len(order) else np.full(len(order), math.nan)
    return Record(key_of(smiles or ""), values, heavy.astype(np.float32), arrays_identity(molecule))


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of many molecules, sorted by key.

    Attributes:
        keys: Keys of canonical SMILES, uint64 [n], sorted and unique.
        values: Quantum labels, float32 [n, 5], NaN if missing.
        charges: Charges of all atoms, float32 [sum of atoms].
        offsets: Start of the charges of each molecule and end of the last, int64 [n + 1].
        identities: Checksum of the arrays that the charges belong to, uint64 [n].
        counts: Number of records by outcome.
    """

    keys: np.ndarray
    values: np.ndarray
    charges: np.ndarray
    offsets: np.ndarray
    identities: np.ndarray
    counts: dict[str, int]

    def places(self, keys: np.ndarray) -> np.ndarray:
        """Return the index of each key, int64; -1 for a molecule without labels."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        index = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[index] == keys, index, -1)

    def charges_of(self, place: int, molecule: MoleculeArrays) -> np.ndarray | None:
        """Return the charges of the atoms of a molecule; None if they belong to other arrays."""
        if arrays_identity(molecule) != int(self.identities[place]):
            return None
        return self.charges[self.offsets[place] : self.offsets[place + 1]]


def chunks_of_labels(source: Path) -> Iterator[list[bytes]]:
    """Yield the records of a log or of a folder in chunks, each a JSON object with its line end.

    Raises:
        MolsliceError: The source cannot be read, or its table and its charges have different rows.
    """
    try:
        lines = _lines_of_folder(source) if source.is_dir() else _lines_of_log(source)
        while chunk := list(islice(lines, CHUNK_LINES)):
            yield chunk
    except OSError as error:
        raise MolsliceError(f"cannot read {source}: {error.strerror}") from error


def _lines_of_log(log: Path) -> Iterator[bytes]:
    """Yield the lines after the first. A last line without a line end is still being written."""
    with log.open("rb") as file:
        next(file, None)
        yield from (line for line in file if line.endswith(b"\n"))


def _lines_of_folder(folder: Path) -> Iterator[bytes]:
    """Yield the rows of a folder in the layout of data/gap_xtb_100k as lines of a log."""
    file = folder / CHARGES
    try:
        with np.load(file) as arrays:
            charges, offsets = arrays["charges"] / CHARGE_UNITS, arrays["atom_offsets"]
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise MolsliceError(f"cannot read {file}: {error}") from error
    row = 0
    for chunk in read_columns(folder / TABLE, ["smiles", *COLUMNS]):
        values = {name: numbers(chunk[column], column, chunk.where) for column, name in COLUMNS.items()}
        for place, smiles in enumerate(chunk["smiles"]):
            if row + 1 >= len(offsets):
                raise MolsliceError(f"{file} has {len(offsets) - 1} rows, fewer than {TABLE}")
            record = {name: float(column[place]) for name, column in values.items()}
            record |= {"smiles": str(smiles), "charges": charges[offsets[row] : offsets[row + 1]].tolist()}
            yield json.dumps(record).encode() + b"\n"
            row += 1
    if row + 1 != len(offsets):
        raise MolsliceError(f"{file} has {len(offsets) - 1} rows, but {TABLE} has {row}")


def chunk_path(folder: Path, lines: Sequence[bytes]) -> Path:
    """Return the file of a chunk, named by the checksum of its lines, so that a log may grow."""
    return folder / f"{hashlib.sha256(b''.join(lines)).hexdigest()[:24]}.npz"


def write_chunk(lines: Sequence[bytes], first: int, log: str, path: Path) -> int:
    """Convert lines of a log and write them to a file; returns their number.

    Raises:
        MolsliceError: A line is not a JSON object with a SMILES, or a label is not a number.
    """
    records: list[Record] = []
    outcomes: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
    for number, line in enumerate(lines, start=first):
        try:
            content = json.loads(line)
            if not isinstance(content["smiles"], str):
                raise TypeError("smiles is not text")
        except (ValueError, TypeError, KeyError) as error:
            raise MolsliceError(f"{log}, line {number} is not a record with a SMILES: {error}") from error
        try:
            record = read_record(content)
        except MolsliceError:
            raise
        except (ValueError, TypeError) as error:
            raise MolsliceError(f"{log}, line {number} has a label that is not a number: {error}") from error
        outcomes[record if isinstance(record, str) else "labeled"] += 1
        if isinstance(record, Record):
            records.append(record)
    with atomic_file(path) as file:
        np.savez_compressed(
            file,
            keys=np.array([record.key for record in records], np.uint64),
            values=np.array([record.values for record in records], np.float32).reshape(-1, len(QUANTUM)),
            charges=np.concatenate([np.empty(0, np.float32), *(record.charges for record in records)]),
            sizes=np.array([len(record.charges) for record in records], np.int64),
            identities=np.array([record.identity for record in records], np.uint64),
            counts=np.array(list(outcomes.values()), np.int64),
        )
    return len(lines)


def read_labels(paths: Sequence[Path]) -> Labels:
    """Join the files of all chunks. If a molecule is labeled twice, the first labels are used."""
    parts = []
    for path in paths:
        with np.load(path) as arrays:
            parts.append(dict(arrays))
    return _assemble(parts)


def _assemble(parts: Sequence[dict[str, np.ndarray]]) -> Labels:
    empty = {"keys": np.uint64, "charges": np.float32, "sizes": np.int64, "identities": np.uint64}
    joined = {
        name: np.concatenate([np.empty(0, kind), *(arrays[name] for arrays in parts)])
        for name, kind in empty.items()
    }
    values = np.concatenate(
        [np.empty((0, len(QUANTUM)), np.float32), *(arrays["values"] for arrays in parts)]
    )
    keys, first = np.unique(joined["keys"], return_index=True)
    starts = np.cumsum(joined["sizes"]) - joined["sizes"]
    pieces = [joined["charges"][starts[i] : starts[i] + joined["sizes"][i]] for i in first]
    counts = (
        np.sum([arrays["counts"] for arrays in parts], axis=0, initial=0)
        if parts
        else np.zeros(len(OUTCOMES))
    )
    return Labels(
        keys=keys,
        values=values[first],
        charges=np.concatenate([np.empty(0, np.float32), *pieces]),
        offsets=np.concatenate([[0], np.cumsum(joined["sizes"][first])]).astype(np.int64),
        identities=joined["identities"][first],
        counts={**dict(zip(OUTCOMES, map(int, counts), strict=True)), "molecules": len(keys)},
    )
