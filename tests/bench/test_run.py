"""Tests of the loop over jobs: order, finished jobs, repeated jobs, output files."""

import json
import os

import pytest

from molslice.bench import rounds
from molslice.bench.attention import run_bench
from molslice.bench.attention_result import BenchResult
from molslice.bench.scores import Scores
from molslice.files.lock import lock_folder
from molslice.types import MolsliceError
from tests.bench.jobs import answer, plan

RESULT = BenchResult.FILE


@pytest.fixture
def worker(monkeypatch):
    """Answer instead of a process, and record the requests."""

    class Worker:
        def __init__(self):
            self.asked, self.answers, self.stop_after = [], {}, None

        def __call__(self, job):
            if self.stop_after == len(self.asked):
                raise KeyboardInterrupt
            self.asked.append((job.length, job.seed, job.attention))
            return self.answers.get((job.attention, job.length), answer(job.length / 100))

    worker = Worker()
    monkeypatch.setattr(rounds, "run_job", worker)
    monkeypatch.setattr(
        "molslice.bench.bubbles.draw_bubbles", lambda result, suffix, scores: b""
    )  # takes its time
    return worker


def test_the_entries_take_turns_in_every_round(worker):
    result = run_bench(plan(rounds=2))
    turn = ["softmax", "slice_sort"]
    assert worker.asked == [(n, number, name) for n in (8, 16) for number in (0, 1) for name in turn]
    assert [cell.outcome for cell in result.cells()] == ["ok"] * 4
    assert {cell.rounds for cell in result.cells()} == {2}


def test_files_are_written(worker, tmp_path):
    result = run_bench(plan(), tmp_path / "out")
    names = {"bench.json", "table.md", "table.csv", "bubbles.png", "bubbles.svg"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    mapping = json.loads((tmp_path / "out" / RESULT).read_text())
    assert mapping["measurements"] == result.to_mapping()["measurements"]
    assert mapping["cells"][0]["training_steps_per_second"]["median"] == pytest.approx(100 / 8)
    assert (tmp_path / "out" / "table.csv").read_text().count("\n") == 5


def test_out_of_memory_is_not_measured_again_and_the_others_are(worker):
    worker.answers["softmax", 16] = {"outcome": "OOM", "reason": "no memory"}
    told = []
    result = run_bench(plan(rounds=3), tell=told.append)
    assert worker.asked.count((16, 0, "softmax")) == 1
    assert (16, 1, "softmax") not in worker.asked
    assert (16, 2, "slice_sort") in worker.asked
    assert [cell.outcome for cell in result.cells()] == ["ok", "ok", "OOM", "ok"]
    assert told == ["softmax at 16 tokens: OOM, no memory"]
    assert result.failures() == {}


def test_an_interrupted_measurement_continues(worker, tmp_path):
    worker.stop_after = 3
    first = run_bench(plan(rounds=2), tmp_path)
    assert first.interrupted
    assert len(first.measurements) == 3
    assert "Interrupted" in (tmp_path / "table.md").read_text()
    worker.stop_after = None
    second = run_bench(plan(rounds=2), tmp_path)
    assert not second.interrupted
    assert len(second.measurements) == len(worker.asked) == len(set(worker.asked)) == 8
    run_bench(plan("softmax,slice_sort,flow", lengths=(8, 16), rounds=3), tmp_path)
    assert len(worker.asked) == len(set(worker.asked)) == 18


def test_a_kept_measurement_is_not_lost_when_it_is_not_asked_for(worker, tmp_path):
    run_bench(plan(), tmp_path)
    run_bench(plan("flow", lengths=(8,)), tmp_path)
    kept = json.loads((tmp_path / RESULT).read_text())
    assert len(kept["measurements"]) == 3 * (4 + 1)
    assert len(kept["cells"]) == 1


def test_failures_are_tried_again_and_lack_of_memory_with_more_of_it(worker, tmp_path):
    worker.answers["softmax", 8] = {"outcome": "failed", "reason": "a fault"}
    worker.answers["softmax", 16] = {"outcome": "OOM", "reason": "no memory"}
    first = run_bench(plan(rounds=1, budget_gb=1.0), tmp_path)
    assert first.failures() == {"softmax": "at 8 tokens: a fault"}
    assert len(worker.asked) == 4
    worker.answers.clear()
    run_bench(plan(rounds=1, budget_gb=1.0), tmp_path)
    assert worker.asked[4:] == [(8, 0, "softmax")]
    result = run_bench(plan(rounds=1, budget_gb=2.0), tmp_path)
    assert worker.asked[5:] == [(16, 0, "softmax")]
    assert {cell.outcome for cell in result.cells()} == {"ok"}


def test_other_conditions_are_refused(worker, tmp_path):
    run_bench(plan(rounds=1), tmp_path)
    with pytest.raises(MolsliceError, match=r"num_layers 1, now it is 2; choose another folder"):
        run_bench(plan(rounds=1, num_layers=2), tmp_path)
    file = tmp_path / RESULT
    text = file.read_text()
    file.write_text(text.replace('"python": "', '"python": "other'))
    with pytest.raises(MolsliceError, match="measured with python 'other"):
        run_bench(plan(rounds=1), tmp_path)
    shapes = [text.replace(f'"{name}": ', f'"{name}": 3, "x": ') for name in ("conditions", "measurements")]
    for bad, words in (
        ("{", "cannot read"),
        ("[]", "does not hold a JSON object"),
        *((shape, "not a result") for shape in shapes),
        (text.replace('"round"', '"r"'), "'r'"),
        (text.replace('"training_seconds": ', '"training_seconds": "x", "x": '), "'x'"),
        (text.replace('"outcome": "ok"', '"outcome": ["ok"]'), r"outcome is \['ok'\]"),
    ):
        file.write_text(bad)
        with pytest.raises(MolsliceError, match=words):
            run_bench(plan(rounds=1), tmp_path)


def test_a_second_measurement_in_the_folder_is_refused(worker, tmp_path):
    with lock_folder(tmp_path), pytest.raises(MolsliceError, match=rf"in use by process {os.getpid()} on "):
        run_bench(plan(), tmp_path)
    assert worker.asked == []
    assert not list(tmp_path.iterdir())


def test_scores_of_other_attentions_are_refused_before_anything_is_measured(worker):
    with pytest.raises(MolsliceError, match="no score for softmax, slice_sort"):
        run_bench(plan(), scores=Scores("accuracy", {"linear": 1.0}, "scores.csv"))
    assert worker.asked == []
