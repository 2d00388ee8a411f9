"""The result of `molslice bench attention`: medians over the rounds, crossing points, Markdown and CSV."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, get_args

from molslice.bench.published import LENGTHS, PUBLISHED, SETTING
from molslice.bench.rounds import (
    GIGA,
    OUTCOMES,
    UNKNOWN,
    Key,
    Measurement,
    Result,
    Row,
    Spread,
    cell_text,
    spread_of,
)
from molslice.files.text_tables import csv_text, markdown_table
from molslice.types import MolsliceError

BASELINE = "softmax"
Compared = Literal["training", "inference", "memory"]
COMPARED: tuple[Compared, ...] = get_args(Compared)
# titles of the crossings, in the order of `COMPARED`
THRESHOLDS = (
    "trains faster than softmax from",
    "predicts faster than softmax from",
    "needs less memory than softmax from",
)
QUANTITIES: tuple[tuple[str, str, float], ...] = (
    # number of a cell, title, divisor
    ("training_steps_per_second", "Training steps/s", 1.0),
    ("inference_steps_per_second", "Inference steps/s", 1.0),
    ("peak_bytes", "Peak memory of training (GB)", GIGA),
    ("flops", "GFLOP forward and backward, matrix products only", GIGA),
)
COUNT_COLUMNS = ("parameters", "attention_parameters", "flops")
SPREAD_COLUMNS = ("training_steps_per_second", "inference_steps_per_second", "peak_bytes")


@dataclass(frozen=True, slots=True)
class Size:
    """One column of a table.

    Attributes:
        length: Tokens per sequence.
        dim: Width of the model.
        batch_size: Sequences per batch.
        batching: The batch size or the tokens per batch, as text. Sizes with the same batching and width are
            in one table.
    """

    length: int
    dim: int
    batch_size: int
    batching: str


@dataclass(frozen=True, slots=True)
class Cell(Row):
    """An attention at a size, over the rounds; see `BenchResult.summarize`.

    Attributes:
        size: The size.
    """

    size: Size

    @property
    def attention(self) -> str:
        """The entry, a name with options after colons."""
        return str(self.key[0])

    def cost_of(self, quantity: Compared) -> float | None:
        """Return seconds per training or inference step, or bytes of memory.

        Returns:
            Infinity for training and memory if training is out of memory; None if it is not available.
        """
        if self.outcome == "OOM" and quantity != "inference":
            return math.inf
        spread = self.numbers["peak_bytes" if quantity == "memory" else f"{quantity}_steps_per_second"]
        if spread is None:
            return None
        return (spread.median or None) if quantity == "memory" else 1 / spread.median


@dataclass(frozen=True, slots=True)
class Crossing:
    """The length from which an attention needs less than the baseline, up to the longest length.

    Attributes:
        attention: The attention, a name with options after colons.
        quantity: What is compared: time of a training step, time of an inference step, or memory.
        dim: Width of the model.
        batching: The batch size or the tokens per batch, as text.
        length: The length in tokens; None if the attention does not need less at the longest length.
        longest: The longest length that was compared; None if nothing can be compared.
        at_once: Whether the attention needs less already at the shortest length.
    """

    attention: str
    quantity: Compared
    dim: int
    batching: str
    length: float | None
    longest: int | None
    at_once: bool = False

    def to_text(self) -> str:
        """Return the text of the table."""
        if self.longest is None:
            return "-"
        if self.length is None:
            return f"none up to {self.longest:,}"
        return f"{'at most ' if self.at_once else ''}{self.length:,.0f}"


@dataclass(kw_only=True)
class BenchResult(Result):
    """All measurements of the requested attentions and sizes, with their conditions.

    A measurement has the bytes that the job could use (None for no limit), seconds per training and inference
    step, the number of steps that were timed, the peak memory of training (None if it is not available), the
    trainable parameters of the model and of all its attentions, and the operations of a forward and a
    backward pass, counted only in the first round.

    Attributes:
        entries: Labels of the attentions.
        sizes: The sizes.
        setting: Name of the setting that the sizes come from; None for other sizes.
    """

    FILE: ClassVar = "bench.json"
    KEY: ClassVar = {"attention": str, "length": int, "dim": int, "batch_size": int}
    NUMBERS: ClassVar = (
        "budget_bytes",
        "training_seconds",
        "training_steps",
        "inference_seconds",
        "inference_steps",
        "peak_bytes",
        "parameters",
        "attention_parameters",
        "flops",
    )

    entries: list[str]
    sizes: list[Size]
    setting: str | None = None

    @classmethod
    def of_mapping(cls, mapping: dict[str, Any], source: str) -> "BenchResult":
        """Construct the result from the content of `bench.json`; the inverse of `to_mapping`.

        Args:
            mapping: The content of the file.
            source: Name of the file, for messages.

        Raises:
            MolsliceError: The mapping is not a result.
        """
        try:
            cells = mapping["cells"]
            sizes = [Size(**{name: cell[name] for name in Size.__slots__}) for cell in cells]
            return cls(
                entries=list(dict.fromkeys(cell["attention"] for cell in cells)),
                sizes=list(dict.fromkeys(sizes)),
                measurements=[cls.read_measurement(line, source) for line in mapping["measurements"]],
                **{name: mapping[name] for name in ("conditions", "machine", "setting", "interrupted")},
            )
        except (KeyError, TypeError) as error:
            raise MolsliceError(
                f"cannot read {source}: it is not a result of `molslice bench`: {error!r}"
            ) from error

    def keys(self) -> list[Key]:
        """Return attention, length, width and batch size of each cell, by size, then by attention."""
        return [
            (entry, size.length, size.dim, size.batch_size) for size in self.sizes for entry in self.entries
        ]

    def summarize(self, key: Key, rounds: Sequence[Measurement]) -> dict[str, Any]:
        """Return parameters, operations, steps per second, and peak memory of training in bytes."""
        first = rounds[0].numbers if rounds else {}
        flops = [
            measurement.numbers["flops"]
            for measurement in rounds
            if measurement.numbers.get("flops") is not None
        ]

        def speed(seconds: str) -> Spread | None:
            known = [measurement.numbers[seconds] for measurement in rounds]
            return Spread.over([None if value is None else 1 / value for value in known])

        return {
            "parameters": first.get("parameters"),
            "attention_parameters": first.get("attention_parameters"),
            "flops": flops[0] if flops else None,
            "training_steps_per_second": speed("training_seconds"),
            "inference_steps_per_second": speed("inference_seconds"),
            "peak_bytes": spread_of(rounds, "peak_bytes"),
        }

    def cells(self) -> list[Cell]:
        """Return the cells by size, then by attention."""
        sizes = [size for size in self.sizes for _ in self.entries]
        return [
            Cell(row.key, row.outcome, row.reason, row.rounds, row.numbers, size)
            for row, size in zip(self.rows(), sizes, strict=True)
        ]

    def tables(self) -> dict[tuple[int, str], list[Cell]]:
        """Return the cells of each width and batching."""
        grouped: dict[tuple[int, str], list[Cell]] = {}
        for cell in self.cells():
            grouped.setdefault((cell.size.dim, cell.size.batching), []).append(cell)
        return grouped

    def baseline(self) -> str | None:
        """Return the baseline, softmax with the fused kernel; None if it was not measured."""
        return BASELINE if BASELINE in self.entries else None

    def crossings(self, baseline: str | None = None) -> list[Crossing]:
        """Return a crossing for each table, quantity and attention except the baseline.

        Args:
            baseline: The attention to compare with; None for `baseline()`.
        """
        baseline = baseline or self.baseline()
        if baseline is None:
            return []
        return [
            Crossing(entry, quantity, dim, batching, *_find_crossing(cells, entry, baseline, quantity))
            for (dim, batching), cells in self.tables().items()
            for quantity in COMPARED
            for entry in self.entries
            if entry != baseline
        ]

    def failures(self) -> dict[str, str]:
        """Return the first reason of each attention that failed for another reason than memory."""
        reasons: dict[str, str] = {}
        for cell in self.cells():
            if cell.outcome == "failed":
                reasons.setdefault(cell.attention, f"at {cell.size.length:,} tokens: {cell.reason}")
        return reasons

    def to_markdown(self) -> str:
        """Return all tables, the conditions of the measurement, and the reasons for missing numbers."""
        parts = [_conditions(self)]
        tables = self.tables()
        for (dim, batching), cells in tables.items():
            if len(tables) > 1:
                parts.append(f"## Width {dim}, {batching}\n")
            parts.append(_overview(self, dim, batching, cells))
            parts += [_table(self.entries, cells, *quantity) for quantity in QUANTITIES]
        if self.setting == SETTING:
            parts.append(_published())
        parts.append(_reasons(self))
        return "\n".join(text for text in parts if text)

    def to_csv(self) -> str:
        """Return a line for each attention and size: median, minimum, and maximum over the rounds.

        Speed is in steps per second, memory in bytes.
        """
        ends = ("median", "min", "max")
        spreads = [name if end == "median" else f"{name}_{end}" for name in SPREAD_COLUMNS for end in ends]
        lines: list[list[Any]] = [[*self.KEY, "outcome", "reason", "rounds", *COUNT_COLUMNS, *spreads]]
        for row in self.rows():
            counts = [row.numbers[name] for name in COUNT_COLUMNS]
            values = [getattr(row.numbers[name], end, None) for name in SPREAD_COLUMNS for end in ends]
            lines.append([*row.key, row.outcome, row.reason, row.rounds, *counts, *values])
        return csv_text(lines)

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of `bench.json`."""
        mapping = super().to_mapping()
        rows, cells = mapping.pop("rows"), self.cells()
        return {
            **mapping,
            "cells": [{**row, **asdict(cell.size)} for row, cell in zip(rows, cells, strict=True)],
            "baseline": self.baseline(),
            "crossings": [{**asdict(crossing), "text": crossing.to_text()} for crossing in self.crossings()],
        }


