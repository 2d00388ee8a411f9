"""Small jobs and plans for the tests."""

from molslice.bench.attention import AttentionJob, BenchPlan, read_entries
from molslice.bench.rounds import Measurement

TINY = {"lengths": (8, 16), "dims": (8,), "batch_sizes": (2,), "num_layers": 1, "num_heads": 2, "threads": 1}


def job(**changes):
    fields = {
        "attention": "softmax",
        "options": {},
        "length": 16,
        "dim": 8,
        "batch_size": 2,
        "num_layers": 2,
        "num_heads": 2,
        "head_dim": None,
        "ffn_dim": 16,
        "causal": False,
        "dtype": "fp32",
        "device": "cpu",
        "steps": 1,
        "seconds": 1.0,
        "budget_bytes": None,
        "seed": 0,
        "counts_flops": True,
    }
    return AttentionJob(**{**fields, **changes})


def plan(entries="softmax,slice_sort", **changes):
    return BenchPlan(read_entries(entries), **{**TINY, **changes})


def answer(training=0.1, **changes):
    """Return the answer of a worker to a successful job."""
    numbers = {
        "outcome": "ok",
        "training_seconds": training,
        "training_steps": 1,
        "inference_seconds": training / 4,
        "inference_steps": 1,
        "peak_bytes": 2_000_000,
        "parameters": 1000,
        "attention_parameters": 400,
        "flops": 5_000_000,
    }
    return {**numbers, **changes}


def measurement(attention="softmax", length=8, number=0, **changes):
    numbers = {"budget_bytes": None, **answer(), **changes}
    outcome, reason = numbers.pop("outcome"), numbers.pop("reason", None)
    return Measurement((attention, length, 8, 2), number, outcome, reason, numbers)
