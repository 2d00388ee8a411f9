"""Measure all attentions of a plan at all sizes."""

from collections.abc import Callable
from pathlib import Path

from molslice.bench.machine import describe_machine
from molslice.bench.plan import BenchPlan
from molslice.bench.result import BenchResult
from molslice.bench.rounds import Measurement, run_rounds
from molslice.bench.scores import Scores
from molslice.bench.tables import to_csv, to_markdown

__all__ = ["run_bench"]


def run_bench(
    plan: BenchPlan,
    out: Path | str | None = None,
    *,
    setting: str | None = None,
    scores: Scores | None = None,
    tell: Callable[[str], None] = lambda message: None,
    quiet: bool = False,
) -> BenchResult:
    """Measure every entry at every size, with a new process for each round; see `run_rounds`.

    Measurements in `out` are kept, except those that failed or were out of memory under a smaller budget.

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
        The measurements, also of earlier calls.

    Raises:
        MolsliceError: `out` holds measurements of another machine or under other conditions, or a file cannot
            be read or written.
    """
    result = BenchResult(
        entries=[entry.label for entry in plan.entries],
        sizes=plan.sizes(),
        conditions=plan.conditions(),
        machine=describe_machine(plan.device),
        setting=setting,
    )
    if scores is not None:
        scores.check(result.entries)
    budget = None if plan.budget_gb is None else plan.budget_bytes()

    def is_kept(one: Measurement) -> bool:
        used = one.numbers["budget_bytes"]
        return one.outcome == "ok" or (
            one.outcome == "OOM" and (budget is None or used is None or budget <= used)
        )

    def to_files() -> dict[str, str | bytes]:
        return _files(result, scores)

    run_rounds(result, plan.tasks(), out, to_files=to_files, tell=tell, quiet=quiet, is_kept=is_kept)
    return result


def _files(result: BenchResult, scores: Scores | None) -> dict[str, str | bytes]:
    pictures: dict[str, str | bytes] = {}
    if any(cell.outcome == "ok" for cell in result.cells()):
        from molslice.bench.bubbles import draw_bubbles  # matplotlib takes long to import

        pictures = {f"bubbles.{suffix}": draw_bubbles(result, suffix, scores) for suffix in ("png", "svg")}
    return {"table.md": to_markdown(result), "table.csv": to_csv(result), **pictures}
