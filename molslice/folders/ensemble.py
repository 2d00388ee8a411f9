"""The folder of an ensemble: `ensemble.json`, and a run folder for each member in `members/`."""

import json
from pathlib import Path

from molslice.files.atomic import write_atomically
from molslice.files.parsing import read_json_object
from molslice.types import MolsliceError

ENSEMBLE, MEMBERS = "ensemble.json", "members"
FORMAT = "molslice-ensemble-1"
MOST = 100


def is_ensemble(folder: Path) -> bool:
    """Whether a folder holds an ensemble, which may not be complete."""
    return (folder / ENSEMBLE).is_file()


def member_folder(folder: Path, index: int) -> Path:
    """Return the run folder of a member."""
    return folder / MEMBERS / str(index)


def member_folders(folder: Path) -> list[Path]:
    """Return the run folders of all members.

    Raises:
        MolsliceError: `ensemble.json` is damaged, or a member is not there yet.
    """
    record = read_json_object(folder / ENSEMBLE)
    count = record.get("members")
    if record.get("format") != FORMAT:
        raise MolsliceError(
            f"{folder / ENSEMBLE} has format {record.get('format')!r}; this version reads {FORMAT!r}"
        )
    if isinstance(count, bool) or not isinstance(count, int) or not 2 <= count <= MOST:
        raise MolsliceError(f"invalid members in {folder / ENSEMBLE}: {count!r}; 2 to {MOST} are possible")
    return [member_folder(folder, index) for index in range(count)]


def write_ensemble(folder: Path, members: int) -> None:
    """Write `ensemble.json`.

    Raises:
        MolsliceError: The number of members is not possible.
    """
    if not 2 <= members <= MOST:
        raise MolsliceError(f"members must be from 2 to {MOST}, got {members}")
    write_atomically(folder / ENSEMBLE, json.dumps({"format": FORMAT, "members": members}) + "\n")
