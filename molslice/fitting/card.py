"""The results of a fit as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from molslice.tasks.metrics import METRIC_LABELS, format_metric

NAMES = ("molslice fit", "random forest", "boosting")
RARE = 0.2  # share of the rarer class below which the PR-AUC is shown
STANDARD_ERROR = (
    "A number after ± is a standard error: how far the error for many compounds of the same kind may be away."
)


def result_rows(record: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the column names and one row for each target: its errors, also on the held-out rows if any.

    An error has its standard error, except in older folders.
    """
    label = record["metric_label"]
    header = ["target", "unit", "rows", f"cross-validated {label}", "held-out rows"]
    header += [f"{name} {label}" for name in NAMES]
    rows = []
    for result in record["results"]:
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
    shown = len(header) if record["rows"]["test"] else header.index("held-out rows")
    return header[:shown], [row[:shown] for row in rows]


def further_rows(record: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the column names and the rows of the metrics beside the announced one, if they should be seen.

    They are all metrics of several classes, and the PR-AUC of class 1 with its value at random, if less than
    a fifth of the rows have the rarer class.

    Returns:
        No rows if there are no such metrics.
    """
    rows = []
    for result in record["results"]:
        for metric, errors in result.get("metrics", {}).items():
            label, spreads = METRIC_LABELS[metric], errors["standard_errors"]
            if metric == "pr_auc":
                counts = [*result["classes"].values()]
                share = counts[1] / max(sum(counts), 1)
                if min(share, 1.0 - share) >= RARE:
                    continue
                label += f" ({share:.2g} at random)"
            cells = [format_metric(errors["cross_validated"], spreads["cross_validated"])]
            cells += [format_metric(errors["test"].get(name), spreads["test"].get(name)) for name in NAMES]
            rows.append([result["target"], label, *cells])
    header = ["target", "metric", "cross-validated", *NAMES]
    shown = len(header) if record["rows"]["test"] else header.index(NAMES[0])
    return header[:shown], [row[:shown] for row in rows]


def write_card(record: Mapping[str, Any]) -> str:
    """Write the model card, Markdown."""
    header, rows = result_rows(record)
    further = further_rows(record)
    notes = [f"- {text}" for text in (*record["notices"], *record["findings"])]
    notes += [f"- {kind['count']:,} rows: {kind['reason']}" for kind in record["refusals"]]
    notes += [f"- not computed for lack of time: {what}" for what in record["left_out"]]
    weights = [
        f"- {result['target']}: "
        + ", ".join(f"{name} {weight:.2f}" for name, weight in result["weights"].items())
        for result in record["results"]
    ]
    return "\n".join(
        [
            f"# Model fitted to {record['source']}",
            "",
            f"Fitted by molslice {record['version']} in {record['seconds']:.0f} s on "
            f"{record['rows']['train']:,} rows. {_held_out(record)}",
            "",
            *_markdown(header, rows),
            "",
            *([*_markdown(*further), ""] if further[1] else []),
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
            *_encoder_lines(record),
            f"Split: {_split(record['options'])}; folds: {record['options']['members']}, divided "
            f"{'twice' if record['assignments'] > 1 else 'once'}; "
            f"seed: {record['options']['seed']}. `rows.csv` holds every row with its prediction, "
            "which is out of fold for training rows.",
            "",
        ]
    )


def _split(options: Mapping[str, Any]) -> str:
    by = f" by {options['by']}" if options.get("by") else ""
    return options["split"] + by + (f"; groups: {options['groups']}" if options.get("groups") else "")


def _held_out(record: Mapping[str, Any]) -> str:
    rows = record["rows"]["test"]
    if not rows:
        return "No row was held out. The cross-validated errors also determined the weights of the learners."
    if record.get("refitted"):
        return (
            f"A model of the other rows was measured on {rows:,} held-out rows. This model was then fitted "
            "to all rows; the cross-validated errors are its own."
        )
    return f"{rows:,} held-out row{'s were' if rows != 1 else ' was'} used only for these errors."


def _encoder_lines(record: Mapping[str, Any]) -> list[str]:
    if record["encoder"] is None:
        return []
    epochs = record["network_epochs"]
    tuned = f"fine-tuned for {epochs} epoch{'s' * (epochs != 1)}" if epochs else "not fine-tuned"
    if (weight := record.get("network_weight")) is not None:
        tuned += f", because the first network had a weight of only {weight:.2f}"
    return [f"Encoder: {record['encoder']}, SHA-256 {record['encoder_sha256']}, {tuned}.", ""]


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
