"""The parts of a report that need the model alone: training, parameters, and how to make it again."""

import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from molslice.config import config_to_yaml
from molslice.data.molecules.side_columns import split_unit
from molslice.files.folder_names import without_folders
from molslice.fitting.card import STANDARD_ERROR, result_rows, tuning_note, tuning_rows
from molslice.fitting.columns import names_without_units
from molslice.folders.run import METRICS
from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.fitted import FittedPredictor
from molslice.inference.load import AnyPredictor, NetworkPredictor
from molslice.model.count import parameters_by_part
from molslice.number_text import counted
from molslice.report.charts import Curves, draw_curves
from molslice.report.page import (
    Html,
    bars,
    code,
    details,
    figures,
    paragraph,
    section,
    table,
)
from molslice.tasks.metrics import METRIC_LABELS, format_metric, with_unit
from molslice.training.records import read_metrics
from molslice.version import __version__

MOST_CURVES = 6
FIT_OPTIONS = (
    *("delimiter", "decimal", "outliers", "scale", "split", "by", "groups", "duplicates"),
    *("fragment", "wildcards", "standardize", "quality", "members", "minutes", "tune", "seed"),
    *("class_weight", "limits", "transform", "weight"),
)
REPEATED_OPTIONS = {  # name in the record: name in the command
    "conditions": "condition",
    "missing_values": "missing-value",
    "positive": "positive",
    "relations": "relation",
    "unit_columns": "unit-column",
    "errors": "error",
}
PACKAGES = ("torch", "rdkit", "numpy", "scikit-learn", "lightning")


def short_name(predictor: AnyPredictor) -> str:
    """Return the last part of the name of a model; for `.`, the name of that folder."""
    return os.path.basename(os.path.abspath(predictor.name))


def with_short_name(text: str, predictor: AnyPredictor) -> str:
    """Replace the absolute path of the folder of a model in a text by its last part.

    A page may be sent to others, without the names of the folders above.
    """
    if not os.path.isabs(predictor.name):
        return text
    return without_folders(text, {os.path.normpath(predictor.name): short_name(predictor)})


def networks_of(predictor: AnyPredictor) -> list[NetworkPredictor]:
    """Return the networks of a model; empty for a fit without them."""
    if isinstance(predictor, NetworkPredictor):
        return [predictor]
    networks = predictor.members if isinstance(predictor, EnsemblePredictor) else predictor.networks
    return [network for network in networks if isinstance(network, NetworkPredictor)]


def recorded_errors(predictor: AnyPredictor) -> Html:
    """Return the errors that the folder of the model has from its training."""
    if isinstance(predictor, FittedPredictor):
        errors = table(*result_rows(predictor.model.about), "Errors from the fit")
        return section(errors, paragraph(STANDARD_ERROR, soft=True))
    rows = []
    for network in networks_of(predictor):
        summary = network.summary or {}
        metric, units = summary.get("metric"), summary.get("units", {})
        for split in ("train", "valid", "test"):
            errors = summary.get(split, {}).get(metric) or {}
            label = METRIC_LABELS.get(str(metric), str(metric))
            member = _member_name(predictor, network)
            rows += [
                [name, units.get(name) or "-", split, member, label, format_metric(error)]
                for name, error in errors.items()
            ]
    if not rows:
        return paragraph("The folder of the model has no errors from its training.", soft=True)
    header = ["target", "unit", "split", "network", "measure", "error"]
    if not isinstance(predictor, EnsemblePredictor):
        header.remove("network")
        rows = [[*row[:3], *row[4:]] for row in rows]
    return table(header, rows, "Errors from the training")


def training(predictor: AnyPredictor) -> Html:
    """Return the curves of the training, or the weights of the learners of a fit."""
    if isinstance(predictor, FittedPredictor):
        return _learners(predictor.model.about)
    metrics = {
        _member_name(predictor, network): read_metrics(folder / METRICS)
        for network in networks_of(predictor)
        if (folder := network.folder or Path(network.name)).joinpath(METRICS).is_file()
    }
    if not metrics:
        return paragraph(f"The folder of the model has no {METRICS}, so there are no curves.", soft=True)
    charts = [(draw_curves(_curves(metrics, "train_loss"), "training loss"), "Training loss.")]
    titles = {
        column: with_unit(name, unit)
        for column, name, unit in zip(
            predictor.columns, predictor.target_names, predictor.target_units, strict=True
        )
    }
    names = [name for name in next(iter(metrics.values())) if name.startswith("valid_")]
    for name in names[:MOST_CURVES]:
        metric, _, column = name.removeprefix("valid_").partition("_")
        label = f"validation {METRIC_LABELS.get(metric, metric)}"
        caption = f"{label[0].upper()}{label[1:]} of {titles.get(column, column)}."
        charts.append((draw_curves(_curves(metrics, name), label), caption))
    left = len(names) - MOST_CURVES
    return section(figures(charts), *([paragraph(f"{left} more are in {METRICS}.")] if left > 0 else []))


def parameters(predictor: AnyPredictor) -> Html:
    """Return the parameters of a model with networks by part."""
    networks = networks_of(predictor)
    counts, lead = parameters_by_part(networks[0].model), []
    if len(networks) > 1:
        lead = [paragraph(f"The model has {len(networks)} networks, each with these parameters.")]
    total = max(counts["total"], 1)
    lines = [((name, f"{count:,}"), count / total) for name, count in counts.items()]
    return section(*lead, bars(["part", "parameters"], lines))


