"""A result as Markdown (a row for each attention, a column for each length) and as CSV."""

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from molslice.bench.published import LENGTHS, PUBLISHED, SETTING
from molslice.bench.result import COMPARED, BenchResult, Cell
from molslice.bench.rounds import GIGA, OUTCOMES, UNKNOWN, Spread
from molslice.files.text_tables import markdown_table

__all__ = ["to_csv", "to_markdown"]

QUANTITIES: tuple[tuple[str, str, float], ...] = (
    # field of a cell, title, divisor
    ("training_steps_per_second", "Training steps/s", 1.0),
    ("inference_steps_per_second", "Inference steps/s", 1.0),
    ("peak_bytes", "Peak memory of training (GB)", GIGA),
    ("flops", "GFLOP forward and backward, matrix products only", GIGA),
)
# titles of the crossings, in the order of `COMPARED`
THRESHOLDS = (
    "trains faster than softmax from",
    "predicts faster than softmax from",
    "needs less memory than softmax from",
)
SIZE_COLUMNS = ("length", "dim", "batch_size")
COUNT_COLUMNS = ("parameters", "attention_parameters", "flops")
SPREAD_COLUMNS = ("training_steps_per_second", "inference_steps_per_second", "peak_bytes")


def to_markdown(result: BenchResult) -> str:
    """Return all tables, the conditions of the measurement, and the reasons for missing numbers."""
    parts = [_conditions(result)]
    several = len(result.tables()) > 1
    for (dim, batching), cells in result.tables().items():
        if several:
            parts.append(f"## Width {dim}, {batching}\n")
        parts.append(_overview(result, dim, batching, cells))
        parts += [_table(result, cells, *quantity) for quantity in QUANTITIES]
    if result.setting == SETTING:
        parts.append(_published())
    parts.append(_reasons(result))
    return "\n".join(part for part in parts if part)


def to_csv(result: BenchResult) -> str:
    """Return a line for each attention and size: median, minimum, and maximum over the rounds.

    Speed is in steps per second, memory in bytes.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    ends = ("median", "min", "max")
    spreads = [name if end == "median" else f"{name}_{end}" for name in SPREAD_COLUMNS for end in ends]
    header = ["attention", *SIZE_COLUMNS, "outcome", "reason", "rounds", *COUNT_COLUMNS, *spreads]
    writer.writerow(header)
    for cell in result.cells():
        values: list[Any] = [*cell.key, cell.outcome, cell.reason, cell.rounds]
        values += [cell.numbers[name] for name in COUNT_COLUMNS]
        values += [getattr(cell.numbers[name], end, None) for name in SPREAD_COLUMNS for end in ends]
        writer.writerow([f"{value:.8g}" if isinstance(value, float) else value for value in values])
    return stream.getvalue()


def _conditions(result: BenchResult) -> str:
    had, machine = result.conditions, result.machine
    sizes = {(size.dim, size.batching) for size in result.sizes}
    width = f", width {next(iter(sizes))[0]}, {next(iter(sizes))[1]}" if len(sizes) == 1 else ""
    causal = ", causal" if had["causal"] else ""
    stopped = " Interrupted: cells with `...` are not measured yet." if result.interrupted else ""
    return (
        f"{had['num_layers']} layers, {had['num_heads']} heads{width}{causal}, {had['dtype']}, "
        f"{machine['device']}, {had['threads']} threads, torch {machine['torch']}. "
        f"Median over rounds, each in a fresh process, the attentions in turn.{stopped}\n"
    )


def _overview(result: BenchResult, dim: int, batching: str, cells: Sequence[Cell]) -> str:
    baseline = result.baseline()
    crossings = {
        (one.attention, one.quantity): one.to_text()
        for one in result.crossings()
        if (one.dim, one.batching) == (dim, batching)
    }
    shortest = {cell.attention: cell for cell in reversed(cells) if cell.outcome == "ok"}
    rows = []
    for entry in result.entries:
        cell = shortest.get(entry)
        counts = [None if cell is None else cell.numbers[name] for name in COUNT_COLUMNS[:2]]
        row = [entry, *(UNKNOWN if count is None else f"{count:,}" for count in counts)]
        thresholds = [crossings.get((entry, quantity), UNKNOWN) for quantity in COMPARED]
        rows.append([*row, *thresholds] if baseline else row)
    header = ["attention", "parameters", "of them attention"]
    return markdown_table([*header, *THRESHOLDS] if baseline else header, rows)


def _table(result: BenchResult, cells: Sequence[Cell], name: str, title: str, divisor: float) -> str:
    lengths = list(dict.fromkeys(cell.size.length for cell in cells))
    by_place = {(cell.attention, cell.size.length): cell for cell in cells}
    rows = [
        [entry, *(_text(by_place[entry, length], name, divisor) for length in lengths)]
        for entry in result.entries
    ]
    table = markdown_table([title, *(f"{length:,}" for length in lengths)], rows)
    return table + _widest(cells, name)


def _text(cell: Cell, name: str, divisor: float) -> str:
    if cell.outcome != "ok":
        return OUTCOMES[cell.outcome]
    value = cell.numbers[name]
    if isinstance(value, Spread):
        value = value.median
    return UNKNOWN if value is None else _number(value / divisor)


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def _widest(cells: Sequence[Cell], name: str) -> str:
    """Return a line with the largest difference between the rounds of a cell."""
    shares: list[tuple[float, Cell]] = []
    for cell in cells:
        spread = cell.numbers[name]
        if isinstance(spread, Spread) and cell.rounds > 1 and spread.median:
            shares.append(((spread.max - spread.min) / spread.median, cell))
    if not shares:
        return ""
    share, cell = max(shares, key=lambda pair: pair[0])
    return (
        f"\nThe rounds of a cell differ by at most {share:.0%} ({cell.attention} at {cell.size.length:,}).\n"
    )


def _published() -> str:
    def table(title: str, take: Callable[[str], tuple[float | None, ...]]) -> str:
        rows = [
            [
                f"{PUBLISHED[entry].name} (`{entry}`)",
                *("OOM" if x is None else f"{x:.2f}" for x in take(entry)),
            ]
            for entry in PUBLISHED
        ]
        return markdown_table([title, *(f"{length:,}" for length in LENGTHS)], rows)

    return "\n".join(
        [
            "Published for this setting (arXiv 2310.17683; batch 32, four RTX 3090):\n",
            table("Training steps/s, published", lambda entry: PUBLISHED[entry].speed),
            table("Memory (GB), published", lambda entry: PUBLISHED[entry].memory),
        ]
    )


def _reasons(result: BenchResult) -> str:
    lines = [
        f"- `{cell.attention}` at {cell.size.length:,} tokens (width {cell.size.dim}, batch "
        f"{cell.size.batch_size}): {cell.outcome}, {cell.reason}"
        for cell in result.cells()
        if cell.outcome in ("OOM", "failed")
    ]
    return "\n".join(["Without a number:\n", *lines]) + "\n" if lines else ""
