"""Keep the labels of finished molecules in a log of JSON lines, so that labeling continues after a kill."""

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
    """Return the first line of a log: the settings that determine the labels, and their names."""
    return {"settings": settings(), "labels": list(LABELS)}


def start_log(log: Path) -> None:
    """Create the log, or remove an incomplete last line.

    Raises:
        ValueError: The log was made with other settings or versions.
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
        raise ValueError(f"{log} was made with other settings or versions; choose another --work")


def read_header(log: Path) -> dict[str, Any]:
    """Read the first line of the log; an incomplete line gives an empty dictionary."""
    with open(log) as file:
        line = file.readline()
    return json.loads(line) if line.endswith("\n") else {}


def read_log(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete records. An incomplete last line, which may still be written, is skipped."""
    with open(log) as file:
        next(file)
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def finished(
    candidates: Sequence[Candidate], log: Path, rows: int | None
) -> list[tuple[Candidate, dict[str, Any]]] | None:
    """Take candidates in order, each with its record, until `rows` of them have labels.

    The result depends neither on the order in which the molecules finished nor on the end of the log. The log
    is only read, so another process may continue it at the same time.

    Args:
        candidates: The molecules.
        log: The log. Charges become arrays, which need less memory than lists.
        rows: Number of labeled molecules; None for all candidates.

    Returns:
        The candidates with their records; None if the record of one of them is missing.
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
    """Label the candidates that the log lacks, in order, and append each record when it is finished.

    Args:
        candidates: The molecules.
        log: The log, which is created or continued. Its folder is locked during the run.
        rows: Number of labeled molecules to stop at; None for all candidates.
        jobs: Number of worker processes.
        seconds: Time limit of a molecule, in seconds.
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
