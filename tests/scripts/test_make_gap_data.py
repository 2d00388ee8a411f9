"""The program that makes data/gap_xtb: same bytes whatever the jobs and interruptions."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tblite", reason="the labels extra is not installed")

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "make_gap_data.py"
FILES = ("raw/data.csv.gz", "split_dict.pt", "origin.csv.gz", "left_out.csv.gz", "card.json")


def make(folder: Path, *options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(SCRIPT), "--out", str(folder / "out"), "--work", str(folder / "work")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*command, *options], capture_output=True, text=True, env=environment)


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "out" / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def script():
    """The module itself, for its functions."""
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        spec = importlib.util.spec_from_file_location("make_gap_data_under_test", SCRIPT)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        yield module
        del sys.modules[spec.name]
    finally:
        sys.path.remove(str(SCRIPT.parent))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gap")
    done = make(folder, "--limit", "12", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    return folder


def test_one_job_gives_the_bytes_of_two(uninterrupted, tmp_path):
    done = make(tmp_path, "--limit", "12", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path) == contents(uninterrupted)


def test_run_cut_in_the_middle_of_a_line_goes_on(uninterrupted, tmp_path):
    whole = (uninterrupted / "work" / "labels.jsonl").read_text().splitlines(keepends=True)
    log = tmp_path / "work" / "labels.jsonl"
    log.parent.mkdir()
    log.write_text("".join(whole[:7]) + whole[7][: len(whole[7]) // 2])
    done = make(tmp_path, "--limit", "12", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path) == contents(uninterrupted)
    again = log.read_text().splitlines(keepends=True)
    assert again[:7] == whole[:7]
    assert sorted(again) == sorted(whole)


def test_log_of_other_settings_is_refused(tmp_path):
    log = tmp_path / "work" / "labels.jsonl"
    log.parent.mkdir()
    log.write_text('{"seed": 1}\n')
    done = make(tmp_path, "--limit", "1", "--jobs", "1")
    assert done.returncode == 1
    assert "other settings" in done.stderr
    assert "Traceback" not in done.stderr
    assert log.read_text() == '{"seed": 1}\n'


def test_time_limit_kills_and_is_counted(tmp_path):
    done = make(tmp_path, "--limit", "2", "--jobs", "1", "--seconds", "0.01")
    assert done.returncode == 1
    assert "no molecule got a label" in done.stderr
    records = [json.loads(line) for line in (tmp_path / "work" / "labels.jsonl").read_text().splitlines()]
    assert [record.get("reason") for record in records[1:]] == ["time_limit", "time_limit"]


def test_dead_worker_is_replaced(script, monkeypatch):
    class Dying:
        """A worker whose process dies on the first molecule it gets."""

        started = 0

        def __init__(self):
            type(self).started += 1
            self.worker = real_worker()

        def __getattr__(self, name):
            return getattr(self.worker, name)

        def give(self, smiles):
            self.worker.give(smiles)
            if smiles == "CC":
                self.worker.process.kill()

    import gap_label  # pyright: ignore[reportMissingImports]

    real_worker = gap_label.Worker
    monkeypatch.setattr(gap_label, "Worker", Dying)
    records = {r["smiles"]: r for r in gap_label.label_all(["CC", "CO"], jobs=1, seconds=60)}
    assert records["CC"] == {"smiles": "CC", "reason": "process_died"}
    assert records["CO"]["gap_ev"] > 0
    assert Dying.started == 2


@pytest.mark.parametrize(
    ("smiles", "reason"),
    [
        ("C(", "unparsable"),
        ("", "unparsable"),
        ("C", "heavy_atoms_outside_2_to_30"),
        ("C" * 31, "heavy_atoms_outside_2_to_30"),
        ("CC[O-].[Na+]", "several_fragments"),
        ("CC*", "wildcard_atom"),
        ("C[CH2]", "open_shell"),
        ("C[N+](=O)[O-]", None),
        ("CC(=O)[O-]", None),
    ],
)
def test_what_is_left_out(script, smiles, reason):
    kept, left_out = script.select(iter([script.Candidate("nci", "1", smiles)]))
    assert [why for _, why in left_out] == ([] if reason is None else [reason])
    assert len(kept) == (reason is None)


def test_same_molecule_twice_is_a_duplicate(script):
    rows = [script.Candidate("nci", "1", "OCC"), script.Candidate("wehi", "2", "C(C)O")]
    kept, left_out = script.select(iter(rows))
    assert [row.smiles for row in kept] == ["CCO"]
    assert [(row.source_id, why) for row, why in left_out] == [("2", "duplicate")]


def test_reasons_without_a_label(script):
    import gap_label  # pyright: ignore[reportMissingImports]

    assert gap_label.label("C[Hg]C")["reason"] == "mmff_parameters_missing"
    # An entry of the NCI list as it stands there.
    assert gap_label.label("[NH2][Cr]([NH2])([NH2])([NH2])([NH2])[NH2]")["reason"] == "embedding_failed"


def test_gap_of_known_molecules_is_ordered(script):
    """Longer conjugation, smaller gap; a saturated molecule has the largest."""
    import gap_label  # pyright: ignore[reportMissingImports]

    ethane, ethene, butadiene, hexatriene = (
        gap_label.label(smiles)["gap_ev"] for smiles in ("CC", "C=C", "C=CC=C", "C=CC=CC=C")
    )
    assert ethane > ethene > butadiene > hexatriene > 0
