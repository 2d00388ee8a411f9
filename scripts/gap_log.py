"""Label molecules into a log that survives being killed: JSON lines, one for each finished molecule."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gap_label import label_all, settings
from gap_source import Candidate
from tqdm import tqdm

from molslice.files.lock import lock_folder

LABELS = ("gap_ev", "homo_ev", "lumo_ev", "dipole_debye", "energy_ev", "charges")


def header() -> dict[str, Any]:
    """The first line of a log: what the labels in it depend on besides the SMILES, and which they are."""
    return {"settings": settings(), "labels": list(LABELS)}


def start_log(log: Path) -> None:
    """Create the log, or cut off a last line that was not written whole.

    Raises:
        ValueError: the log was made with other settings or versions.
    """
    whole = 0
    if log.exists():
        with open(log, "rb") as file:
            for line in file:
                whole += len(line) if line.endswith(b"\n") else 0
    if not whole:
        log.write_text(json.dumps(header()) + "\n")
        return
    os.truncate(log, whole)
    if read_header(log) != header():
        raise ValueError(f"{log} was made with other settings or versions; give another --work")


def read_header(log: Path) -> dict[str, Any]:
    """The first line of the log; nothing if it was not written whole."""
    with open(log) as file:
        line = file.readline()
    return json.loads(line) if line.endswith("\n") else {}


def read_log(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the finished records; a last line that is not whole, which may still be written, is left out."""
    with open(log) as file:
        next(file)
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def finished(
    candidates: Sequence[Candidate], log: Path, rows: int | None
) -> list[tuple[Candidate, dict[str, Any]]] | None:
    """Take the candidates up to the last that is wanted, each with its record; None if the log lacks one.

    So the molecules that are written depend neither on the order in which they finished nor on where the log
    ends. The log is only read, so another process may be going on with it.

    Args:
        candidates: the molecules.
        log: the log; its charges become arrays, which take less memory than lists.
        rows: number of labeled molecules that are wanted; None for all candidates.
    """
    if not log.exists() or read_header(log).get("labels") != list(LABELS):
        return None
    records = {record["smiles"]: record for record in map(_compact, read_log(log))}
    taken, labeled = [], 0
    for candidate in candidates:
        if labeled == rows:
            break
        record = records.get(candidate.smiles)
        if record is None:
            return None
        taken.append((candidate, record))
        labeled += "gap_ev" in record
    return taken


def _compact(record: dict[str, Any]) -> dict[str, Any]:
    if "charges" in record:
        record["charges"] = np.array(record["charges"], np.float32)
    return record


def run(candidates: Sequence[Candidate], log: Path, rows: int | None, jobs: int, seconds: float) -> None:
    """Label what the log lacks, in the order of the candidates, appending as molecules finish.

    Args:
        candidates: the molecules.
        log: the log to start or to go on with. Its folder is locked meanwhile.
        rows: number of labeled molecules to stop at; None for all candidates.
        jobs: number of worker processes.
        seconds: time limit for a molecule.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(log.parent):
        start_log(log)
        known = {record["smiles"]: "gap_ev" in record for record in read_log(log)}
        labeled = 0
        bar = tqdm(total=rows or len(candidates), unit="mol", mininterval=2)

        def count(has_label: bool) -> None:
            nonlocal labeled
            labeled += has_label
            bar.update(has_label)

        def todo() -> Iterator[str]:
            for candidate in candidates:
                if labeled == rows:
                    return
                if candidate.smiles in known:
                    count(known[candidate.smiles])
                else:
                    yield candidate.smiles

        with open(log, "a") as file, bar:
            for record in label_all(todo(), jobs, seconds):
                file.write(json.dumps(record) + "\n")
                file.flush()
                count("gap_ev" in record)