def _find_crossing(
    cells: Sequence[Cell], attention: str, baseline: str, quantity: Compared
) -> tuple[float | None, int | None, bool]:
    """Find the length from which an attention needs less than the baseline.

    Between two lengths, the logarithm of the ratio is interpolated linearly in the logarithm of the length. A
    side that is out of memory needs infinitely much; lengths at which both are out of memory are not
    compared. Inference is compared only at lengths at which both trained.

    Returns:
        Length, longest compared length, and whether it is the shortest length; see `Crossing`.
    """
    costs = {(cell.attention, cell.size.length): cell.cost_of(quantity) for cell in cells}
    ratios: list[tuple[int, float]] = []
    for length in sorted({cell.size.length for cell in cells}):
        cost, baseline_cost = costs[attention, length], costs[baseline, length]
        if cost is not None and baseline_cost is not None and not cost == baseline_cost == math.inf:
            ratios.append(
                (length, -math.inf if baseline_cost == math.inf else math.log(cost / baseline_cost))
            )
    if not ratios:
        return None, None, False
    longest = ratios[-1][0]
    needs_more = [index for index, (_, ratio) in enumerate(ratios) if ratio >= 0]
    if not needs_more:
        return ratios[0][0], longest, True
    if needs_more[-1] == len(ratios) - 1:
        return None, longest, False
    (short, above), (long, below) = ratios[needs_more[-1]], ratios[needs_more[-1] + 1]
    if math.isinf(above) or math.isinf(below):
        return long, longest, False
    return short * (long / short) ** (above / (above - below)), longest, False


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
        (crossing.attention, crossing.quantity): crossing.to_text()
        for crossing in result.crossings()
        if (crossing.dim, crossing.batching) == (dim, batching)
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


