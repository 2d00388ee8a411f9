"""The result of `molslice bench data`: medians over the rounds, as a table."""

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
    number_text,
    row_table,
    share_text,
    spread_of,
)

__all__ = ["DataResult", "to_markdown"]

MEGA = 1e6
COLUMNS = (
    Column("molecules/s", "molecules_per_second", number_text()),
    Column("batches/s", "batches_per_second", number_text()),
    Column("MB/s", "bytes_per_second", number_text(MEGA)),
    Column("padding", "padding_share", share_text),
    Column("memory (GB)", "peak_bytes", number_text(GIGA)),
    Column("memory of a worker (GB)", "worker_peak_bytes", number_text(GIGA)),
)


@dataclass(kw_only=True)
class DataResult(Result):
    """All measurements of the data path, with their conditions.

    A measurement has the number of molecules, the bytes of the arrays that the stage returned, the number of
    batches (0 for a stage without batches), the time of all of them, the processor time of the process (None
    with workers), the share of padding in the tokens of the batches (None for other stages), and the largest
    resident sets of the process and of a worker (None if they are not available).

    Attributes:
        entries: Names of the stages.
        atoms: Number of atoms of a molecule: `mean`, `median`, `percentile_95` and `max`.
        bytes_per_molecule: Bytes of a molecule with its targets in the store, without offsets.
    """

    FILE: ClassVar = "bench_data.json"
    KEY: ClassVar = {"stage": str}
    NUMBERS: ClassVar = (
        "molecules",
        "bytes",
        "batches",
        "seconds",
        "processor_seconds",
        "padding_share",
        "peak_bytes",
        "worker_peak_bytes",
    )
    FAILURES: ClassVar = ("OOM", "failed")

    entries: list[str]
    atoms: dict[str, float]
    bytes_per_molecule: float

    def keys(self) -> list[Key]:
        """Return the key of each stage."""
        return [(stage,) for stage in self.entries]

    def summarize(self, key: Key, rounds: Sequence[Measurement]) -> dict[str, Any]:
        """Return molecules, batches and bytes per second, the share of padding, and peak memory in bytes."""

        def rate(quantity: str, seconds: str = "seconds") -> Spread | None:
            return Spread.over([one.ratio(quantity, seconds) or None for one in rounds])

        return {
            "molecules_per_second": rate("molecules"),
            "molecules_per_processor_second": rate("molecules", "processor_seconds"),
            "bytes_per_second": rate("bytes"),
            "batches_per_second": rate("batches"),
            "padding_share": rounds[0].numbers.get("padding_share") if rounds else None,
            "peak_bytes": spread_of(rounds, "peak_bytes"),
            "worker_peak_bytes": spread_of(rounds, "worker_peak_bytes"),
        }


def to_markdown(result: DataResult) -> str:
    """Return the table, the conditions of the measurement, and the reasons for missing numbers."""
    had, atoms = result.conditions, result.atoms
    conditions = (
        f"{had['molecules']:,} molecules of {had['source']}: {atoms['median']:g} atoms in the median, "
        f"{atoms['percentile_95']:g} at 95%, at most {atoms['max']:g}; "
        f"{result.bytes_per_molecule:.0f} bytes each. {result.machine['processor']}, "
        "one thread. Median over rounds, each in a fresh process.\n"
    )
    table = row_table(
        tuple(result.KEY), COLUMNS, result.rows(), rate="molecules_per_second", hides_empty=False
    )
    lines = [
        conditions,
        table,
        *(f"- {stage} failed {reason}" for stage, reason in result.failures().items()),
    ]
    if result.interrupted:
        lines.append("Interrupted: rows with `...` are not measured yet.")
    return "\n".join(lines).rstrip() + "\n"
