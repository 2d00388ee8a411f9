"""Measurements of training, and their medians and spreads over the rounds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from molslice.bench.result import Spread

__all__ = ["Measurement", "Row", "TrainResult"]

PARTS = ("forward", "backward", "optimizer")
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Measurement:
    """The outcome of one job. All seconds are those of the timed steps together.

    Attributes:
        model: Name of the model.
        attention: The attention with its options.
        precision: Precision of the computation.
        round: Index of the round, from 0.
        outcome: `ok` with numbers, or `OOM` or `failed` with a reason.
        reason: Why there are no numbers; None for `ok`.
        steps: Number of timed steps.
        molecules: Number of molecules in these steps.
        seconds: Time of the steps with their batches.
        processor_seconds: Processor time of the process, over all threads.
        waiting_seconds: Time without a batch; on a GPU, idle time of the device before a batch.
        forward_seconds: Time of forward passes, with copies to the device.
        backward_seconds: Time of backward passes.
        optimizer_seconds: Time of the optimizer, clipping and averaging.
        padding_share: Share of padding in the tokens of the first epoch.
        peak_bytes: Largest resident set of the process, or memory that torch allocated on a GPU. None if it
            is not available.
        parameters: Trainable parameters.
        flops: Operations of the steps, counted only in the first round.
    """

    model: str
    attention: str
    precision: str
    round: int
    outcome: str
    reason: str | None = None
    steps: int | None = None
    molecules: int | None = None
    seconds: float | None = None
    processor_seconds: float | None = None
    waiting_seconds: float | None = None
    forward_seconds: float | None = None
    backward_seconds: float | None = None
    optimizer_seconds: float | None = None
    padding_share: float | None = None
    peak_bytes: int | None = None
    parameters: int | None = None
    flops: float | None = None

    @property
    def key(self) -> Key:
        """Model, attention and precision."""
        return self.model, self.attention, self.precision


@dataclass(frozen=True, slots=True)
class Row:
    """A model with an attention in a precision, over the rounds.

    Attributes:
        model: Name of the model.
        attention: The attention with its options.
        precision: Precision of the computation.
        outcome: `ok`, `OOM`, `failed`, or `missing` if it is not measured yet.
        reason: Why there are no numbers; None for `ok`.
        rounds: Number of rounds.
        parameters: Trainable parameters.
        molecules_per_second: Molecules in training steps per second.
        molecules_per_processor_second: The same per second of processor time, over all threads.
        waiting_share: Share of the time in which steps wait for data.
        forward_share: Share of forward passes in the time of the steps.
        backward_share: Share of backward passes in the time of the steps.
        optimizer_share: Share of the optimizer in the time of the steps.
        padding_share: Share of padding in the tokens.
        peak_bytes: Peak memory in bytes.
        flops_per_molecule: Operations of a training step for each molecule.
        flops_per_second: Operations per second.
        peak_share: Operations per second as a share of the peak of the device; None if it is unknown.
    """

    model: str
    attention: str
    precision: str
    outcome: str
    reason: str | None = None
    rounds: int = 0
    parameters: int | None = None
    molecules_per_second: Spread | None = None
    molecules_per_processor_second: Spread | None = None
    waiting_share: Spread | None = None
    forward_share: Spread | None = None
    backward_share: Spread | None = None
    optimizer_share: Spread | None = None
    padding_share: float | None = None
    peak_bytes: Spread | None = None
    flops_per_molecule: float | None = None
    flops_per_second: float | None = None
    peak_share: float | None = None

    @classmethod
    def of_rounds(cls, key: Key, found: Sequence[Measurement], peak: float | None) -> "Row":
        """Summarize the rounds of an entry. A round that failed or was out of memory determines the outcome.

        Args:
            key: Model, attention and precision.
            found: The measurements of its rounds; without any, the outcome is `missing`.
            peak: Peak of the device in operations per second; None if it is unknown.
        """
        if not found:
            return cls(*key, "missing")
        for outcome in ("OOM", "failed"):
            for one in found:
                if one.outcome == outcome:
                    return cls(*key, outcome, one.reason, len(found))
        counted = [one.flops / one.molecules for one in found if one.flops and one.molecules]
        speed = Spread.over([_ratio(one.molecules, one.seconds) for one in found])
        flops = counted[0] if counted else None
        per_second = None if flops is None or speed is None else flops * speed.median
        return cls(
            *key,
            "ok",
            rounds=len(found),
            parameters=found[0].parameters,
            molecules_per_second=speed,
            molecules_per_processor_second=Spread.over(
                [_ratio(one.molecules, one.processor_seconds) for one in found]
            ),
            waiting_share=Spread.over([_ratio(one.waiting_seconds, one.seconds) for one in found]),
            padding_share=found[0].padding_share,
            peak_bytes=Spread.over([one.peak_bytes for one in found]),
            flops_per_molecule=flops,
            flops_per_second=per_second,
            peak_share=_ratio(per_second, peak),
            forward_share=_shares_of_steps(found, "forward"),
            backward_share=_shares_of_steps(found, "backward"),
            optimizer_share=_shares_of_steps(found, "optimizer"),
        )


@dataclass(slots=True)
class TrainResult:
    """All measurements of the requested entries, with their conditions.

    Attributes:
        keys: Model, attention and precision of each entry.
        conditions: Settings that all measurements share.
        machine: Description of the machine.
        peaks: Peak of the device in operations per second by precision; None if it is unknown.
        interrupted: Whether the measurements were interrupted.
        measurements: The measurements so far.
    """

    keys: list[Key]
    conditions: dict[str, Any]
    machine: dict[str, str]
    peaks: dict[str, float | None]
    interrupted: bool = False
    measurements: list[Measurement] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """Return the row of each entry."""
        return [
            Row.of_rounds(key, [one for one in self.measurements if one.key == key], self.peaks.get(key[2]))
            for key in self.keys
        ]

    def failures(self) -> dict[str, str]:
        """Return the reason of each entry that failed for another reason than memory."""
        failed = [row for row in self.rows() if row.outcome == "failed"]
        return {f"{row.model} {row.attention} {row.precision}": f"with {row.reason}" for row in failed}

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of the result file."""
        return {
            "conditions": self.conditions,
            "machine": self.machine,
            "peaks": self.peaks,
            "interrupted": self.interrupted,
            "rows": [asdict(row) for row in self.rows()],
            "measurements": [asdict(one) for one in self.measurements],
        }


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return None if numerator is None or not denominator else numerator / denominator


def _shares_of_steps(found: Sequence[Measurement], part: str) -> Spread | None:
    def share(one: Measurement) -> float | None:
        seconds = {name: getattr(one, f"{name}_seconds") for name in PARTS}
        return None if None in seconds.values() else _ratio(seconds[part], sum(seconds.values()))

    return Spread.over([share(one) for one in found])
