"""The files of a store: arrays, and a JSON header with counts, names, versions and checksums."""

import contextlib
import hashlib
import importlib.metadata
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from molslice.chem import FEATURIZER_VERSION
from molslice.files.npy import read_array_header
from molslice.files.parsing import read_json_object
from molslice.files.received import check_received
from molslice.types import MolsliceError
from molslice.version import __version__

SCHEMA_VERSION = 1
"""Increased when older versions of molslice cannot read new stores. All versions from 1 are read."""

HEADER = "header.json"
ABOUT = "prepared"  # the key of what `molslice prepare` says about a store, under `about`
ATOM_COLUMNS, BOND_COLUMNS = 9, 5
# dtype and number of columns of each array (None: one-dimensional; 0: one per target)
LAYOUT: dict[str, tuple[str, int | None]] = {
    "atoms": ("|u1", ATOM_COLUMNS),
    "bonds": ("|u1", BOND_COLUMNS),
    "atom_offsets": ("<i8", None),
    "bond_offsets": ("<i8", None),
    "targets": ("<f4", 0),
}
# arrays that a store may have besides; other versions of this package ignore them
OPTIONAL_LAYOUT: dict[str, tuple[str, int | None]] = {
    "atom_targets": ("<f4", 0),
    "groups": ("<u8", None),
    "descriptors": ("<f4", 0),
    "coordinates": ("<f2", 3),
}
OFFSETS = {"atom_offsets": "atoms", "bond_offsets": "bonds"}  # array -> what it counts
ARRAYS = {**LAYOUT, **OPTIONAL_LAYOUT}

MOST_ATOMS = 256  # of a molecule, because the atoms of a bond are bytes
BLOCK = 1 << 24  # bytes
MAX_BYTES = 1 << 32  # the header has a reason for each row that cannot be read
SUM = "header_sha256"  # SHA-256 of the file with an empty text in its place
# required keys besides `schema_version`; `arrays` maps names to objects
KINDS = {
    "arrays": dict,
    "errors": dict,
    "rows": int,
    "source": str,
    "target_names": list,
    "target_units": list,
}
KEYS = {*KINDS, "schema_version", SUM, "atoms", "bonds", "atom_target_names", "about", "versions"}


def current_versions() -> dict[str, str]:
    """Return the versions of molslice, its featurizer and the installed libraries for the header."""
    versions = {"molslice": __version__, "featurizer": str(FEATURIZER_VERSION)}
    for name in ("numpy", "rdkit"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def write_header(folder: Path, header: Mapping[str, Any]) -> None:
    """Write `header.json` with its schema version and its checksum, which replace earlier ones."""
    first = {"schema_version": SCHEMA_VERSION, SUM: ""}
    text = json.dumps({**first, **header, **first}, indent=1)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / HEADER).write_text(text.replace(f'"{SUM}": ""', f'"{SUM}": "{digest}"', 1), encoding="utf-8")


def read_header(folder: Path) -> dict[str, Any]:
    """Read `header.json`, and check its version, its keys and the types of their values.

    Raises:
        MolsliceError: The folder is not a store, a newer molslice wrote it, or a key is missing or invalid.
            The message names the file.
    """
    file = folder / HEADER
    try:
        header = read_json_object(file, MAX_BYTES)
    except MolsliceError as error:
        raise MolsliceError(f"{folder} is not a store of molecules: {error}") from error
    version = header.get("schema_version")
    if type(version) is not int or version < 1:
        raise MolsliceError(f"{file}: invalid schema_version: {version!r:.80}")
    if version > SCHEMA_VERSION:
        raise MolsliceError(
            f"{file} was written by a newer molslice: it has schema version {version}, and this molslice "
            f"reads versions up to {SCHEMA_VERSION}"
        )
    missing = KINDS.keys() - header.keys()
    if missing:
        raise MolsliceError(f"{file} lacks {', '.join(sorted(missing))}")
    wrong = [key for key, kind in KINDS.items() if type(header[key]) is not kind]
    if not wrong and not all(isinstance(stated, dict) for stated in header["arrays"].values()):
        wrong = ["arrays"]
    if not isinstance(header.get("atom_target_names", []), list):
        wrong = ["atom_target_names"]
    if not wrong and not all(row.isdecimal() for row in header["errors"]):
        wrong = ["errors"]
    if wrong:
        raise MolsliceError(f"{file}: invalid {wrong[0]}: {header[wrong[0]]!r:.80}")
    return header


