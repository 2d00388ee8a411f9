"""Tests of the measurements inside the process of a job."""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch

from molslice.attention import ATTENTIONS
from molslice.bench import attention_worker as worker
from molslice.bench.attention import AttentionJob
from molslice.bench.attention_worker import Model, count_flops, measure
from molslice.bench.job import is_out_of_memory
from molslice.files import process_memory
from molslice.files.process_memory import (
    available_bytes,
    limited_growth,
    peak_bytes,
    resident_bytes,
    restart_peak,
)
from tests.bench.jobs import job


def run(**changes):
    said = []
    return measure(job(**changes), said.append), said


@pytest.fixture(scope="module")
def alone():
    """Call functions in a new process, as for jobs. In the test process, memory freed by other tests would be
    reused, and neither limits nor peaks would include it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield lambda function, **changes: pool.submit(function, **changes).result()


@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_operations_of_every_attention_are_counted(name):
    assert count_flops(Model(job(attention=name, num_layers=1))) > 0


@pytest.mark.parametrize("name", ["slice_sort", "singular"])
def test_all_numbers_are_measured(name):
    found, said = run(attention=name)
    assert found["outcome"] == "ok", found
    assert found["training_seconds"] > 0
    assert found["inference_seconds"] > 0
    assert found["parameters"] > 0
    assert found["flops"] is not None
    assert said[0].keys() == {"base_bytes"}
    json.dumps(found)


@pytest.mark.parametrize("options", [{}, {"fused": False}])
def test_operations_of_softmax_are_those_of_its_formula(options):
    batch, length, dim, ffn, layers, classes = 2, 16, 8, 16, 2, 2
    maps = 4 * 2 * batch * length * dim * dim
    scores = 2 * 2 * batch * length * length * dim
    feed_forward = 2 * 2 * batch * length * dim * ffn
    forward = layers * (maps + scores + feed_forward) + 2 * batch * dim * classes
    assert run(options=options)[0]["flops"] == 3 * forward


def test_parameters_are_those_of_the_model_and_of_its_attentions():
    found = run()[0]
    attention = 2 * 4 * (8 * 8 + 8)
    others = (256 + 16) * 8 + 2 * (2 * 8 * 16 + 16 + 8 + 4 * 8) + 2 * 8 + (8 * 2 + 2)
    assert (found["attention_parameters"], found["parameters"]) == (attention, attention + others)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_and_causal(dtype):
    found = run(dtype=dtype, causal=True, counts_flops=False)[0]
    assert (found["outcome"], found["flops"]) == ("ok", None)


@pytest.mark.parametrize(("seconds", "steps"), [(0.05, 5), (1e9, worker.MAX_STEPS)])
def test_seconds_become_steps(seconds, steps, monkeypatch):
    monkeypatch.setattr(worker, "_time", lambda *_: 0.01)
    found = run(steps=None, seconds=seconds)[0]
    assert (found["training_steps"], found["inference_steps"]) == (steps, steps)


def test_what_cannot_be_built_is_an_outcome():
    found = run(attention="slice_sort", causal=True)[0]
    assert found["outcome"] == "failed"
    assert "no causal form" in found["reason"]


def test_memory_that_is_not_there_is_an_outcome(alone):
    found = alone(run, options={"fused": False}, length=1024, budget_bytes=10_000_000)[0]
    assert found["outcome"] == "OOM", found


def test_peak_memory_grows_with_the_scores(alone):
    peaks = {}
    for fused in (True, False):
        changes = {"options": {"fused": fused}, "length": 512, "counts_flops": False}
        peaks[fused] = alone(run, **changes)[0]["peak_bytes"]
    scores = 2 * 2 * 512 * 512 * 4  # one tensor of them
    assert peaks[False] > peaks[True] + scores


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("shapes do not fit"), False),
        (ValueError("no"), False),
    ],
)
def test_what_counts_as_out_of_memory(error, expected):
    assert is_out_of_memory(error) is expected


def grow_past_a_limit():
    with limited_growth(20_000_000):
        torch.zeros(1_000_000)
        with pytest.raises(RuntimeError, match="memory"):
            torch.zeros(20_000_000)
    torch.zeros(20_000_000)


def test_growth_is_limited_inside_and_free_again_outside(alone):
    alone(grow_past_a_limit)


def take_and_give_back():
    restart_peak()
    before = resident_bytes()
    torch.ones(10_000_000)
    assert peak_bytes() > before + 30_000_000
    restart_peak()
    assert peak_bytes() < before + 30_000_000


def test_a_peak_is_seen_after_it_has_gone(alone):
    alone(take_and_give_back)


def test_free_memory_is_known_here():
    assert 0 < available_bytes() < 1 << 50
    assert resident_bytes(2**22 + 1) is None  # no such process


def test_cached_files_of_a_control_group_are_free(tmp_path, monkeypatch):
    monkeypatch.setattr(process_memory, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    assert available_bytes() == 100_000
    (tmp_path / "memory.stat").write_text("anon 300000\ninactive_file 400000\nactive_file 50000\n")
    assert available_bytes() == 550_000
    assert available_bytes(swap=True) >= 550_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes() > 1_000_000


def test_a_job_travels_as_json():
    one = job(options={"order": "half", "seed": 3})
    assert AttentionJob.from_json(one.to_json()) == one
