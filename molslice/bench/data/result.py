"""Measurements of the data path, their medians over the rounds, and the table."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from molslice.bench.result import Spread
from molslice.training.comparison import markdown_table

__all__ = ["DataResult", "Measurement", "Row", "to_markdown"]

UNKNOWN = "-"
MEGA, GIGA = 1e6, 1e9


@dataclass(frozen=True, slots=True)
class Measurement:
    """The outcome of one job.

    Attributes:
        stage: Name of the stage.
        round: Index of the round, from 0.
        outcome: `ok` with numbers, or `OOM` or `failed` with a reason.
        reason: Why there are no numbers; None for `ok`.
        molecules: Number of molecules.
        bytes: Bytes of the arrays that the stage returned.
        batches: Number of batches; 0 for a stage without batches.
        seconds: Time of all molecules.
        processor_seconds: Processor time of the process; None with workers.
        padding_share: Share of padding in the tokens of the batches; None for other stages.
        peak_bytes: Largest resident set of the process; None if it is not available.
        worker_peak_bytes: The same of the largest worker; None without workers.
    """

    stage: str
    round: int
    outcome: str
    reason: str | None = None
    molecules: int | None = None
    bytes: int | None = None
    batches: int | None = None
    seconds: float | None = None
    processor_seconds: float | None = None
    padding_share: float | None = None
    peak_bytes: int | None = None
    worker_peak_bytes: int | None = None

    @property
    def key(self) -> tuple[str]:
        """The stage."""
        return (self.stage,)


@dataclass(frozen=True, slots=True)
class Row:
    """A stage, over the rounds.

    Attributes:
        stage: Name of the stage.
        outcome: `ok`, `OOM`, `failed`, or `missing` if it is not measured yet.
        reason: Why there are no numbers; None for `ok`.
        rounds: Number of rounds.
        molecules_per_second: Molecules per second.
        molecules_per_processor_second: Molecules per second of processor time; None with workers.
        bytes_per_second: Bytes of arrays per second.
        batches_per_second: Batches per second; None for a stage without batches.
        padding_share: Share of padding in the tokens of the batches; None for other stages.
        peak_bytes: Peak memory of the process, in bytes.
        worker_peak_bytes: Peak memory of the largest worker, in bytes; None without workers.
    """

    stage: str
    outcome: str
    reason: str | None = None
    rounds: int = 0
    molecules_per_second: Spread | None = None
    molecules_per_processor_second: Spread | None = None
    bytes_per_second: Spread | None = None
    batches_per_second: Spread | None = None
    padding_share: float | None = None
    peak_bytes: Spread | None = None
    worker_peak_bytes: Spread | None = None

    @classmethod
    def of_rounds(cls, stage: str, found: Sequence[Measurement]) -> "Row":
        """Summarize the rounds of a stage. A round that failed determines the outcome.

        Args:
            stage: Name of the stage.
            found: The measurements of its rounds; without any, the outcome is `missing`.
        """
        if not found:
            return cls(stage, "missing")
        for one in found:
            if one.outcome != "ok":
                return cls(stage, one.outcome, one.reason, len(found))

        def rate(quantity: str, seconds: str = "seconds") -> Spread | None:
            pairs = [(getattr(one, quantity), getattr(one, seconds)) for one in found]
            return Spread.over([amount / time if amount and time else None for amount, time in pairs])

        return cls(
            stage,
            "ok",
            rounds=len(found),
            molecules_per_second=rate("molecules"),
            molecules_per_processor_second=rate("molecules", "processor_seconds"),
            bytes_per_second=rate("bytes"),
            batches_per_second=rate("batches"),
            padding_share=found[0].padding_share,
            peak_bytes=Spread.over([one.peak_bytes for one in found]),
            worker_peak_bytes=Spread.over([one.worker_peak_bytes for one in found]),
        )


@dataclass(slots=True)
class DataResult:
    """All measurements of the data path, with their conditions.

    Attributes:
        stages: Names of the stages.
        conditions: Settings that all measurements share.
        machine: Description of the machine.
        atoms: Number of atoms of a molecule: `mean`, `median`, `percentile_95` and `max`.
        bytes_per_molecule: Bytes of a molecule with its targets in the store, without offsets.
        interrupted: Whether the measurements were interrupted.
        measurements: The measurements so far.
    """

    stages: list[str]
    conditions: dict[str, Any]
    machine: dict[str, str]
    atoms: dict[str, float]
    bytes_per_molecule: float
    interrupted: bool = False
    measurements: list[Measurement] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """Return the row of each stage."""
        return [
            Row.of_rounds(stage, [one for one in self.measurements if one.stage == stage])
            for stage in self.stages
        ]

    def failures(self) -> dict[str, str]:
        """Return the reason of each stage without numbers."""
        failed = [row for row in self.rows() if row.outcome in ("OOM", "failed")]
        return {row.stage: f"with {row.reason}" for row in failed}

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of the result file."""
        names = ("conditions", "machine", "atoms", "bytes_per_molecule", "interrupted")
        return {
            **{name: getattr(self, name) for name in names},
            "rows": [asdict(row) for row in self.rows()],
            "measurements": [asdict(one) for one in self.measurements],
        }


def to_markdown(result: DataResult) -> str:
    """Return the table, the conditions of the measurement, and the reasons for missing numbers."""
    had, atoms = result.conditions, result.atoms
    about = (
        f"{had['molecules']:,} molecules of {had['source']}: {atoms['median']:g} atoms in the median, "
        f"{atoms['percentile_95']:g} at 95%, at most {atoms['max']:g}; "
        f"{result.bytes_per_molecule:.0f} bytes each. {result.machine['processor']}, "
        "one thread. Median over rounds, each in a fresh process.\n"
    )
    header = [
        "stage",
        "molecules/s",
        "batches/s",
        "MB/s",
        "padding",
        "memory (GB)",
        "memory of a worker (GB)",
    ]
    lines = [about, markdown_table(header, [_cells(row) for row in result.rows()])]
    lines += [f"- {stage} failed {reason}" for stage, reason in result.failures().items()]
    if result.interrupted:
        lines.append("Interrupted: rows with `...` are not measured yet.")
    return "\n".join(lines).rstrip() + "\n"


def _cells(row: Row) -> list[str]:
    if row.outcome != "ok":
        return [row.stage, "..." if row.outcome == "missing" else row.outcome, *[UNKNOWN] * 5]
    return [
        row.stage,
        _number(row.molecules_per_second, 1.0),
        _number(row.batches_per_second, 1.0),
        _number(row.bytes_per_second, MEGA),
        UNKNOWN if row.padding_share is None else f"{row.padding_share:.1%}",
        _number(row.peak_bytes, GIGA),
        _number(row.worker_peak_bytes, GIGA),
    ]


def _number(spread: Spread | None, divisor: float) -> str:
    if spread is None:
        return UNKNOWN
    value = spread.median / divisor
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
