"""The results of a fit as text."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from molslice.number_text import counted
from molslice.tasks.metrics import METRIC_LABELS, format_metric
from molslice.uncertainty.rounding import rounded_error
from molslice.uncertainty.similarity_rule import LEVEL

NAMES = ("molslice fit", "random forest", "boosting")
RARE = 0.2  # share of the rarer class below which the PR-AUC is shown
STANDARD_ERROR = (
    "A number after ± is a standard error: how far it may be from the error over many compounds of the same "
    "kind."
)
MORE_TIME = (  # docs/results/small-data.md
    "--quality best also fine-tunes the encoder: about 12 times the time, for an error that was 0.4% smaller "
    "on average in 40 tests"
)


def describe_more_time(record: Mapping[str, Any]) -> str:
    """Say what more time would change in a fit with `--quality good`; "" if there are no networks for it."""
    beside = record.get("conditions") or record.get("related") or "partner" in record
    is_good = record["options"]["quality"] == "good" and record["encoder"] is not None
    return MORE_TIME if is_good and not beside else ""


def result_rows(record: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the column names and one row for each target: its errors, also on the held-out rows if any.

    An error has its standard error, except in older folders. If the targets have different metrics, a column
    names them.
    """
    label = record.get("metric_label")
    of_label = f" {label}" if label else ""
    header = ["target", "unit", *([] if label else ["metric"])]
    header += [
        "rows",
        f"cross-validated{of_label}",
        "held-out rows",
        *(f"{name}{of_label}" for name in NAMES),
    ]
    rows = []
    for result in record["results"]:
        spreads = result.get("standard_errors", {"cross_validated": None, "test": {}})
        errors = [rounded_error(result["test"].get(name), spreads["test"].get(name)) for name in NAMES]
        rows.append(
            [
                result["target"],
                result["unit"] or "-",
                *([] if label else [METRIC_LABELS[result["metric"]]]),
                f"{result['train_rows']:,}",
                rounded_error(result["cross_validated"], spreads["cross_validated"]),
                f"{result['test_rows']:,}",
                *errors,
            ]
        )
    shown = len(header) if record["rows"]["test"] else header.index("held-out rows")
    return header[:shown], [row[:shown] for row in rows]


