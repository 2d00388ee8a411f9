"""The result of `molslice bench train`: medians over the rounds, as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from molslice.bench.rounds import (
    GIGA,
    Column,
    Key,
    Measurement,
    Result,
    Spread,
    count_text,
    number_text,
    row_table,
    share_text,
    spread_of,
)

__all__ = ["TrainResult", "to_markdown"]

TERA = 1e12
PARTS = ("forward", "backward", "optimizer")
COLUMNS = (
    Column("parameters", "parameters", count_text),
    Column("molecules/s", "molecules_per_second", number_text()),
    *(Column(name, f"{name}_share", share_text) for name in ("waiting", *PARTS, "padding")),
    Column("memory (GB)", "peak_bytes", number_text(GIGA)),
    Column("TFLOP/s", "flops_per_second", number_text(TERA)),
    Column("of peak", "peak_share", share_text),
)


@dataclass(kw_only=True)
class TrainResult(Result):
    """All measurements of training, with their conditions.

    A measurement has, of its timed steps together: their number, the molecules in them, the time with and
    without waiting for batches (on a GPU, waiting is the idle time of the device before a batch), the
    processor time over all threads, and the operations, counted only in the first round. Forward passes
    include copies to the device; the optimizer includes clipping and averaging. Besides it has the share of
    padding in the tokens of the first epoch, the trainable parameters, and the peak memory: the largest
    resident set of the process, or what torch allocated on a GPU; None if it is not available.

    Attributes:
        entries: Model, attention and precision of each entry.
        peaks: Peak of the device in operations per second by precision; None if it is unknown.
    """

    FILE: ClassVar = "bench_train.json"
    KEY: ClassVar = {"model": str, "attention": str, "precision": str}
    NUMBERS: ClassVar = (
        "steps",
        "molecules",
        "seconds",
        "processor_seconds",
        "waiting_seconds",
        "forward_seconds",
        "backward_seconds",
        "optimizer_seconds",
        "padding_share",
        "peak_bytes",
        "parameters",
        "flops",
    )

    entries: list[tuple[str, str, str]]
    peaks: dict[str, float | None]

    def keys(self) -> list[Key]:
        """Return model, attention and precision of each entry."""
        return [*self.entries]

    def summarize(self, key: Key, rounds: Sequence[Measurement]) -> dict[str, Any]:
        """Return rates, shares and counts.

        Waiting is a share of the time; forward, backward and optimizer are shares of the time of the steps.
        """
        first = rounds[0].numbers if rounds else {}
        counted = [one.ratio("flops", "molecules") for one in rounds if one.numbers.get("flops")]
        flops, peak = (counted[0] if counted else None), self.peaks.get(str(key[2]))
        speed = spread_of(rounds, "molecules", "seconds")
        per_second = None if flops is None or speed is None else flops * speed.median
        return {
            "parameters": first.get("parameters"),
            "molecules_per_second": speed,
            "molecules_per_processor_second": spread_of(rounds, "molecules", "processor_seconds"),
            "waiting_share": spread_of(rounds, "waiting_seconds", "seconds"),
            **{f"{part}_share": Spread.over([_share(one, part) for one in rounds]) for part in PARTS},
            "padding_share": first.get("padding_share"),
            "peak_bytes": spread_of(rounds, "peak_bytes"),
            "flops_per_molecule": flops,
            "flops_per_second": per_second,
            "peak_share": None if per_second is None or not peak else per_second / peak,
        }


def _share(one: Measurement, part: str) -> float | None:
    """Return the share of a part in the time of the steps."""
    seconds = {name: one.numbers[f"{name}_seconds"] for name in PARTS}
    if None in seconds.values() or not sum(seconds.values()):
        return None
    return seconds[part] / sum(seconds.values())


def to_markdown(result: TrainResult) -> str:
    """Return the table, the conditions of the measurement, and the reasons for missing numbers."""
    rows = result.rows()
    table = row_table(tuple(result.KEY), COLUMNS, rows, rate="molecules_per_second", hides_empty=True)
    reasons = [
        f"- {model} `{attention}` in {precision}: {row.outcome}, {row.reason}"
        for row in rows
        for model, attention, precision in [row.key]
        if row.outcome in ("OOM", "failed")
    ]
    return "\n".join([_conditions(result), table, *reasons]).rstrip() + "\n"


def _conditions(result: TrainResult) -> str:
    had, machine = result.conditions, result.machine
    lines = [
        f"{had['molecules']:,} molecules of {had['source']}, {machine['device']}, {had['threads']} threads, "
        f"torch {machine['torch']}. Median over rounds, each in a fresh process, the entries in turn. "
        "Waiting is a share of the time, forward, backward and optimizer are shares of the steps."
    ]
    if machine["device"] != machine["processor"] and not any(result.peaks.values()):
        lines.append(f"The peak of {machine['device']} is unknown, so its share is not stated.")
    if result.interrupted:
        lines.append("Interrupted: rows with `...` are not measured yet.")
    return "\n".join(lines) + "\n"