def reproduction(predictor: AnyPredictor, command: Sequence[str]) -> Html:
    """Return versions, and the commands that make the model and the page again, if a command wrote it."""
    rows = [["molslice", __version__], ["Python", platform.python_version()]]
    rows += [[name, version(name)] for name in PACKAGES]
    parts = [table(["package", "version"], rows, "Versions for this report")]
    what = "the model and this page" if command else "the model"
    name = with_short_name(predictor.name, predictor)
    lines = [[with_short_name(word, predictor) for word in command]] if command else []
    if isinstance(predictor, FittedPredictor):
        record = predictor.model.about
        lead = f"These commands reproduce {what} in a folder that contains {record['source']}:"
        lines = [_fit_command(record, name), *lines]
        return section(*parts, paragraph(lead), code("\n".join(map(shlex.join, lines))))
    network = networks_of(predictor)[0]
    versions = (network.summary or {}).get("versions")
    if isinstance(versions, Mapping):
        rows = [[str(name), str(value)] for name, value in versions.items()]
        parts.append(table(["package", "version"], rows, "Versions in training"))
    many = ["--members", str(len(predictor.members))] if isinstance(predictor, EnsemblePredictor) else []
    train = ["molslice", "train", "--config", "config.yaml", *many, "--out", name]
    lead = (
        f"These commands reproduce {what} in a folder that contains the configuration below as config.yaml:"
    )
    parts += [paragraph(lead), code("\n".join(map(shlex.join, [train, *lines])))]
    return section(*parts, details("config.yaml", config_to_yaml(network.config)))


def _member_name(predictor: AnyPredictor, network: NetworkPredictor) -> str:
    return f"member {Path(network.name).name}" if isinstance(predictor, EnsemblePredictor) else ""


def _learners(record: Mapping[str, Any]) -> Html:
    lines = [
        ((name.replace("_", " "), result["target"], f"{weight:.2f}"), weight)
        for result in record["results"]
        for name, weight in result["weights"].items()
    ]
    notes = ["A fit has no learning curve. Its prediction is the weighted mean of these learners."]
    if epochs := record.get("network_epochs"):
        notes.append(f"The networks were fine-tuned for {counted(epochs, 'epoch')}.")
    if left_out := record.get("left_out"):
        notes.append(f"Left out for lack of time: {', '.join(map(str, left_out))}.")
    tuning = tuning_rows(record)
    tuned = [table(*tuning, "Tuning")] if tuning[1] else []
    tuned += [paragraph(note, soft=True)] if (note := tuning_note(record)) else []
    return section(paragraph(" ".join(notes)), bars(["learner", "target", "weight"], lines), *tuned)


def _curves(metrics: Mapping[str, Mapping[str, list[float]]], name: str) -> Curves:
    return {label: (columns["step"], columns[name]) for label, columns in metrics.items() if name in columns}


def _fit_command(record: Mapping[str, Any], name: str) -> list[str]:
    words = ["molslice", "fit", _path(record["source"])]
    for column in record.get("columns") or record["targets"]["names"]:
        words += option_words("target", column)
    for column in (record["smiles_column"], record.get("partner")):
        words += [] if column is None else option_words("smiles-column", column)
    words += ["--symmetric"] * bool(record["options"].get("symmetric"))
    targets = record["targets"]
    for target in targets.get("parts") or [targets]:
        words += option_words("kind", target["kind"])
    for unit in _given_units(record):
        words += option_words("unit", unit)
    treatment = {name: record.get(name) for name in ("fragment", "wildcards", "standardize")}
    options = treatment | record["options"]
    for key, option in REPEATED_OPTIONS.items():
        for value in options.get(key) or ():
            words += option_words(option, "" if value is None else value)
    order = options.get("order", [])
    for classes in [order] if order and isinstance(order[0], str) else order:
        words += option_words("order", ",".join(classes))
    for related in record.get("related", ()):
        words += option_words("with", f"{_path(related['source'])}:{related['target']}")
    for option in FIT_OPTIONS:
        if options.get(option) is not None:
            words += option_words(option.replace("_", "-"), options[option])
    if "refit" in options:
        words.append("--refit" if options["refit"] else "--no-refit")
    words += ["--no-encoder"] if record["encoder"] is None else option_words("encoder", record["encoder"])
    return [*words, *option_words("out", name)]


def _given_units(record: Mapping[str, Any]) -> list[str]:
    """Return the unit of each target if units were given; empty if all units are in the names of columns.

    A folder of an earlier version does not record which units were given, so its targets' units are taken.
    """
    names, of_targets = record["targets"]["names"], record["targets"]["units"]
    columns = record.get("columns") or names
    written = [
        split_unit(column)[1] if name != column else "" for name, column in zip(names, columns, strict=True)
    ]
    given = record["options"].get("units")
    if given is None and of_targets != written and not record["options"].get("transform"):
        given = of_targets
    kinds = [result.get("kind") for result in record["results"]]
    without = [  # numbers that keep the brackets: the unit "" was given
        kind == "regression" and name == column != plain
        for kind, name, column, plain in zip(
            kinds, names, columns, names_without_units(columns, None), strict=True
        )
    ]
    if not any(given or ()) and not any(without):
        return []
    return [unit or of_column for unit, of_column in zip(given or written, written, strict=True)]


def option_words(name: str, value: object) -> list[str]:
    """Return the words of an option: one if the value begins with a hyphen, else two."""
    text = str(value)
    return [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]


def _path(name: object) -> str:
    """Return the name of a file in this folder; a hyphen at its beginning would make it an option."""
    return f"./{name}" if str(name).startswith("-") else str(name)
