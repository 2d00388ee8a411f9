"""The files of a fit: learners, rows with predictions, calibration, domain, results and card."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from molslice.files.cache import file_checksum
from molslice.files.urls import File
from molslice.fitting.card import write_card
from molslice.fitting.data import FitData, FitOptions
from molslice.fitting.errors import Measured, measure_errors
from molslice.fitting.learner_fits import FIT_LABEL, TargetFit
from molslice.fitting.stacks import Stacks
from molslice.folders.fitted import (
    CARD,
    FIT,
    HELD_OUT,
    ROW_COLUMNS,
    ROWS,
    describe_model,
    row_columns,
    save_learners,
)
from molslice.folders.fitted_rows import OUT_OF_FOLD
from molslice.folders.run import model_file
from molslice.inference.columns import distinct_columns
from molslice.inference.domain import TrainingDomain
from molslice.inference.json_text import to_json
from molslice.inference.load import find_model
from molslice.learners.fold_averages import member_numbers
from molslice.tasks.metrics import METRIC_LABELS, METRIC_NAMES, median_factor
from molslice.uncertainty.calibration import Calibration, HeldOut
from molslice.version import __version__

__all__ = ["summarize", "write_fit"]


def summarize(
    path: File,
    files: Sequence[File],
    checksum: str,
    data: FitData,
    measured: Stacks,
    model: Stacks,
    encoder: Path | str | None,
    options: FitOptions,
) -> dict[str, Any]:
    """Describe the model, its rows and its errors, for `fit.json`.

    Args:
        path: The table, or a pattern.
        files: The files of the table.
        checksum: SHA-256 of the files joined.
        data: The rows.
        measured: What was fitted without the held-out rows.
        model: What the folder holds: `measured`, or what was fitted to all rows.
        encoder: The trained encoder; None for no encoder.
        options: Options of the fit.
    """
    metric, groups = METRIC_NAMES[data.kind], data.number_groups(by_scaffold=options.by_scaffold)
    findings, num_folds, results, refusals = [*data.findings], options.members, [], data.refusals.report()
    if model.epochs and data.conditions:
        listed = ", ".join(condition.name for condition in data.conditions)
        findings.append(f"the fine-tuned networks take the molecule alone, not {listed}")
    for kind in refusals:
        for example in kind["examples"]:
            example["where"] = _without_folders(example["where"], path, files)
    for index, (name, unit) in enumerate(zip(data.names, model.targets.units, strict=True)):
        fit, predicted = model.fitted[index], measured.fitted[index].held_out
        known, limited = data.known[data.test, index], data.limited[:, index]
        truth = data.nearest(fit.unseen, fit.rows, index)
        unseen = Measured.of(data.kind, fit.unseen, truth, groups[fit.rows])
        held_out = {
            label: Measured.of(data.kind, values, data.nearest(values, data.test, index), groups[data.test])
            for label, values in predicted.items()
        }
        if data.logarithmic[index]:
            findings += _describe_factors(data, fit, predicted, index)
        limits = {"train_limits": int(limited[fit.rows].sum()), "test_limits": int(limited[data.test].sum())}
        results.append(
            {
                "target": name,
                "unit": unit,
                "train_rows": len(fit.rows),
                "test_rows": int(known.sum()),
                **({} if data.bounds is None else limits),
                "weights": dict(zip(fit.stack.names, fit.stack.weights, strict=True)),
                **measure_errors(unseen, num_folds, held_out),
            }
        )
    return {
        **describe_model(
            model.targets,
            [fit.stack for fit in model.fitted],
            [fit.scale for fit in model.fitted],
            None if encoder is None else Path(encoder).name,
            None if encoder is None else file_checksum(model_file(find_model(encoder))),
            num_folds if model.epochs else 0,
            len(model.folds),
            data.standardize,
            data.conditions,
            data.partner,
        ),
        "source": path.name,
        "source_sha256": checksum,
        "smiles_column": data.smiles_column,
        "fragment": options.fragment,
        "wildcards": options.wildcards,
        "findings": [_without_folders(text, path, files) for text in findings],
        "notices": [_without_folders(text, path, files) for text in data.notices],
        "failed": sum(kind["count"] for kind in refusals),
        "refusals": refusals,
        "replaced": data.replaced,
        "rows": {"train": int((model.folds[0] >= 0).sum()), "test": int(data.test.sum())},
        "refitted": model is not measured,
        "metric": metric,
        "metric_label": METRIC_LABELS[metric],
        "results": results,
        "network_epochs": model.epochs,
        "network_weight": measured.network_weight,
        "left_out": list(dict.fromkeys([*measured.left_out, *model.left_out])),
        "options": options.to_mapping(),
        "version": __version__,
    }


def _without_folders(text: str, path: File, files: Sequence[File]) -> str:
    """Replace paths by the names of the files, because a folder may name a person."""
    for file in (path, *files):
        text = text.replace(str(file), file.name)
    return text


def _describe_factors(
    data: FitData, fit: TargetFit, held_out: Mapping[str, np.ndarray], index: int
) -> list[str]:
    """Say how far predictions of a target whose logarithm is learned are off, beside the baselines."""
    name, truth = data.names[index], data.targets[data.test, index]
    factor = median_factor(fit.unseen, data.targets[fit.rows, index])
    lines = [f"{name}: half of the cross-validated predictions are within a factor of {factor:.3g}"]
    if held_out and np.any(truth > 0):
        factors = {label: median_factor(predicted, truth) for label, predicted in held_out.items()}
        listed = ", ".join(f"{label} {factor:.3g}" for label, factor in factors.items())
        lines.append(f"{name}: the same factor of the held-out predictions: {listed}")
    return lines


def write_fit(
    folder: Path, record: dict[str, Any], data: FitData, measured: Stacks, model: Stacks, places: np.ndarray
) -> None:
    """Write the learners, the rows, the calibration, the domain, `fit.json` and the card.

    Args:
        folder: The folder of the model.
        record: The content of `fit.json`.
        data: The rows.
        measured: What was fitted without the held-out rows.
        model: What the folder holds: `measured`, or what was fitted to all rows.
        places: Place of each row in the table, whose order the files have, int [n].
    """
    save_learners(folder, [fit.learners for fit in model.fitted])
    learned = model.folds[0] >= 0
    order = np.argsort(places)
    unseen = np.full(data.targets.shape, np.nan)
    for index, fit in enumerate(model.fitted):
        unseen[fit.rows, index] = fit.unseen
    held_out = np.full(data.targets.shape, np.nan)
    for index, fit in enumerate(measured.fitted):
        if FIT_LABEL in fit.held_out:
            held_out[data.test, index] = fit.held_out[FIT_LABEL]
    predictions = np.where(learned[:, None], unseen, held_out)
    splits = np.where(learned, "train", "test")
    table = _rows_table(data, splits, model.folds[0], predictions, order)
    (folder / ROWS).write_text(table, encoding="utf-8")
    if model is not measured:
        table = _rows_table(
            data, np.full(len(order), "test"), measured.folds[0], held_out, order[data.test[order]]
        )
        (folder / HELD_OUT).write_text(table, encoding="utf-8")
    _calibrate(data, model, places).write(folder)
    known = order[learned[order]]
    if data.partner is None:  # pairs have no domain
        smiles = [data.smiles[row] for row in known]
        values = None if data.conditions else data.targets[known]  # a mean over conditions would say little
        domain = TrainingDomain.of_smiles(
            smiles, record["fragment"], standardize=data.standardize, values=values
        )
        domain.write(folder)
    (folder / FIT).write_text(to_json(record), encoding="utf-8")
    (folder / CARD).write_text(write_card(record), encoding="utf-8")


def _calibrate(data: FitData, model: Stacks, places: np.ndarray) -> Calibration:
    """Keep the out-of-fold predictions of the training rows, from which intervals are computed."""
    held_out, folds = [], model.folds
    num_folds = int(folds.max()) + 1
    for index, (name, fit) in enumerate(zip(data.names, model.fitted, strict=True)):
        order = np.argsort(places[fit.rows])
        rows, predicted = fit.rows[order], fit.unseen[order]
        nearest = data.nearest(predicted, rows, index)
        # a limit that is met does not tell how large the error is
        truth = np.where(data.limited[rows, index] & (nearest == predicted), np.nan, nearest)
        held_out.append(
            HeldOut.of_rows(
                name,
                data.kind,
                truth,
                predicted,
                member_numbers(folds[:, rows], num_folds),
                scale=None if fit.expected is None else fit.expected[order],
                logarithmic=data.logarithmic[index],
            )
        )
    return Calibration(data.kind, num_folds ** len(folds), OUT_OF_FOLD, tuple(held_out))


def _rows_table(
    data: FitData, splits: np.ndarray, folds: np.ndarray, predictions: np.ndarray, rows: np.ndarray
) -> str:
    """Write SMILES, split, fold, targets, predictions and conditions of some rows as CSV.

    If there are limits, each target has a column of them, after the predictions; a limit has no value in the
    column of the target.

    Args:
        data: All n rows.
        splits: Split of each row, text [n].
        folds: Fold of each row in the first assignment, int [n]; -1 without one.
        predictions: Prediction of each row by models that have not seen it, float64 [n, T].
        rows: The rows that are written, in order, int [k].
    """
    columns = row_columns(data.names)
    given = [condition.name for condition in data.conditions]
    given += [name for name in [data.partner] if name is not None]
    predicted = distinct_columns(columns, taken=[*ROW_COLUMNS, *columns, *given])
    header = [*ROW_COLUMNS, *columns, *predicted, *given]
    limits = [] if data.bounds is None else [f"{name}_limit" for name in columns]
    for name in limits:
        header.append(name + "_" * (name in header))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        cells = [repr(float(v)) if np.isfinite(v) else "" for v in (*data.targets[row], *predictions[row])]
        cells += [*data.condition_cells(row), *data.partners[row : row + 1]]
        if data.bounds is not None:
            cells += [
                _limit_text(*data.bounds[:, row, index]) if data.limited[row, index] else ""
                for index in range(len(columns))
            ]
        writer.writerow([data.smiles[row], splits[row], folds[row] if folds[row] >= 0 else "", *cells])
    return stream.getvalue()


def _limit_text(lower: float, upper: float) -> str:
    """Write a limit as in a table: `>10`, `<0.1`, or `>1 <5` for both."""
    sides = ((">", float(lower)), ("<", float(upper)))
    return " ".join(f"{relation}{bound!r}" for relation, bound in sides if np.isfinite(bound))