def check_header_sum(folder: Path, header: Mapping[str, Any]) -> None:
    """Compare the header with its checksum. The oldest stores have none.

    Raises:
        MolsliceError: The checksum differs, or is missing beside an unknown key. The message names the file.
    """
    stated = header.get(SUM)
    if stated is None:
        if unknown := sorted(header.keys() - KEYS):  # such as the name of the checksum with a changed letter
            raise MolsliceError(f"{folder / HEADER} has no checksum, and the unknown key {unknown[0]!r}")
        return
    content = (folder / HEADER).read_bytes()
    empty = content.replace(f'"{stated}"'.encode(), b'""', 1)
    if hashlib.sha256(empty).hexdigest() != stated:
        raise MolsliceError(f"{folder / HEADER} does not match its checksum")


def read_array(
    folder: Path, name: str, header: Mapping[str, Any], advance: Callable[[int], object] | None
) -> np.ndarray:
    """Map an array of a store into memory, after a comparison with the header.

    `advance` is called with the number of bytes that were read for the checksum; None compares no checksum.

    Raises:
        MolsliceError: The file cannot be read, or differs from the header.
    """
    file, stated = folder / f"{name}.npy", header["arrays"].get(name, {})
    known = ARRAYS.get(name, (None,))[0]  # None for an array of a newer molslice
    check_received(file)
    try:
        with file.open("rb") as stream:
            start, shape, dtype = read_array_header(stream)
            expected = start + math.prod(shape) * np.dtype(dtype).itemsize
            digest = None if advance is None else _checksum(stream, advance)
            size = stream.seek(0, 2)
        if known is not None and dtype != known:
            problem = f"has the type {dtype} instead of {known}"
        elif list(shape) != stated.get("shape"):
            problem = f"has the shape {list(shape)}, but {HEADER} says {stated.get('shape')}"
        elif size != expected:
            problem = f"has {size:,} bytes instead of {expected:,}"
        elif digest is not None and digest != stated.get("sha256"):
            problem = f"does not match its checksum in {HEADER}"
        else:  # a plain array is faster to index than a memmap
            return np.load(file, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise MolsliceError(f"cannot read {file}: {error}") from error
    raise MolsliceError(f"{file} {problem}")


def _checksum(stream: BinaryIO, advance: Callable[[int], object]) -> str:
    digest = hashlib.sha256()
    while block := stream.read(BLOCK):
        digest.update(block)
        advance(len(block))
    return digest.hexdigest()


def find_wrong_counts(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Compare counts, shapes and offsets; returns the name of a file and what is wrong with it."""
    rows, names, problems = header["rows"], header["target_names"], []
    counts = {kind: len(np.atleast_1d(arrays[kind])) for kind in ("atoms", "bonds")}
    for kind, count in counts.items():
        if header.get(kind, count) != count:
            problems.append((HEADER, f"says {header[kind]!r} {kind}, but {kind}.npy has {count}"))
    if len(header["target_units"]) != len(names):
        problems.append((HEADER, f"has {len(header['target_units'])} units for {len(names)} targets"))
    of_atoms = header.get("atom_target_names", [])
    if bool(of_atoms) != ("atom_targets" in arrays):
        problems.append((HEADER, f"names {len(of_atoms)} targets of atoms, which atom_targets.npy must have"))
    lengths = {**counts, "atom_targets": counts["atoms"], "coordinates": counts["atoms"]}
    lengths |= dict.fromkeys(OFFSETS, rows + 1)
    widths = {"targets": len(names), "atom_targets": len(of_atoms)}
    for name, array in arrays.items():
        columns = widths.get(name, ARRAYS[name][1])
        if name == "descriptors":
            columns = (*array.shape, 1, 1)[1]
        shape = (lengths.get(name, rows), *([] if columns is None else [columns]))
        if array.shape != shape:
            expected = f"but {HEADER} implies {list(shape)}"
            problems.append((f"{name}.npy", f"has the shape {list(array.shape)}, {expected}"))
    for name, counted in OFFSETS.items() if not problems else ():
        ends, total = arrays[name], counts[counted]
        sizes = np.diff(ends)
        if ends[0] != 0 or ends[-1] != total:
            problems.append((f"{name}.npy", f"goes from {ends[0]} to {ends[-1]} instead of 0 to {total}"))
        elif (sizes < 0).any():
            problems.append((f"{name}.npy", f"decreases at row {int(np.argmax(sizes < 0))}"))
        elif counted == "atoms" and (sizes > MOST_ATOMS).any():
            row = int(np.argmax(sizes > MOST_ATOMS))
            problems.append((f"{name}.npy", f"gives row {row} {sizes[row]} atoms, more than {MOST_ATOMS}"))
    return problems
