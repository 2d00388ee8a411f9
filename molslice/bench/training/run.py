"""Run all jobs of a plan in interleaved order and keep each measurement in a folder."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch

from molslice.bench.machine import describe_machine
from molslice.bench.molecules import Molecules, open_store
from molslice.bench.process import run_job
from molslice.bench.run import read_measurements
from molslice.bench.training.peaks import find_peak
from molslice.bench.training.plan import TrainPlan
from molslice.bench.training.result import Measurement, TrainResult
from molslice.bench.training.table import to_markdown
from molslice.data.molecules.store import MoleculeStore
from molslice.files.atomic import write_atomically
from molslice.files.lock import lock_folder
from molslice.inference.json_text import to_json
from molslice.inference.progress import progress_bar

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
    """Measure the training of every entry, with a new process for each round.

    Measurements in `out` are kept, except those without numbers. Ctrl-C ends the measurements but not the
    function: the result is marked `interrupted`, and a second call with the same folder continues.

    Args:
        plan: What to measure.
        source: The molecules.
        out: Folder of `bench_train.json`, written after every measurement, and of `table.md`, written at the
            end. None writes no files.
        tell: Receives a line for each measurement without numbers.
        quiet: Whether to hide the progress bar.

    Returns:
        The measurements, also those of earlier calls.

    Raises:
        MolsliceError: The molecules cannot be read, `out` holds measurements of another machine or under
            other conditions, or a file cannot be read or written.
    """
    folder = None if out is None else Path(out)
    with ExitStack() as exits:
        store = exits.enter_context(open_store(source))
        result = _begin(plan, MoleculeStore.open(store, verify=False))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            exits.enter_context(lock_folder(folder))
            own = {"conditions": result.conditions, "machine": result.machine}
            found = read_measurements(folder / RESULT, own)
            kept = [Measurement.of_mapping(one, str(folder / RESULT)) for one in found]
            result.measurements = [one for one in kept if one.outcome == "ok"]
        try:
            _measure_all(plan, result, store, folder, tell, quiet)
        except KeyboardInterrupt:
            result.interrupted = True
        if folder is not None:
            write_atomically(folder / RESULT, to_json(result.to_mapping()))
            write_atomically(folder / "table.md", to_markdown(result))
    return result


def _begin(plan: TrainPlan, store: MoleculeStore) -> TrainResult:
    machine = describe_machine(plan.device)
    about = {"source": store.header["source"], "molecules": int((store.num_atoms > 0).sum())}
    peaks = dict.fromkeys((entry.precision for entry in plan.entries), None)
    if plan.device == "cuda":
        peaks = {precision: find_peak(machine["device"], _arithmetic(precision)) for precision in peaks}
    keys = [entry.key for entry in plan.entries]
    return TrainResult(keys, {**plan.conditions(), **about}, machine, peaks)


def _arithmetic(precision: str) -> str:
    if precision != "32":
        return "bf16"
    return "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def _measure_all(
    plan: TrainPlan,
    result: TrainResult,
    store: Path,
    folder: Path | None,
    tell: Callable[[str], None],
    quiet: bool,
) -> None:
    jobs = list(plan.jobs(store))
    done = {(one.key, one.round) for one in result.measurements}
    bad: set[tuple[str, str, str]] = set()
    with progress_bar(len(jobs), "measurements", shown=not quiet) as bar:
        for entry, number, job in jobs:
            if (entry.key, number) not in done and entry.key not in bad:
                bar.set_postfix_str(" ".join(entry.key))
                one = Measurement(*entry.key, number, **run_job(job))
                result.measurements.append(one)
                if one.outcome != "ok":
                    bad.add(entry.key)
                    tell(f"{' '.join(entry.key)}: {one.outcome}, {one.reason}")
                if folder is not None:
                    write_atomically(folder / RESULT, to_json(result.to_mapping()))
            bar.update()
