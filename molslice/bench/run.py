"""Run all measurements of a plan in interleaved order and keep each one in a folder."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from molslice.bench.machine import describe_machine
from molslice.bench.plan import BenchPlan, Size
from molslice.bench.process import run_job
from molslice.bench.result import BenchResult, Measurement, from_mapping
from molslice.bench.scores import Scores
from molslice.config.entries import WrittenEntry
from molslice.files.atomic import write_atomically
from molslice.files.lock import lock_folder
from molslice.files.parsing import read_json_object
from molslice.files.progress import Progress
from molslice.inference.json_text import to_json
from molslice.types import MolsliceError

__all__ = ["RESULT", "read_measurements", "run_bench"]

RESULT = "bench.json"
Task = tuple[int, Size, WrittenEntry]


def run_bench(
    plan: BenchPlan,
    out: Path | str | None = None,
    *,
    setting: str | None = None,
    scores: Scores | None = None,
    tell: Callable[[str], None] = lambda message: None,
    quiet: bool = False,
) -> BenchResult:
    """Measure every entry at every size, with a new process for each round.

    Measurements in `out` are kept, except those that failed or were out of memory under a smaller budget.
    Ctrl-C ends the measurements but not the function: the result is marked `interrupted`, and a second call
    with the same folder continues.

    Args:
        plan: What to measure.
        out: Folder of `bench.json`, written after every measurement, and of `table.md`, `table.csv`,
            `bubbles.png`, and `bubbles.svg`, written at the end. None writes no files.
        setting: Name of the setting that the sizes come from; the table shows its published numbers. None for
            other sizes.
        scores: Values that the plot draws against speed; None for memory.
        tell: Receives a line for each measurement without numbers.
        quiet: Whether to hide the progress bar.

    Returns:
        The measurements, also those of earlier calls.

    Raises:
        MolsliceError: `out` holds measurements of another machine or under other conditions, or a file cannot
            be read or written.
    """
    folder = None if out is None else Path(out)
    result = BenchResult(
        entries=[entry.label for entry in plan.entries],
        sizes=plan.sizes(),
        conditions=plan.conditions(),
        machine=describe_machine(plan.device),
        setting=setting,
    )
    if scores is not None:
        scores.check(result.entries)
    with ExitStack() as exits:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            exits.enter_context(lock_folder(folder))
            result.measurements = _read_kept(folder / RESULT, result)
        try:
            _measure_all(plan, result, folder, tell, quiet)
        except KeyboardInterrupt:
            result.interrupted = True
        if folder is not None:
            write_result(result, folder, scores)
    return result


def write_result(result: BenchResult, folder: Path, scores: Scores | None = None) -> None:
    """Write all files of a result.

    Args:
        result: The measurements.
        folder: Folder of the files.
        scores: Values that the plot draws against speed; None for memory.

    Raises:
        MolsliceError: A file cannot be written; its earlier content is kept.
    """
    from molslice.bench.bubbles import draw_bubbles
    from molslice.bench.tables import to_csv, to_markdown

    write_atomically(folder / RESULT, to_json(result.to_mapping()))
    write_atomically(folder / "table.md", to_markdown(result))
    write_atomically(folder / "table.csv", to_csv(result))
    if any(cell.outcome == "ok" for cell in result.cells()):
        for suffix in ("png", "svg"):
            write_atomically(folder / f"bubbles.{suffix}", draw_bubbles(result, suffix, scores))


def _tasks(plan: BenchPlan) -> Iterator[Task]:
    """Yield the measurements by size, then round, then entry, so that a slow minute affects all entries."""
    for size in plan.sizes():
        for number in range(plan.rounds):
            for entry in plan.entries:
                yield number, size, entry


def _measure_all(
    plan: BenchPlan,
    result: BenchResult,
    folder: Path | None,
    tell: Callable[[str], None],
    quiet: bool,
) -> None:
    tasks = list(_tasks(plan))
    budget = plan.budget_bytes()
    asked_budget = budget if plan.budget_gb is not None else None
    result.measurements = [one for one in result.measurements if _is_kept(one, asked_budget)]
    done = {one.key for one in result.measurements}
    bad = {one.key[:4] for one in result.measurements if one.outcome != "ok"}
    with Progress("bench", len(tasks), "measurements", shown=not quiet) as bar:
        for number, size, entry in tasks:
            cell = (entry.label, size.length, size.dim, size.batch_size)
            if (*cell, number) not in done and cell not in bad:
                bar.annotate(f"{entry.label} at {size.length:,}")
                found = _measure(plan, entry, size, number, budget)
                result.measurements.append(found)
                if found.outcome != "ok":
                    bad.add(cell)
                    tell(f"{entry.label} at {size.length:,} tokens: {found.outcome}, {found.reason}")
                if folder is not None:
                    write_atomically(folder / RESULT, to_json(result.to_mapping()))
            bar.update()


def _measure(
    plan: BenchPlan, entry: WrittenEntry, size: Size, number: int, budget: int | None
) -> Measurement:
    answer = run_job(plan.job(entry, size, number, budget), plan.timeout)
    return Measurement(
        attention=entry.label,
        length=size.length,
        dim=size.dim,
        batch_size=size.batch_size,
        round=number,
        budget_bytes=budget,
        **answer,
    )


def _is_kept(one: Measurement, budget: int | None) -> bool:
    """Return whether a measurement is kept; one that was out of memory is repeated with a larger budget."""
    if one.outcome == "OOM":
        return budget is None or one.budget_bytes is None or budget <= one.budget_bytes
    return one.outcome == "ok"


def _read_kept(file: Path, result: BenchResult) -> list[Measurement]:
    found = read_measurements(file, {"conditions": result.conditions, "machine": result.machine})
    return [from_mapping(Measurement, one, str(file)) for one in found]


def read_measurements(file: Path, own: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Read the measurements of an earlier call; none if there is no file.

    Args:
        file: The result file.
        own: What must be equal in the file, by key: the conditions and the machine.

    Raises:
        MolsliceError: The file is not a result, or has other conditions or another machine.
    """
    if not file.is_file():
        return []
    kept = read_json_object(file)
    if not all(isinstance(kept.get(name), dict) for name in own) or not _is_list(kept.get("measurements")):
        raise MolsliceError(f"{file} is not a result of `molslice bench`")
    for what, now in own.items():
        for name in now.keys() | kept[what].keys():
            if kept[what].get(name) != now.get(name):
                raise MolsliceError(
                    f"{file} was measured with {name} {kept[what].get(name)!r}, now it is "
                    f"{now.get(name)!r}; choose another folder"
                )
    return kept["measurements"]


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)
