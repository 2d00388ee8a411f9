"""A measurement of training as Markdown."""

from molslice.bench.result import Spread
from molslice.bench.training.result import Row, TrainResult
from molslice.training.comparison import markdown_table

__all__ = ["to_markdown"]

UNKNOWN = "-"
GIGA, TERA = 1e9, 1e12
HEADER = (
    "model",
    "attention",
    "precision",
    "parameters",
    "molecules/s",
    "waiting",
    "forward",
    "backward",
    "optimizer",
    "padding",
    "memory (GB)",
    "TFLOP/s",
    "of peak",
)


def to_markdown(result: TrainResult) -> str:
    """Return the table, the conditions of the measurement, and the reasons for missing numbers."""
    rows = result.rows()
    cells = [_cells(row) for row in rows]
    # a column without a number is left out, such as the share of peak on a CPU
    shown = [place for place in range(len(HEADER)) if any(row[place] != UNKNOWN for row in cells)]
    table = markdown_table(
        [HEADER[place] for place in shown], [[row[place] for place in shown] for row in cells]
    )
    reasons = [
        f"- {row.model} `{row.attention}` in {row.precision}: {row.outcome}, {row.reason}"
        for row in rows
        if row.outcome in ("OOM", "failed")
    ]
    return "\n".join([_conditions(result), table, *reasons]).rstrip() + "\n"


def _cells(row: Row) -> list[str]:
    if row.outcome != "ok":
        text = {"OOM": "OOM", "failed": "failed", "missing": "..."}[row.outcome]
        return [row.model, row.attention, row.precision, UNKNOWN, text, *[UNKNOWN] * (len(HEADER) - 5)]
    return [
        row.model,
        row.attention,
        row.precision,
        UNKNOWN if row.parameters is None else f"{row.parameters:,}",
        _number(row.molecules_per_second, 1.0),
        *(_share(getattr(row, f"{part}_share")) for part in ("waiting", "forward", "backward", "optimizer")),
        UNKNOWN if row.padding_share is None else f"{row.padding_share:.1%}",
        _number(row.peak_bytes, GIGA),
        UNKNOWN if row.flops_per_second is None else f"{row.flops_per_second / TERA:.3g}",
        UNKNOWN if row.peak_share is None else f"{row.peak_share:.1%}",
    ]


def _number(spread: Spread | None, divisor: float) -> str:
    if spread is None:
        return UNKNOWN
    value = spread.median / divisor
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _share(spread: Spread | None) -> str:
    return UNKNOWN if spread is None else f"{spread.median:.1%}"


def _conditions(result: TrainResult) -> str:
    had, machine = result.conditions, result.machine
    lines = [
        f"{had['molecules']:,} molecules of {had['source']}, {machine['device']}, {had['threads']} threads, "
        f"torch {machine['torch']}. Median over rounds, each in a fresh process, the entries in turn. "
        "Waiting is a share of the time, forward, backward and optimizer are shares of the steps."
    ]
    if result.machine["device"] != result.machine["processor"] and not any(result.peaks.values()):
        lines.append(f"The peak of {machine['device']} is unknown, so its share is not stated.")
    if result.interrupted:
        lines.append("Interrupted: rows with `...` are not measured yet.")
    return "\n".join(lines) + "\n"
