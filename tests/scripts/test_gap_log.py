"""The log of the labels: it survives kills, and what is taken from it does not depend on them."""

import json

import gap_log
import pytest
from gap_source import Candidate

from molslice.files.lock import lock_folder
from molslice.types import MolsliceError

CANDIDATES = [Candidate("s", str(n), "C" * n) for n in range(2, 12)]
WITHOUT_LABEL = ("C" * 4, "C" * 7)


@pytest.fixture(autouse=True)
def _labels_without_tblite(monkeypatch):
    """A label is the number of atoms; every third molecule finishes after its successor, as with two jobs."""

    def label_all(todo, jobs, seconds):
        held = None
        for smiles in todo:
            if jobs == 2 and held is None and len(smiles) % 3 == 0:
                held = smiles
                continue
            yield record(smiles)
            if held is not None:
                yield record(held)
                held = None
        if held is not None:
            yield record(held)

    monkeypatch.setattr(gap_log, "label_all", label_all)
    monkeypatch.setattr(gap_log, "settings", lambda: {"seed": 1})


def record(smiles: str) -> dict:
    if smiles in WITHOUT_LABEL:
        return {"smiles": smiles, "reason": "scf_failed"}
    return {"smiles": smiles, "gap_ev": float(len(smiles)), "charges": [0.1, -0.1]}


def take(log, rows):
    taken = gap_log.finished(CANDIDATES, log, rows)
    assert taken is not None
    return [(c.smiles, r.get("gap_ev")) for c, r in taken]


@pytest.mark.parametrize("jobs", [1, 2])
def test_run_stops_at_the_wanted_number_of_labels(tmp_path, jobs):
    log = tmp_path / "labels.jsonl"
    gap_log.run(CANDIDATES, log, 4, jobs, 60)
    assert [smiles for smiles, _ in take(log, 4)] == ["C" * n for n in (2, 3, 4, 5, 6)]
    gap_log.run(CANDIDATES, log, None, jobs, 60)
    assert len(take(log, None)) == len(CANDIDATES)
    assert [smiles for smiles, gap in take(log, None) if gap is None] == list(WITHOUT_LABEL)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_killed_at_any_byte_continues_to_the_same_molecules(tmp_path, jobs):
    whole = tmp_path / "whole.jsonl"
    gap_log.run(CANDIDATES, whole, 6, jobs, 60)
    content, wanted = whole.read_bytes(), take(whole, 6)
    for size in range(0, len(content), 5):
        log = tmp_path / "labels.jsonl"
        log.write_bytes(content[:size])
        gap_log.run(CANDIDATES, log, 6, jobs, 60)
        assert take(log, 6) == wanted
        written = [json.loads(line)["smiles"] for line in log.read_text().splitlines()[1:]]
        assert len(set(written)) == len(written)


def test_molecule_that_a_kill_left_open_is_labeled_though_there_are_enough(tmp_path):
    log = tmp_path / "labels.jsonl"
    gap_log.start_log(log)
    with open(log, "a") as file:
        file.writelines(json.dumps(record("C" * n)) + "\n" for n in (3, 5, 6))
    assert gap_log.finished(CANDIDATES, log, 3) is None
    gap_log.run(CANDIDATES, log, 3, 1, 60)
    assert [smiles for smiles, _ in take(log, 3)] == ["C" * n for n in (2, 3, 4, 5)]


def test_reading_leaves_a_log_that_is_being_written_alone(tmp_path):
    log = tmp_path / "labels.jsonl"
    gap_log.run(CANDIDATES, log, 5, 1, 60)
    with open(log, "a") as file:
        file.write('{"smiles": "CCCCCC')
    before = log.read_bytes()
    assert len(take(log, 3)) == 4
    assert gap_log.finished(CANDIDATES, log, None) is None
    assert log.read_bytes() == before


def test_only_one_process_writes_a_log(tmp_path):
    with lock_folder(tmp_path), pytest.raises(MolsliceError, match="in use"):
        gap_log.run(CANDIDATES, tmp_path / "labels.jsonl", 1, 1, 60)
    assert not (tmp_path / "labels.jsonl").exists()


def test_log_of_other_settings_or_labels_is_refused(tmp_path, monkeypatch):
    log = tmp_path / "labels.jsonl"
    gap_log.run(CANDIDATES, log, 2, 1, 60)
    content = log.read_bytes()
    monkeypatch.setattr(gap_log, "settings", lambda: {"seed": 2})
    with pytest.raises(ValueError, match="other settings or versions; choose another --work"):
        gap_log.run(CANDIDATES, log, 3, 1, 60)
    monkeypatch.setattr(gap_log, "LABELS", ("gap_ev",))
    assert gap_log.finished(CANDIDATES, log, 2) is None
    assert log.read_bytes() == content


def test_charges_are_held_as_arrays(tmp_path):
    log = tmp_path / "labels.jsonl"
    gap_log.run(CANDIDATES, log, 1, 1, 60)
    taken = gap_log.finished(CANDIDATES, log, 1)
    assert taken is not None
    assert taken[0][1]["charges"].nbytes == 8