def further_rows(record: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the column names and the rows of the metrics beside the primary one, if they should be seen.

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
            cells = [rounded_error(errors["cross_validated"], spreads["cross_validated"])]
            cells += [rounded_error(errors["test"].get(name), spreads["test"].get(name)) for name in NAMES]
            rows.append([result["target"], label, *cells])
    header = ["target", "metric", "cross-validated", *NAMES]
    shown = len(header) if record["rows"]["test"] else header.index(NAMES[0])
    return header[:shown], [row[:shown] for row in rows]


class TunedTarget(NamedTuple):
    """The trials of a target, and which settings they changed.

    Attributes:
        name: The target.
        label: The label of the metric.
        trials: The trials in order; empty if there was no time for the first one.
        changes: The chosen settings that are not the defaults; "" if all are.
    """

    name: str
    label: str
    trials: Sequence[Mapping[str, Any]]
    changes: str

    @property
    def best(self) -> Mapping[str, Any]:
        """The trial with the best error, which is the last one that was chosen."""
        return [trial for trial in self.trials if trial["chosen"]][-1]


def tuned_targets(record: Mapping[str, Any]) -> list[TunedTarget]:
    """List the targets of a fit that was tuned; empty without tuning."""
    targets = []
    for result in record["results"] if "tuning" in record else ():
        name, metric = result["target"], result.get("metric", record.get("metric"))
        trials = [trial for trial in record["tuning"] if trial["target"] == name]
        targets.append(
            TunedTarget(name, METRIC_LABELS[metric], trials, _changed_settings(trials) if trials else "")
        )
    return targets


def tuning_rows(record: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the column names and one row for each target: what tuning changed. No rows without tuning."""
    rows, targets = [], tuned_targets(record)
    labels = {target.label for target in targets}
    for target in targets:
        if target.trials:
            errors = [
                rounded_error(trial["cross_validated"], trial["standard_error"])
                for trial in (target.trials[0], target.best)
            ]
            metric = [target.label] if len(labels) > 1 else []
            count = f"{len(target.trials):,}"
            rows.append([target.name, *metric, count, *errors, target.changes or "the defaults"])
    if len(labels) > 1:
        return ["target", "metric", "trials", "with defaults", "as chosen", "chosen"], rows
    label = "".join(labels)
    return ["target", "trials", f"{label} with defaults", f"{label} as chosen", "chosen"], rows


def tuning_note(record: Mapping[str, Any]) -> str:
    """Say that tuning made the cross-validated error optimistic; "" if it changed no setting."""
    if not any(target.changes for target in tuned_targets(record)):
        return ""
    note = (
        "Settings that tuning has chosen were selected by the cross-validated error, so that this error is "
    )
    return f"{note}optimistic." + " The held-out rows were not used." * bool(record["rows"]["test"])


def describe_tuning(record: Mapping[str, Any]) -> list[str]:
    """Say what tuning changed, a sentence for each target, and `tuning_note`."""
    sentences = []
    for target in tuned_targets(record):
        name, label, trials, changes = target
        label = f"cross-validated {label}"
        if not trials:
            sentences.append(f"{name}: not tuned, because the learners with their defaults took all the time")
            continue
        before, after = (format_metric(trial["cross_validated"]) for trial in (trials[0], target.best))
        count = counted(len(trials), "trial")
        changed = f"{changes} improved the {label} from {before} to {after}"
        kept = f"none improved the {label} of the defaults, {before}, by more than a standard error"
        sentences.append(f"{name}: {count}; {changed if changes else kept}")
    return [*sentences, *filter(None, [tuning_note(record)])]


def _changed_settings(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return the chosen settings of a target that are not the defaults; "" if all are."""
    defaults, changes = trials[0]["settings"], []
    for trial in trials[1:]:
        for learner, settings in trial["settings"].items() if trial["chosen"] else ():
            listed = ", ".join(
                f"{name} {_setting(value)}"
                for name, value in settings.items()
                if value != defaults[learner][name]
            )
            changes.append(f"{learner} ({listed})".replace("_", " "))
    return " and ".join(changes)


def _setting(value: float | str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else f"{value:.3g}"


def describe_domain(record: Mapping[str, Any]) -> str:
    """Say at which similarities the places of molecules begin; "" for pairs and in older folders."""
    if (rule := record.get("domain")) is None:
        return ""
    edge, like = f"{rule['edge']:.2f}", f"{rule['like']:.2f}"
    places = f"at the edge from {edge}, and outside below" if edge != like else "and outside below"
    chosen = "" if rule["groups"] else "; there were too few rows to choose other similarities"
    return (
        f"A molecule is like the training molecules from a similarity of {like} to the nearest one, "
        f"{places}{chosen}."
    )


def domain_rows(record: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the column names and one row for each group of out-of-fold rows of about one similarity."""
    rule = record.get("domain") or {"groups": ()}
    rows = []
    for group in rule["groups"]:
        covered = "-" if group["coverage"] is None else f"{group['coverage']:.0%}"
        similarity = f"{group['low']:.2f} to {group['high']:.2f}"
        rows.append([similarity, f"{group['rows']:,}", f"{group['error']:.2f}", covered])
    return ["similarity", "rows", "error / mean error", f"in the {LEVEL:.0%} interval"], rows


def write_card(record: Mapping[str, Any]) -> str:
    """Write the model card, Markdown."""
    header, rows = result_rows(record)
    further = further_rows(record)
    notes = [f"- {text}" for text in (*record["notices"], *record["findings"])]
    notes += [f"- {kind['count']:,} rows: {kind['reason']}" for kind in record["refusals"]]
    tuning = tuning_rows(record)
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
            *(["## Tuning", "", *_markdown(*tuning), ""] if tuning[1] else []),
            *([note, ""] if (note := tuning_note(record)) else []),
            *_domain_lines(record),
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


def _domain_lines(record: Mapping[str, Any]) -> list[str]:
    if not (sentence := describe_domain(record)):
        return []
    header, rows = domain_rows(record)
    return ["## Domain", "", sentence, "", *([*_markdown(header, rows), ""] if rows else [])]


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
    tuned = f"fine-tuned for {counted(epochs, 'epoch')}" if epochs else "not fine-tuned"
    if (weight := record.get("network_weight")) is not None:
        tuned += f", because the first network had a weight of only {weight:.2f}"
    return [f"Encoder: {record['encoder']}, SHA-256 {record['encoder_sha256']}, {tuned}.", ""]


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
