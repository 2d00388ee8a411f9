"""Summaries of measurements: medians and spreads over the rounds, and crossing points."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from molslice.bench.plan import Size
from molslice.types import MolsliceError

__all__ = [
    "COMPARED",
    "BenchResult",
    "Cell",
    "Compared",
    "Crossing",
    "Measurement",
    "Spread",
    "find_crossing",
    "from_mapping",
]

BASELINE = "softmax"
Compared = Literal["training", "inference", "memory"]
COMPARED: tuple[Compared, ...] = get_args(Compared)
LARGEST = 2**63  # of a number in `bench.json`

Record = TypeVar("Record")


def from_mapping(cls: type[Record], mapping: dict[str, Any], source: str) -> Record:
    """Construct a dataclass of numbers and texts from an entry of a result file.

    Args:
        cls: The dataclass.
        mapping: The entry.
        source: Name of the file, for the message.

    Raises:
        MolsliceError: The mapping has other keys or types, or a number out of range.
    """
    kinds = get_type_hints(cls)
    try:
        for name, value in mapping.items():
            kind = kinds[name]
            sound = isinstance(value, kind) or (type(value) is int and isinstance(0.0, kind))
            if isinstance(value, int | float):
                can_be_zero = name == "waiting_seconds" or not name.endswith("_seconds")
                sound = sound and 0 <= value <= LARGEST and (value > 0 or can_be_zero)
            if not sound:
                raise TypeError(f"{name} is {value!r:.80}")
        return cls(**mapping)
    except (TypeError, KeyError, AttributeError) as error:
        raise MolsliceError(f"invalid measurement in {source}: {error}") from error


@dataclass(frozen=True, slots=True)
class Measurement:
    """The outcome of one job.

    Attributes:
        attention: The entry, a name with options after colons.
        length: Tokens per sequence.
        dim: Width of the model.
        batch_size: Sequences per batch.
        round: Index of the round, from 0.
        outcome: `ok` with numbers, or `OOM` or `failed` with a reason.
        budget_bytes: Memory that the job could use, in bytes; None for no limit.
        reason: Why there are no numbers; None for `ok`.
        training_seconds: Seconds per training step.
        training_steps: Number of training steps that were timed.
        inference_seconds: Seconds per inference step.
        inference_steps: Number of inference steps that were timed.
        peak_bytes: Peak memory of training, in bytes; None if it is not available.
        parameters: Trainable parameters of the model.
        attention_parameters: Trainable parameters of all its attentions.
        flops: Operations of a forward and a backward pass, counted only in the first round.
    """

    attention: str
    length: int
    dim: int
    batch_size: int
    round: int
    outcome: str
    budget_bytes: int | None = None
    reason: str | None = None
    training_seconds: float | None = None
    training_steps: int | None = None
    inference_seconds: float | None = None
    inference_steps: int | None = None
    peak_bytes: int | None = None
    parameters: int | None = None
    attention_parameters: int | None = None
    flops: int | None = None

    @property
    def key(self) -> tuple[str, int, int, int, int]:
        """The entry, the size, and the round."""
        return (self.attention, self.length, self.dim, self.batch_size, self.round)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range over the rounds.

    Attributes:
        median: The median.
        min: The smallest value.
        max: The largest value.
    """

    median: float
    min: float
    max: float

    @classmethod
    def over(cls, values: Sequence[float | None]) -> "Spread | None":
        """Return the spread of the values, or None if one of them is missing."""
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        return cls(statistics.median(known), min(known), max(known))


@dataclass(frozen=True, slots=True)
class Cell:
    """An attention at a size, over the rounds.

    Attributes:
        attention: The entry.
        size: The size.
        outcome: `ok`, `OOM`, `failed`, or `missing` if it is not measured yet.
        reason: Why there are no numbers; None for `ok`.
        rounds: Number of rounds.
        parameters: Trainable parameters of the model.
        attention_parameters: Trainable parameters of all its attentions.
        flops: Operations of a forward and a backward pass; None if not counted.
        training_steps_per_second: Training speed in steps per second.
        inference_steps_per_second: Inference speed in steps per second.
        peak_bytes: Peak memory of training, in bytes.
    """

    attention: str
    size: Size
    outcome: str
    reason: str | None = None
    rounds: int = 0
    parameters: int | None = None
    attention_parameters: int | None = None
    flops: int | None = None
    training_steps_per_second: Spread | None = None
    inference_steps_per_second: Spread | None = None
    peak_bytes: Spread | None = None

    @classmethod
    def of_rounds(cls, attention: str, size: Size, found: Sequence[Measurement]) -> "Cell":
        """Summarize the rounds of an entry at a size.

        A round that failed or was out of memory determines the outcome.

        Args:
            attention: The entry.
            size: The size.
            found: The measurements of its rounds; without any, the outcome is `missing`.
        """
        if not found:
            return cls(attention, size, "missing")
        for outcome in ("OOM", "failed"):
            for one in found:
                if one.outcome == outcome:
                    return cls(attention, size, outcome, one.reason, len(found))
        counted = [one.flops for one in found if one.flops is not None]
        return cls(
            attention,
            size,
            "ok",
            None,
            len(found),
            found[0].parameters,
            found[0].attention_parameters,
            counted[0] if counted else None,
            Spread.over([_rate(one.training_seconds) for one in found]),
            Spread.over([_rate(one.inference_seconds) for one in found]),
            Spread.over([one.peak_bytes for one in found]),
        )

    def cost_of(self, quantity: Compared) -> float | None:
        """Return seconds per training or inference step, or bytes of memory.

        Returns:
            Infinity for training and memory if training is out of memory; None if it is not available.
        """
        if self.outcome == "OOM" and quantity != "inference":
            return math.inf
        if quantity == "memory":
            return None if self.peak_bytes is None else self.peak_bytes.median or None
        is_training = quantity == "training"
        speed = self.training_steps_per_second if is_training else self.inference_steps_per_second
        return None if speed is None else 1 / speed.median


