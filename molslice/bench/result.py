"""The result of `molslice bench attention`: medians over the rounds, and crossing points."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, get_args

from molslice.bench.plan import Size
from molslice.bench.rounds import Key, Measurement, Result, Row, Spread, spread_of
from molslice.types import MolsliceError

__all__ = ["COMPARED", "BenchResult", "Cell", "Compared", "Crossing"]

BASELINE = "softmax"
Compared = Literal["training", "inference", "memory"]
COMPARED: tuple[Compared, ...] = get_args(Compared)


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
                measurements=[cls.read_measurement(one, source) for one in mapping["measurements"]],
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
        flops = [one.numbers["flops"] for one in rounds if one.numbers.get("flops") is not None]
        speeds = {
            f"{name}_steps_per_second": Spread.over(
                [_inverse(one.numbers[f"{name}_seconds"]) for one in rounds]
            )
            for name in ("training", "inference")
        }
        return {
            "parameters": first.get("parameters"),
            "attention_parameters": first.get("attention_parameters"),
            "flops": flops[0] if flops else None,
            **speeds,
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
        return [
            _find_crossing(entry, baseline, quantity, dim, batching, cells)
            for (dim, batching), cells in self.tables().items()
            for quantity in COMPARED
            for entry in self.entries
            if baseline is not None and entry != baseline
        ]

    def failures(self) -> dict[str, str]:
        """Return the first reason of each attention that failed for another reason than memory."""
        reasons: dict[str, str] = {}
        for cell in self.cells():
            if cell.outcome == "failed":
                reasons.setdefault(cell.attention, f"at {cell.size.length:,} tokens: {cell.reason}")
        return reasons

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of `bench.json`."""
        mapping = super().to_mapping()
        rows, cells = mapping.pop("rows"), self.cells()
        return {
            **mapping,
            "cells": [{**row, **asdict(cell.size)} for row, cell in zip(rows, cells, strict=True)],
            "baseline": self.baseline(),
            "crossings": [{**asdict(one), "text": one.to_text()} for one in self.crossings()],
        }


def _inverse(seconds: float | None) -> float | None:
    return None if seconds is None else 1 / seconds


def _find_crossing(
    attention: str, baseline: str, quantity: Compared, dim: int, batching: str, cells: Sequence[Cell]
) -> Crossing:
    """Find the length from which an attention needs less than the baseline.

    Between two lengths, the logarithm of the ratio is interpolated linearly in the logarithm of the length. A
    side that is out of memory needs infinitely much; lengths at which both are out of memory are not
    compared. Inference is compared only at lengths at which both trained.
    """
    ratios: list[tuple[int, float]] = []
    for length in sorted({cell.size.length for cell in cells}):
        cost, baseline_cost = (
            next(c.cost_of(quantity) for c in cells if c.size.length == length and c.attention == name)
            for name in (attention, baseline)
        )
        if cost is not None and baseline_cost is not None and not cost == baseline_cost == math.inf:
            ratios.append((length, _log_ratio(cost, baseline_cost)))
    if not ratios:
        return Crossing(attention, quantity, dim, batching, None, None)
    longest = ratios[-1][0]
    needs_more = [index for index, (_, ratio) in enumerate(ratios) if ratio >= 0]
    if not needs_more:
        return Crossing(attention, quantity, dim, batching, ratios[0][0], longest, at_once=True)
    if needs_more[-1] == len(ratios) - 1:
        return Crossing(attention, quantity, dim, batching, None, longest)
    (short, above), (long, below) = ratios[needs_more[-1]], ratios[needs_more[-1] + 1]
    if math.isinf(above) or math.isinf(below):
        return Crossing(attention, quantity, dim, batching, long, longest)
    share = above / (above - below)
    return Crossing(attention, quantity, dim, batching, short * (long / short) ** share, longest)


def _log_ratio(cost: float, baseline_cost: float) -> float:
    if math.isinf(cost):
        return math.inf
    return -math.inf if math.isinf(baseline_cost) else math.log(cost / baseline_cost)
