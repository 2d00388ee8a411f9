"""Tests of the times of the parts of a step."""

import pytest
import torch

from molslice.bench import training_worker as module
from molslice.bench.training_worker import StepClock, measure
from tests.bench.training_jobs import config, job, store


def run_steps(clock, parts, tick):
    """Run steps of one micro-batch (waiting, forward, backward, optimizer) or of two."""
    clock.begin()
    for waiting, *passes, optimizer in parts:
        tick(waiting)
        clock.arrive()
        for forward, backward in zip(passes[::2], passes[1::2], strict=True):
            tick(forward)
            clock.around(tick)(backward)
        tick(optimizer)
        clock.finish()


STEPS = [(1, 2, 3, 4), (10, 20, 30, 200, 300, 40)]
SUMS = {"waiting": 11, "forward": 222, "backward": 333, "optimizer": 44}


def test_parts_on_a_cpu(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])

    def tick(seconds):
        now[0] += seconds

    clock = StepClock(torch.device("cpu"))
    run_steps(clock, [(5, 5, 5, 5)], tick)
    run_steps(clock, STEPS, tick)  # forgets the steps before
    assert clock.seconds() == SUMS


def test_a_step_without_moments_inside_has_no_parts(monkeypatch):
    """A step that is replayed as a CUDA graph."""
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    clock = StepClock(torch.device("cpu"))
    clock.begin()
    for _ in range(2):
        now[0] += 1.0
        clock.arrive()
        now[0] += 5.0
        clock.finish()
    assert clock.seconds() == {"waiting": 2.0, "forward": None, "backward": None, "optimizer": None}


def test_parts_on_a_gpu_are_those_of_its_stream(monkeypatch):
    now, synchronized = [0.0], []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.milliseconds = 1000 * now[0]

        def elapsed_time(self, end):
            return end.milliseconds - self.milliseconds

    def tick(seconds):
        now[0] += seconds

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronized.append)
    clock = StepClock(torch.device("cuda"))
    run_steps(clock, STEPS, tick)
    assert not synchronized  # only at the end
    assert clock.seconds() == SUMS
    assert len(synchronized) == 1


def test_the_result_of_the_backward_pass_is_returned():
    clock = StepClock(torch.device("cpu"))
    clock.begin()
    assert clock.around(lambda a, b: a + b)(1, b=2) == 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_training_on_a_gpu_is_measured(tmp_path, precision):
    chains = store(tmp_path / "store", [2, 3, 4, 5] * 64)
    own = config(trainer={"accelerator": "cuda", "precision": precision}, training={"batch_size": 16})
    found = measure(job(chains, own, device="cuda", steps=20))
    assert (found["outcome"], found["steps"]) == ("ok", 20)
    parts = [found[f"{part}_seconds"] for part in ("waiting", "forward", "backward", "optimizer")]
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(found["seconds"], rel=0.2)
    assert found["flops"] > 0
    assert 0 < found["peak_bytes"] < 1e9
