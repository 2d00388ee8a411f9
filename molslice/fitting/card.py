"""The results of a fit as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from molslice.tasks.metrics import format_metric

__all__ = ["STANDARD_ERROR", "result_rows", "write_card"]

NAMES = ("molslice fit", "random forest", "boosting")
STANDARD_ERROR = (
    "A number after ± is a standard error: how far the error for many compounds of the same kind may be away."
)


def result_rows(about: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the column names and one row for each target: its errors, also on the held-out rows if any.

    An error has its standard error, except in older folders.

    Args:
        about: The content of `fit.json`.
    """
    label = about["metric_label"]
    header = ["target", "unit", "rows", f"cross-validated {label}", "held-out rows"]
    header += [f"{name} {label}" for name in NAMES]
    rows = []
    for result in about["results"]:
        spreads = result.get("standard_errors", {"cross_validated": None, "test": {}})
        errors = [format_metric(result["test"].get(name), spreads["test"].get(name)) for name in NAMES]
        rows.append(
            [
                result["target"],
                result["unit"] or "-",
                f"{result['train_rows']:,}",
                format_metric(result["cross_validated"], spreads["cross_validated"]),
                f"{result['test_rows']:,}",
                *errors,
            ]
        )
    shown = len(header) if about["rows"]["test"] else header.index("held-out rows")
    return header[:shown], [row[:shown] for row in rows]


def write_card(about: Mapping[str, Any]) -> str:
    """Write the model card, Markdown."""
    header, rows = result_rows(about)
    notes = [f"- {text}" for text in (*about["notices"], *about["findings"])]
    notes += [f"- {kind['count']:,} rows: {kind['reason']}" for kind in about["refusals"]]
    notes += [f"- not computed for lack of time: {what}" for what in about["left_out"]]
    weights = [
        f"- {result['target']}: "
        + ", ".join(f"{name} {weight:.2f}" for name, weight in result["weights"].items())
        for result in about["results"]
    ]
    return "\n".join(
        [
            f"# Model fitted to {about['source']}",
            "",
            f"Fitted by molslice {about['version']} in {about['seconds']:.0f} s on "
            f"{about['rows']['train']:,} rows. {_held_out(about['rows']['test'])}",
            "",
            *_markdown(header, rows),
            "",
            STANDARD_ERROR,
            "",
            "## Data",
            "",
            *notes,
            "",
            "## Weights of the learners",
            "",
            *weights,
            "",
            *_encoder_lines(about),
            f"Split: {about['options']['split']}; folds: {about['options']['members']}, divided "
            f"{'twice' if about['assignments'] > 1 else 'once'}; "
            f"seed: {about['options']['seed']}. `rows.csv` holds every row with its prediction; those of "
            "training rows are out of fold.",
            "",
        ]
    )


def _held_out(rows: int) -> str:
    if not rows:
        return "No row was held out. The cross-validated errors also determined the weights of the learners."
    return f"{rows:,} held-out row{'s were' if rows != 1 else ' was'} used only for these errors."


def _encoder_lines(about: Mapping[str, Any]) -> list[str]:
    if about["encoder"] is None:
        return []
    epochs = about["network_epochs"]
    tuned = f"fine-tuned for {epochs} epoch{'s' * (epochs != 1)}" if epochs else "not fine-tuned"
    return [f"Encoder: {about['encoder']}, SHA-256 {about['encoder_sha256']}, {tuned}.", ""]


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
