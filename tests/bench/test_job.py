"""Every way in which the process of a job can end gives an outcome."""

import sys

import pytest

from molslice.bench.job import run_job
from tests.bench.jobs import job

HOG = """import json, sys, time
sys.stdin.readline()
print(json.dumps({"base_bytes": 10_000_000}), flush=True)
kept = [bytearray(b"x") * 20_000_000 for _ in range(10)]
time.sleep(30)
"""


@pytest.fixture
def worker(monkeypatch, tmp_path):
    """Replace the worker by another program."""

    def put(text):
        program = tmp_path / "program"
        program.write_text(text)
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))

    return put


@pytest.mark.parametrize(
    ("text", "outcome", "words"),
    [
        ("#!/bin/sh\nkill -9 $$", "failed", "SIGKILL"),
        ("#!/bin/sh\nread line; echo all went wrong >&2; exit 3", "failed", "code 3: all went wrong"),
        ("#!/bin/sh\nread line; exit 0", "failed", "code 0"),
        ("#!/bin/sh\nread line; echo 'what():  std::bad_alloc' >&2; kill -6 $$", "OOM", "SIGABRT"),
        ("#!/bin/sh\nread line; echo MemoryError >&2; exit 1", "OOM", "MemoryError"),
    ],
)
def test_a_process_that_dies(worker, text, outcome, words):
    worker(text)
    found = run_job(job())
    assert found["outcome"] == outcome
    assert words in found["reason"]


def test_a_process_that_takes_too_long_is_ended(worker):
    worker("#!/bin/sh\nexec sleep 60")
    result = run_job(job(timeout=0.2))
    assert result == {"outcome": "failed", "reason": "took longer than 0.2 s"}


def test_a_process_past_its_budget_is_ended(worker):
    worker(f"#!{sys.executable}\n{HOG}")
    assert run_job(job(budget_bytes=50_000_000))["outcome"] == "OOM"


def test_a_job_has_one_thread_unless_it_says_otherwise(worker):
    worker('#!/bin/sh\nread line; echo "{\\"outcome\\": \\"ok\\", \\"threads\\": \\"$OMP_NUM_THREADS\\"}"')
    assert [run_job(one)["threads"] for one in (job(), job(threads=3))] == ["1", "3"]


def test_the_answer_of_the_worker_is_the_outcome(worker):
    worker('#!/bin/sh\nread line; echo \'{"base_bytes": 1}\'; echo \'{"outcome": "ok", "flops": 7}\'')
    assert run_job(job()) == {"outcome": "ok", "flops": 7}
