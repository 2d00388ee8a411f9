"""The files of a fit: learners, rows with predictions, calibration, domain, results and card."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from molslice.files.cache import file_checksum
from molslice.files.urls import File
from molslice.fitting.card import write_card
from molslice.fitting.data import FitData
from molslice.fitting.errors import Measured, measure_errors
from molslice.fitting.learner_fits import FIT_LABEL, TargetFit, join_parts
from molslice.folders.fitted import (
    CARD,
    FIT,
    ROW_COLUMNS,
    ROWS,
    describe_model,
    row_columns,
    save_learners,
)
from molslice.folders.fitted_rows import OUT_OF_FOLD
from molslice.folders.run import model_file
from molslice.inference.domain import TrainingDomain
from molslice.inference.fitted import prediction_row_columns
from molslice.inference.json_text import to_json
from molslice.inference.load import find_model
from molslice.learners.fold_averages import member_numbers
from molslice.tasks.metrics import METRIC_LABELS, METRIC_NAMES, median_factor
from molslice.tasks.targets import TargetInfo
from molslice.uncertainty.calibration import Calibration, HeldOut
from molslice.version import __version__

__all__ = ["describe_factors", "summarize", "write_fit"]


def summarize(
    path: File,
    files: Sequence[File],
    checksum: str,
    data: FitData,
    targets: TargetInfo,
    fitted: Sequence[TargetFit],
    folds: np.ndarray,
    encoder: Path | str | None,
    epochs: int,
    left_out: list[str],
    *,
    by_scaffold: bool,
) -> dict[str, Any]:
    """Describe the model, its rows and its errors, for `fit.json`.

    Args:
        path: The table, or a pattern.
        files: The files of the table.
        checksum: SHA-256 of the files joined.
        data: The rows.
        targets: The description of the targets.
        fitted: The learners of each target, and their predictions.
        folds: Fold of each row in each assignment, int [A, n]; -1 for held-out rows.
        encoder: The trained encoder; None for no encoder.
        epochs: Number of epochs for which it was fine-tuned.
        left_out: What was not computed for lack of time.
        by_scaffold: Whether scaffolds, instead of compounds, are in one fold or held out.
    """
    metrics, groups = _metrics(data), data.number_groups(by_scaffold=by_scaffold)
    table, refusals = [], data.refusals.report()
    for kind in refusals:
        for example in kind["examples"]:
            example["where"] = _without_folders(example["where"], path, files)
    outcomes = _outcomes(data, fitted)
    for index, (name, unit, fit) in enumerate(zip(data.names, targets.units, outcomes, strict=True)):
        truth = data.targets[data.test, index]
        errors = {metric: _errors(data, metric, index, fit, groups, folds) for metric in metrics}
        table.append(
            {
                "target": name,
                "unit": unit,
                "train_rows": len(fit.rows),
                "test_rows": int(np.isfinite(truth).sum()),
                **_class_counts(data, index),
                "weights": dict(zip(fit.stack.names, fit.stack.weights, strict=True)),
                **errors.pop(metrics[0]),
                **({"metrics": errors} if errors else {}),
            }
        )
    return {
        **describe_model(
            targets,
            [fit.stack for fit in fitted],
            [fit.scale for fit in fitted],
            None if encoder is None else Path(encoder).name,
            None if encoder is None else file_checksum(model_file(find_model(encoder))),
            int(folds.max()) + 1 if epochs else 0,
            len(folds),
            data.classes,
            data.words,
        ),
        "source": path.name,
        "source_sha256": checksum,
        "smiles_column": data.smiles_column,
        "findings": [_without_folders(text, path, files) for text in data.findings],
        "notices": [_without_folders(text, path, files) for text in data.notices],
        "failed": sum(kind["count"] for kind in refusals),
        "refusals": refusals,
        "replaced": data.replaced,
        "rows": {"train": int((folds[0] >= 0).sum()), "test": int(data.test.sum())},
        "metric": metrics[0],
        "metric_label": METRIC_LABELS[metrics[0]],
        "results": table,
        "network_epochs": epochs,
        "left_out": left_out,
        "version": __version__,
    }


def _outcomes(data: FitData, fitted: Sequence[TargetFit]) -> Sequence[TargetFit]:
    """Return what is fitted to each target: the parts of several classes are combined."""
    return fitted if data.classes is None else [join_parts(fitted, data.classes)]


def _metrics(data: FitData) -> tuple[str, ...]:
    """Return the metrics of the kind of the targets, the announced one first."""
    if data.classes is not None:
        return data.classes.metrics
    return (METRIC_NAMES[data.kind], *(("pr_auc",) if data.kind == "classification" else ()))


def _class_counts(data: FitData, index: int) -> dict[str, Any]:
    """Count the training rows of each class; nothing for a number."""
    if data.kind == "regression":
        return {}
    labels = data.targets[~data.test, index]
    return {
        "classes": {name: int((labels == label).sum()) for label, name in enumerate(data.class_names(index))}
    }


def _errors(
    data: FitData, metric: str, index: int, fit: TargetFit, groups: np.ndarray, folds: np.ndarray
) -> dict[str, Any]:
    """Measure the out-of-fold and the held-out predictions of a target; see `measure_errors`."""

    def measured(predicted: np.ndarray, rows: np.ndarray) -> Measured:
        truth = data.targets[rows, index]
        if data.classes is not None:
            return Measured.of_classes(data.classes, metric, predicted, truth, groups[rows])
        return Measured.of(data.kind, predicted, truth, groups[rows], metric)

    held_out = {label: measured(values, data.test) for label, values in fit.held_out.items()}
    return measure_errors(measured(fit.unseen, fit.rows), int(folds.max()) + 1, held_out)


def _without_folders(text: str, path: File, files: Sequence[File]) -> str:
    """Replace paths by the names of the files, because a folder may name a person."""
    for file in (path, *files):
        text = text.replace(str(file), file.name)
    return text


def describe_factors(data: FitData, fitted: TargetFit, index: int) -> list[str]:
    """Say how far predictions of a target whose logarithm is learned are off, beside the baselines."""
    name = data.names[index]
    factor = median_factor(fitted.unseen, data.targets[fitted.rows, index])
    lines = [f"{name}: half of the cross-validated predictions are within a factor of {factor:.3g}"]
    truth = data.targets[data.test, index]
    if fitted.held_out and np.any(truth > 0):
        factors = {label: median_factor(values, truth) for label, values in fitted.held_out.items()}
        listed = ", ".join(f"{label} {factor:.3g}" for label, factor in factors.items())
        lines.append(f"{name}: the same factor of the held-out predictions: {listed}")
    return lines


def write_fit(
    folder: Path,
    record: dict[str, Any],
    data: FitData,
    fitted: Sequence[TargetFit],
    folds: np.ndarray,
    places: np.ndarray,
) -> None:
    """Write the learners, the rows, the calibration, the domain, `fit.json` and the card.

    Args:
        folder: The folder of the model.
        record: The content of `fit.json`.
        data: The rows.
        fitted: The learners of each target.
        folds: Fold of each row in each assignment, int [A, n]; -1 for held-out rows.
        places: Place of each row in the table, whose order the files have, int [n].
    """
    save_learners(folder, [fit.learners for fit in fitted])
    outcomes = _outcomes(data, fitted)
    (folder / ROWS).write_text(_rows_table(data, outcomes, folds[0], places), encoding="utf-8")
    _calibrate(data, outcomes, folds, places).write(folder)
    known = np.argsort(places)
    known = known[~data.test[known]]
    smiles = [data.smiles[row] for row in known]
    values = None if data.classes is not None else data.targets[known]  # an index of a class says nothing
    TrainingDomain.of_smiles(smiles, record["fragment"], values=values).write(folder)
    (folder / FIT).write_text(to_json(record), encoding="utf-8")
    (folder / CARD).write_text(write_card(record), encoding="utf-8")


def _calibrate(
    data: FitData, fitted: Sequence[TargetFit], folds: np.ndarray, places: np.ndarray
) -> Calibration:
    """Keep the out-of-fold predictions of the training rows, from which intervals are computed."""
    held_out, num_folds = [], int(folds.max()) + 1
    for index, (name, fit) in enumerate(zip(data.names, fitted, strict=True)):
        order = np.argsort(places[fit.rows])
        rows = fit.rows[order]
        held_out.append(
            HeldOut.of_rows(
                name,
                data.kind,
                data.targets[rows, index],
                fit.unseen[order],
                member_numbers(folds[:, rows], num_folds),
                scale=None if fit.expected is None else fit.expected[order],
                logarithmic=data.logarithmic[index],
                classes=() if data.classes is None else data.classes.names,
            )
        )
    return Calibration(data.kind, num_folds ** len(folds), OUT_OF_FOLD, tuple(held_out))


def _rows_table(data: FitData, fitted: Sequence[TargetFit], folds: np.ndarray, places: np.ndarray) -> str:
    """Write SMILES, targets, split, fold and predictions as CSV.

    A class that has a name is written as its name. More than two classes have a probability each. The fold
    of a training row is its fold in the first assignment. Its prediction is the mean of the models that have
    not seen the row.
    """
    columns = row_columns(data.names)
    header = [*ROW_COLUMNS, *columns, *prediction_row_columns(data.names, data.classes)]
    predicted = np.full((len(data.smiles), len(header) - len(ROW_COLUMNS) - len(columns)), np.nan)
    for index, fit in enumerate(fitted):
        place = index if data.classes is None else slice(None)
        predicted[fit.rows, place] = fit.unseen
        if FIT_LABEL in fit.held_out:
            predicted[data.test, place] = fit.held_out[FIT_LABEL]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for row in np.argsort(places):
        smiles, split = data.smiles[row], "test" if data.test[row] else "train"
        measured = [_cell(data, index, value) for index, value in enumerate(data.targets[row])]
        cells = [repr(float(v)) if np.isfinite(v) else "" for v in predicted[row]]
        writer.writerow([smiles, split, folds[row] if folds[row] >= 0 else "", *measured, *cells])
    return stream.getvalue()


def _cell(data: FitData, index: int, value: float) -> str:
    if not np.isfinite(value):
        return ""
    if data.classes is not None or data.names[index] in data.words:
        return data.class_names(index)[int(value)]
    return repr(float(value))
