"""The program that makes data/gap_xtb: same bytes whatever the jobs and interruptions."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "make_gap_data.py"
FILES = ("raw/data.csv.gz", "split_dict.pt", "origin.csv.gz", "left_out.csv.gz", "card.json")


def start(folder: Path, *options: str) -> subprocess.Popen:
    command = [sys.executable, str(SCRIPT), "--out", str(folder / "out"), "--work", str(folder / "work")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env=environment)


def make(folder: Path, *options: str) -> subprocess.CompletedProcess:
    with start(folder, *options) as program:
        _, messages = program.communicate()
    return subprocess.CompletedProcess(program.args, program.returncode, stderr=messages)


def contents(folder: Path, names: tuple[str, ...] = FILES) -> dict[str, bytes]:
    return {name: (folder / "out" / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gap")
    done = make(folder, "--limit", "8", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_a_run_of_two_jobs_interrupted_within_a_line_continues_with_one(uninterrupted, tmp_path):
    whole = (uninterrupted / "work" / "labels.jsonl").read_text().splitlines(keepends=True)
    log = tmp_path / "work" / "labels.jsonl"
    log.parent.mkdir()
    log.write_text("".join(whole[:5]) + whole[5][: len(whole[5]) // 2])
    done = make(tmp_path, "--limit", "8", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path) == contents(uninterrupted)
    again = log.read_text().splitlines(keepends=True)
    assert again[:5] == whole[:5]
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
    assert "no molecule has a label" in done.stderr
    records = [json.loads(line) for line in (tmp_path / "work" / "labels.jsonl").read_text().splitlines()]
    assert [record.get("reason") for record in records[1:]] == ["time_limit", "time_limit"]


@pytest.mark.exhaustive
def test_a_killed_run_of_the_large_form_continues_to_the_same_files(tmp_path):
    source = tmp_path / "some.smi"
    source.write_text("".join(f"{'C' * n}O\n{'C' * n}N\n" for n in range(1, 12)))
    options = ("--source", str(source), "--rows", "15", "--jobs", "1")
    whole = make(tmp_path / "whole", *options)
    assert whole.returncode == 0, whole.stderr
    folder = tmp_path / "killed"
    program = start(folder, *options)
    log = folder / "work" / "labels.jsonl"
    deadline = time.monotonic() + 300
    while not log.exists() or log.read_bytes().count(b"\n") < 5:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    program.kill()
    program.wait()
    assert not (folder / "out").exists()
    done = make(folder, *options)
    assert done.returncode == 0, done.stderr
    names = (*FILES, "charges.npz")
    assert contents(folder, names) == contents(tmp_path / "whole", names)