@dataclass(frozen=True, slots=True)
class Crossing:
    """The length from which an attention needs less than the baseline, up to the longest length.

    Attributes:
        attention: The entry.
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


@dataclass(slots=True)
class BenchResult:
    """All measurements of the requested entries and sizes, with their conditions.

    Attributes:
        entries: Labels of the entries.
        sizes: The sizes.
        conditions: Settings that all measurements share, see `BenchPlan.conditions`.
        machine: Description of the machine, see `describe_machine`.
        setting: Name of the setting that the sizes come from; None for other sizes.
        interrupted: Whether the measurements were interrupted.
        measurements: The measurements so far.
    """

    entries: list[str]
    sizes: list[Size]
    conditions: dict[str, Any]
    machine: dict[str, str]
    setting: str | None = None
    interrupted: bool = False
    measurements: list[Measurement] = field(default_factory=list)

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
                list(dict.fromkeys(cell["attention"] for cell in cells)),
                list(dict.fromkeys(sizes)),
                mapping["conditions"],
                mapping["machine"],
                mapping["setting"],
                mapping["interrupted"],
                [from_mapping(Measurement, one, source) for one in mapping["measurements"]],
            )
        except (KeyError, TypeError) as error:
            raise MolsliceError(
                f"cannot read {source}: it is not a result of `molslice bench`: {error!r}"
            ) from error

    def cells(self) -> list[Cell]:
        """Return the cells by size, then by entry."""
        found: dict[tuple[str, int, int, int], list[Measurement]] = {}
        for one in self.measurements:
            found.setdefault(one.key[:4], []).append(one)
        return [
            Cell.of_rounds(entry, size, found.get((entry, size.length, size.dim, size.batch_size), []))
            for size in self.sizes
            for entry in self.entries
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
        """Return a crossing for each table, quantity and entry except the baseline.

        Args:
            baseline: The entry to compare with; None for `baseline()`.
        """
        baseline = baseline or self.baseline()
        return [
            find_crossing(entry, baseline, quantity, dim, batching, cells)
            for (dim, batching), cells in self.tables().items()
            for quantity in COMPARED
            for entry in self.entries
            if baseline is not None and entry != baseline
        ]

    def failures(self) -> dict[str, str]:
        """Return the first reason of each entry that failed for another reason than memory, by entry."""
        found: dict[str, str] = {}
        for cell in self.cells():
            if cell.outcome == "failed":
                found.setdefault(cell.attention, f"at {cell.size.length:,} tokens: {cell.reason}")
        return found

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of `bench.json`."""
        return {
            "setting": self.setting,
            "conditions": self.conditions,
            "machine": self.machine,
            "interrupted": self.interrupted,
            "cells": [_flat(cell) for cell in self.cells()],
            "baseline": self.baseline(),
            "crossings": [{**asdict(one), "text": one.to_text()} for one in self.crossings()],
            "measurements": [asdict(one) for one in self.measurements],
        }


def _rate(seconds: float | None) -> float | None:
    return None if seconds is None else 1 / seconds


def _flat(cell: Cell) -> dict[str, Any]:
    mapping = asdict(cell)
    size = mapping.pop("size")
    return {"attention": mapping.pop("attention"), **size, **mapping}


def find_crossing(
    attention: str, baseline: str, quantity: Compared, dim: int, batching: str, cells: Sequence[Cell]
) -> Crossing:
    """Find the length from which an attention needs less time or memory than the baseline.

    Between two lengths, the logarithm of the ratio is interpolated linearly in the logarithm of the length. A
    side that is out of memory needs infinitely much; lengths at which both are out of memory are not
    compared. Inference is compared only at lengths at which both trained.

    Args:
        attention: The entry.
        baseline: The entry to compare with.
        quantity: What to compare.
        dim: Width of the model, for the result.
        batching: The batch size or the tokens per batch, for the result.
        cells: The cells of both entries at all lengths.

    Returns:
        The crossing, with its length in tokens.
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


def _log_ratio(own: float, other: float) -> float:
    if math.isinf(own):
        return math.inf
    return -math.inf if math.isinf(other) else math.log(own / other)
