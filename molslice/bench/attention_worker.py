"""Measure one job: `python -m molslice.bench.attention_worker` reads an `AttentionJob` on standard input.

It answers with lines of JSON: `{"base_bytes": ...}` before the model is built, then the outcome, see
`outcome_of`.
"""

import gc
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from molslice.attention import Attention
from molslice.bench.attention import AttentionJob
from molslice.bench.flops import count_matrix_products
from molslice.bench.job import Numbers, answer_request, outcome_of
from molslice.files.process_memory import limited_growth, peak_bytes, resident_bytes, restart_peak
from molslice.model import AttentionChoice
from molslice.model.sequences.sequence import SequenceClassifier, SequenceSpec
from molslice.types import DataSpec, SequenceBatch

VOCABULARY, CLASSES = 256, 2  # bytes, and two classes as in the text task of Long Range Arena
LOADING_TOKENS = 16
SLOW_STEP_SECONDS = 5.0  # a longer first step needs no further warm-up
MAX_STEPS = 10_000
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Model:
    """A model with its optimizer, one batch, and the two steps that are timed.

    Args:
        job: Sizes, attention, device and seed.

    Raises:
        MolsliceError: The attention or an option is unknown, or the attention does not support the sizes.
    """

    def __init__(self, job: AttentionJob) -> None:
        self.job, self.device = job, torch.device(job.device)
        torch.manual_seed(job.seed)
        spec = SequenceSpec(
            dim=job.dim,
            num_layers=job.num_layers,
            num_heads=job.num_heads,
            head_dim=job.head_dim,
            ffn_dim=job.ffn_dim,
            dropout=0.0,
            causal=job.causal,
        )
        data = DataSpec(CLASSES, "ids", vocabulary_size=VOCABULARY, max_tokens=job.length)
        attention = AttentionChoice(job.attention, options=job.options)
        self.module = SequenceClassifier(spec, attention, data).to(self.device)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-4)
        shape = (job.batch_size, job.length)
        self.batch = SequenceBatch(torch.randint(VOCABULARY, shape, device=self.device))
        self.labels = torch.randint(CLASSES, shape[:1], device=self.device)

    def train_step(self) -> None:
        """Run a forward pass, a backward pass, and the optimizer."""
        self.optimizer.zero_grad(set_to_none=True)
        with self._precision():
            output = self.module(self.batch)
            loss = functional.cross_entropy(output.prediction.float(), self.labels)
            if output.penalty is not None:
                loss = loss + output.penalty
        loss.backward()
        self.optimizer.step()

    def inference_step(self) -> None:
        """Run a forward pass."""
        with torch.inference_mode(), self._precision():
            self.module(self.batch)

    def _precision(self) -> Any:  # noqa: ANN401
        dtype = AUTOCAST.get(self.job.dtype)
        return torch.autocast(self.device.type, dtype) if dtype is not None else nullcontext()


def measure(job: AttentionJob, report: Callable[[Numbers], None]) -> Numbers:
    """Measure a job.

    Args:
        job: What to measure.
        report: Receives the memory before the model is built, `base_bytes`.

    Returns:
        The `outcome` with the numbers of `BenchResult`: seconds per step, bytes, counts. Without numbers, the
            `reason` for their absence.
    """
    torch.set_num_threads(job.threads)
    return outcome_of(lambda: _measure(job, report))


def _is_cpu(job: AttentionJob) -> bool:
    return torch.device(job.device).type == "cpu"


def _load_code(job: AttentionJob) -> None:
    """Run a step of a tiny model to load the code and start the threads, which are then not counted."""
    tiny = Model(replace(job, length=min(LOADING_TOKENS, job.length), batch_size=1, num_layers=1))
    tiny.train_step()
    tiny.inference_step()
    large = torch.ones(1024, 1024, device=job.device)  # enough for all threads to start
    large = (large @ large).exp()
    del tiny, large
    gc.collect()


def _restart_memory(job: AttentionJob) -> int | None:
    """Return the bytes in use before the model is built, and restart the peak."""
    if _is_cpu(job):
        restart_peak()
        return resident_bytes()
    device = torch.cuda.current_device()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    if job.budget_bytes is not None:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, job.budget_bytes / total), device)
    return torch.cuda.memory_allocated(device)


def _peak_above(job: AttentionJob, base: int | None) -> int | None:
    peak = peak_bytes() if _is_cpu(job) else torch.cuda.max_memory_allocated()
    return None if base is None or peak is None else max(0, peak - base)


def _measure(job: AttentionJob, report: Callable[[Numbers], None]) -> Numbers:
    if not _is_cpu(job):
        torch.cuda.set_device(torch.device(job.device).index or 0)
    _load_code(job)
    base = _restart_memory(job)
    report({"base_bytes": base})
    with limited_growth(job.budget_bytes if _is_cpu(job) else None):
        return _measure_model(job, base)


def _measure_model(job: AttentionJob, base: int | None) -> Numbers:
    model = Model(job)
    training = _time_steps(job, model.train_step)
    peak = _peak_above(job, base)  # before inference; the moments of the optimizer exist after the warm-up
    model.optimizer.zero_grad(set_to_none=True)
    model.module.eval()
    inference = _time_steps(job, model.inference_step)
    attentions = [module for module in model.module.modules() if isinstance(module, Attention)]
    return {
        "training_seconds": training[0],
        "training_steps": training[1],
        "inference_seconds": inference[0],
        "inference_steps": inference[1],
        "peak_bytes": peak,
        "parameters": _count(model.module),
        "attention_parameters": sum(map(_count, attentions)),
        "flops": count_flops(model) if job.counts_flops else None,
    }


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def _time_steps(job: AttentionJob, step: Callable[[], None]) -> tuple[float, int]:
    """Return the seconds of a step after the warm-up, and the number of steps that were timed."""
    seconds = _time(job, step, 1)
    if seconds < SLOW_STEP_SECONDS:
        seconds = _time(job, step, 1)
    count = job.steps or min(MAX_STEPS, math.ceil(job.seconds / max(seconds, 1e-6)))
    return _time(job, step, count), count


def _time(job: AttentionJob, step: Callable[[], None], count: int) -> float:
    if not _is_cpu(job):
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        step()
    if not _is_cpu(job):
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def count_flops(model: Model) -> int | None:
    """Count the operations of a forward and a backward pass.

    Returns:
        Floating-point operations; None if an attention needs the data to run.
    """

    def backward(output: Any) -> None:  # noqa: ANN401
        loss = output.prediction.sum()
        (loss if output.penalty is None else loss + output.penalty).backward()

    shape = (model.job.batch_size, model.job.length)

    def batch() -> SequenceBatch:
        return SequenceBatch(torch.zeros(shape, dtype=torch.int64, device=model.device))

    try:
        return count_matrix_products(model.module.train(), batch, backward, model.device)
    except RuntimeError:
        return None


if __name__ == "__main__":
    answer_request(lambda line, report: report(measure(AttentionJob.from_json(line), report)))
