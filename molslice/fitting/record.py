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
from molslice.fitting.learner_fits import FIT_LABEL, TargetFit
from molslice.folders.fitted import CARD, FIT, ROW_COLUMNS, ROWS, describe_model, row_columns, save_learners
from molslice.folders.fitted_rows import OUT_OF_FOLD
from molslice.folders.run import model_file
from molslice.inference.columns import distinct_columns
from molslice.inference.domain import TrainingDomain
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
    if epochs and data.conditions:
        listed = ", ".join(condition.name for condition in data.conditions)
        data.findings.append(f"the fine-tuned networks take the molecule alone, not {listed}")
    metric, groups = METRIC_NAMES[data.kind], data.number_groups(by_scaffold=by_scaffold)
    table, refusals = [], data.refusals.report()
    for kind in refusals:
        for example in kind["examples"]:
            example["where"] = _without_folders(example["where"], path, files)
    for index, (name, unit, fit) in enumerate(zip(data.names, targets.units, fitted, strict=True)):
        truth = data.targets[data.test, index]
        unseen = Measured.of(data.kind, fit.unseen, data.targets[fit.rows, index], groups[fit.rows])
        held_out = {
            label: Measured.of(data.kind, values, truth, groups[data.test])
            for label, values in fit.held_out.items()
        }
        table.append(
            {
                "target": name,
                "unit": unit,
                "train_rows": len(fit.rows),
                "test_rows": int(np.isfinite(truth).sum()),
                "weights": dict(zip(fit.stack.names, fit.stack.weights, strict=True)),
                **measure_errors(unseen, int(folds.max()) + 1, held_out),
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
            data.conditions,
            data.partner,
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
        "metric": metric,
        "metric_label": METRIC_LABELS[metric],
        "results": table,
        "network_epochs": epochs,
        "left_out": left_out,
        "version": __version__,
    }


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
    (folder / ROWS).write_text(_rows_table(data, fitted, folds[0], places), encoding="utf-8")
    _calibrate(data, fitted, folds, places).write(folder)
    known = np.argsort(places)
    known = known[~data.test[known]]
    if data.partner is None:  # pairs have no domain
        smiles = [data.smiles[row] for row in known]
        values = None if data.conditions else data.targets[known]  # a mean over conditions would say little
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
            )
        )
    return Calibration(data.kind, num_folds ** len(folds), OUT_OF_FOLD, tuple(held_out))


def _rows_table(data: FitData, fitted: Sequence[TargetFit], folds: np.ndarray, places: np.ndarray) -> str:
    """Write SMILES, split, fold, targets, predictions and conditions as CSV.

    The fold of a training row is its fold in the first assignment. Its prediction is the mean of the models
    that have not seen the row.
    """
    columns = row_columns(data.names)
    given = [condition.name for condition in data.conditions]
    given += [name for name in [data.partner] if name is not None]
    predictions = distinct_columns(columns, taken=[*ROW_COLUMNS, *columns, *given])
    header = [*ROW_COLUMNS, *columns, *predictions, *given]
    predicted = np.full((len(data.smiles), len(columns)), np.nan)
    for index, fit in enumerate(fitted):
        predicted[fit.rows, index] = fit.unseen
        if FIT_LABEL in fit.held_out:
            predicted[data.test, index] = fit.held_out[FIT_LABEL]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for row in np.argsort(places):
        smiles, split = data.smiles[row], "test" if data.test[row] else "train"
        cells = [repr(float(v)) if np.isfinite(v) else "" for v in (*data.targets[row], *predicted[row])]
        cells += [*data.condition_cells(row), *data.partners[row : row + 1]]
        writer.writerow([smiles, split, folds[row] if folds[row] >= 0 else "", *cells])
    return stream.getvalue()