def _table(entries: Sequence[str], cells: Sequence[Cell], name: str, title: str, divisor: float) -> str:
    lengths = list(dict.fromkeys(cell.size.length for cell in cells))
    by_place = {(cell.attention, cell.size.length): cell for cell in cells}
    rows = [
        [entry, *(_text(by_place[entry, length], name, divisor) for length in lengths)] for entry in entries
    ]
    table = markdown_table([title, *(f"{length:,}" for length in lengths)], rows)
    return table + _widest(cells, name)


def _text(cell: Cell, name: str, divisor: float) -> str:
    if cell.outcome != "ok":
        return OUTCOMES[cell.outcome]
    return cell_text(cell, name, lambda value: _number(value / divisor))


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
    lines = ["Published for this setting (arXiv 2310.17683; batch 32, four RTX 3090):\n"]
    for title, name in (("Training steps/s", "speed"), ("Memory (GB)", "memory")):
        rows = [
            [
                f"{paper.name} (`{entry}`)",
                *("OOM" if value is None else f"{value:.2f}" for value in getattr(paper, name)),
            ]
            for entry, paper in PUBLISHED.items()
        ]
        lines.append(markdown_table([f"{title}, published", *(f"{length:,}" for length in LENGTHS)], rows))
    return "\n".join(lines)


def _reasons(result: BenchResult) -> str:
    lines = [
        f"- `{cell.attention}` at {cell.size.length:,} tokens (width {cell.size.dim}, batch "
        f"{cell.size.batch_size}): {cell.outcome}, {cell.reason}"
        for cell in result.cells()
        if cell.outcome in ("OOM", "failed")
    ]
    return "\n".join(["Without a number:\n", *lines]) + "\n" if lines else ""
