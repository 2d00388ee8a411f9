"""The arrays of a store, and its header: a JSON file with counts, names, versions and checksums."""

import contextlib
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from molslice.chem import FEATURIZER_VERSION
from molslice.files.parsing import read_json_object
from molslice.types import MolsliceError
from molslice.version import __version__

__all__ = [
    "ABOUT",
    "ARRAYS",
    "ATOM_COLUMNS",
    "BOND_COLUMNS",
    "HEADER",
    "KEYS",
    "LAYOUT",
    "OFFSETS",
    "OPTIONAL_LAYOUT",
    "SCHEMA_VERSION",
    "check_header_sum",
    "current_versions",
    "expected_shapes",
    "read_header",
    "write_header",
]

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
}
OFFSETS = {"atom_offsets": "atoms", "bond_offsets": "bonds"}  # array -> what it counts
ARRAYS = {**LAYOUT, **OPTIONAL_LAYOUT}

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
    _check_version(file, header.get("schema_version"))
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
        raise MolsliceError(f"{folder / HEADER} does not match its checksum; delete the folder")


def _check_version(file: Path, version: object) -> None:
    if type(version) is not int or version < 1:
        raise MolsliceError(f"{file}: invalid schema_version: {version!r:.80}")
    if version > SCHEMA_VERSION:
        raise MolsliceError(
            f"{file} was written by a newer molslice: it has schema version {version}, and this molslice "
            f"reads versions up to {SCHEMA_VERSION}"
        )


def expected_shapes(
    arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]
) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array that the header of a store and the number of atoms and bonds imply."""
    rows, descriptors = header["rows"], arrays.get("descriptors")
    atoms, bonds = (arrays[name].shape[:1] for name in ("atoms", "bonds"))  # () without dimensions
    return {
        "atoms": (*atoms, ATOM_COLUMNS),
        "bonds": (*bonds, BOND_COLUMNS),
        "atom_offsets": (rows + 1,),
        "bond_offsets": (rows + 1,),
        "targets": (rows, len(header["target_names"])),
        "groups": (rows,),
        "atom_targets": (*atoms, len(header.get("atom_target_names", []))),
        "descriptors": (rows, 1 if descriptors is None else (*descriptors.shape, 1, 1)[1]),
    }
