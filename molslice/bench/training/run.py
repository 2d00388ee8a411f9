"""Measure the training of all entries of a plan."""

from collections.abc import Callable
from pathlib import Path

import torch

from molslice.bench.machine import describe_machine
from molslice.bench.molecules import Molecules, describe_store, open_store
from molslice.bench.rounds import run_rounds
from molslice.bench.training.peaks import find_peak
from molslice.bench.training.plan import TrainPlan
from molslice.bench.training.result import Measurement, TrainResult
from molslice.bench.training.table import to_markdown
from molslice.data.molecules.store import MoleculeStore

__all__ = ["RESULT", "run_training_bench"]

RESULT = "bench_train.json"


def run_training_bench(
    plan: TrainPlan,
    source: Molecules,
    out: Path | str | None = None,
    *,
    tell: Callable[[str], None] = lambda message: None,
    quiet: bool = False,
) -> TrainResult:
    """Measure the training of every entry, with a new process for each round; see `run_rounds`.

    Args:
        plan: What to measure.
        source: The molecules.
        out: Folder of `bench_train.json` and `table.md`. None writes no files.
        tell: Receives a line for each measurement without numbers.
        quiet: Whether to hide the progress bar.

    Returns:
        The measurements, also those of earlier calls.

    Raises:
        MolsliceError: The molecules cannot be read, `out` holds measurements of another machine or under
            other conditions, or a file cannot be read or written.
    """
    with open_store(source) as store:
        result = _begin(plan, MoleculeStore.open(store, verify=False))
        file = None if out is None else Path(out) / RESULT
        jobs = plan.jobs(store)
        run_rounds(result, Measurement, jobs, file, to_markdown=to_markdown, tell=tell, quiet=quiet)
    return result


def _begin(plan: TrainPlan, store: MoleculeStore) -> TrainResult:
    machine = describe_machine(plan.device)
    about = describe_store(store)
    peaks = dict.fromkeys((entry.precision for entry in plan.entries), None)
    if plan.device == "cuda":
        peaks = {precision: find_peak(machine["device"], _arithmetic(precision)) for precision in peaks}
    keys = [entry.key for entry in plan.entries]
    return TrainResult(keys, {**plan.conditions(), **about}, machine, peaks)


def _arithmetic(precision: str) -> str:
    if precision != "32":
        return "bf16"
    return "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"
