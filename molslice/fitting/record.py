"""The files of a fit: learners, rows with predictions, calibration, domain, results and card."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from molslice.chem import DESCRIPTORS_VERSION
from molslice.files.cache import file_checksum
from molslice.files.tables import free_name
from molslice.files.urls import File
from molslice.fitting.card import write_card
from molslice.fitting.data import FitData, FitOptions
from molslice.fitting.domain import describe_domain
from molslice.fitting.learner_fits import FIT_LABEL, TargetFit
from molslice.fitting.related import RelatedFit
from molslice.fitting.stacks import Stacks
from molslice.fitting.standard_errors import measure_errors, measure_target
from molslice.folders.fitted import (
    CARD,
    FIT,
    FORMAT,
    HELD_OUT,
    ORIGIN_COLUMNS,
    OUT_OF_FOLD,
    RELATED_LEARNER,
    ROW_COLUMNS,
    ROWS,
    TABLE_ROWS,
    row_columns,
    save_learners,
)
from molslice.folders.limit_cells import limit_columns, limit_text
from molslice.folders.run import model_file
from molslice.inference.fitted import prediction_row_columns
from molslice.inference.json_text import to_json
from molslice.inference.load import find_model
from molslice.learners.fold_averages import member_numbers
from molslice.tasks.metrics import METRIC_LABELS, format_metric, median_factor
from molslice.tasks.target_types import column_slices, common_kind
from molslice.uncertainty.calibration import Calibration, HeldOut
from molslice.version import __version__


def summarize(
    path: File,
    files: Sequence[File],
    checksum: str,
    data: FitData,
    measured: Stacks,
    learned: FitData,
    model: Stacks,
    encoder: Path | str | None,
    options: FitOptions,
    related: Sequence[RelatedFit] = (),
    alone: Stacks | None = None,
) -> dict[str, Any]:
    """Describe the model, its rows and its errors, for `fit.json`.

    `measured` was fitted to the training rows of `data`, without the held-out ones. The folder holds `model`,
    which was fitted to the training rows of `learned`: the same, or all rows. `related` are the related
    targets of `model`, and `alone` is fitted to its rows without them.
    """
    groups, learned_groups = data.number_groups(), learned.number_groups()
    findings, results, refusals = [*data.findings], [], data.refusals.report()
    for related_fit in related:
        findings += related_fit.findings
    beside = [
        *(condition.name for condition in learned.conditions),
        *(related_fit.record["target"] for related_fit in related),
    ]
    if model.epochs and beside:
        listed = ", ".join(beside)
        findings.append(f"the fine-tuned networks take the molecule alone, not {listed}")
    for kind in refusals:
        for example in kind["examples"]:
            example["where"] = _without_folders(example["where"], path, files)
    for index, (name, unit) in enumerate(zip(data.names, model.targets.units, strict=True)):
        fit, predicted = model.outcomes[index], measured.outcomes[index].held_out
        metrics, errors = data.metrics(index), {}
        for metric in metrics:
            of_folds = measure_target(learned, index, fit.unseen, fit.rows, learned_groups[fit.rows], metric)
            held_out = {
                label: measure_target(data, index, values, data.test, groups[data.test], metric)
                for label, values in predicted.items()
            }
            errors[metric] = measure_errors(of_folds, options.members, held_out)
        without = {}
        if alone is not None:
            outcome = alone.outcomes[index]
            rows = np.flatnonzero(model.folds[0] >= 0)[outcome.rows]
            error = measure_target(
                learned, index, outcome.unseen, rows, learned_groups[rows], metrics[0]
            ).value
            without = {"cross_validated_without_related": error}
            findings.append(
                f"{name}: cross-validated {METRIC_LABELS[metrics[0]]} {format_metric(error)} without the "
                f"related targets, {format_metric(errors[metrics[0]]['cross_validated'])} with them"
            )
        if data.logarithmic[index]:
            findings += _describe_factors(data, learned, fit, predicted, index)
        limits = {
            "train_limits": int(learned.limited[fit.rows, index].sum()),
            "test_limits": int(data.limited[data.test, index].sum()),
        }
        results.append(
            {
                "target": name,
                "unit": unit,
                "kind": data.types[index].kind,
                "metric": metrics[0],
                "train_rows": len(fit.rows),
                "test_rows": int(data.known[data.test, index].sum()),
                **({} if data.bounds is None or data.types[index].has_classes else limits),
                **_class_counts(learned, fit.rows, index),
                "weights": dict(zip(fit.stack.names, fit.stack.weights, strict=True)),
                **errors.pop(metrics[0]),
                **without,
                **({"metrics": errors} if errors else {}),
            }
        )
    if model.epochs:
        findings += [
            f"no further networks were fine-tuned for {'numbers' if kind == 'regression' else 'classes'}: "
            f"the first one had a weight of only {weight:.2f}"
            for kind, weight in {**measured.network_weights, **model.network_weights}.items()
        ]
    kind, announced = common_kind(data.types), [*dict.fromkeys(result["metric"] for result in results)]
    types = [*zip(data.names, data.types, strict=True)]
    ordered = [
        name for name, target_type in types if target_type.several is not None and target_type.several.ordered
    ]
    words = {name: list(target_type.words) for name, target_type in types if target_type.words}
    return {
        # what `read_fitted` needs
        "format": FORMAT,
        "descriptors_version": DESCRIPTORS_VERSION,
        "targets": model.targets.to_mapping(),
        "stacks": [fit.stack.to_mapping() for fit in model.fitted],
        "scales": [None if fit.scale is None else fit.scale.to_mapping() for fit in model.fitted],
        "encoder": None if encoder is None else Path(encoder).name,
        "encoder_sha256": None if encoder is None else file_checksum(model_file(find_model(encoder))),
        "networks": options.members if model.epochs else 0,
        "assignments": len(model.folds),
        **({} if options.standardize == "no" else {"standardize": options.standardize}),
        **(
            {"conditions": [condition.to_mapping() for condition in learned.conditions]}
            if learned.conditions
            else {}
        ),
        **({"related": [related_fit.record for related_fit in related]} if related else {}),
        **({} if data.partner is None else {"partner": data.partner}),
        **(
            {"ordered": ordered if kind == "mixed" else bool(ordered)}
            if kind in ("mixed", "multiclass")
            else {}
        ),
        **({"class_words": words} if words else {}),
        **({"identifiers": [*data.identifiers]} if data.identifiers else {}),
        **({"columns": list(data.columns)} if data.columns != data.names else {}),
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
        "metric": announced[0] if len(announced) == 1 else None,  # each result has its own
        "metric_label": METRIC_LABELS[announced[0]] if len(announced) == 1 else None,
        "results": results,
        "network_epochs": model.epochs,
        "network_weight": None if model.epochs else max(measured.network_weights.values(), default=None),
        "left_out": list(dict.fromkeys([*measured.left_out, *model.left_out])),
        "options": options.to_mapping(),
        "version": __version__,
    }


def _class_counts(data: FitData, rows: np.ndarray, index: int) -> dict[str, Any]:
    """Count rows of each class; nothing for a number."""
    labels, names = data.targets[rows, index], data.types[index].class_names
    counts = {name: int((labels == label).sum()) for label, name in enumerate(names)}
    return {"classes": counts} if counts else {}


def _without_folders(text: str, path: File, files: Sequence[File]) -> str:
    """Replace paths by the names of the files, because a folder may name a person."""
    for file in (path, *files):
        text = text.replace(str(file), file.name)
    return text


def _describe_factors(
    data: FitData, learned: FitData, fit: TargetFit, held_out: Mapping[str, np.ndarray], index: int
) -> list[str]:
    """Say how far predictions of a target whose logarithm is learned are off, beside the baselines."""
    name, truth = data.names[index], data.targets[data.test, index]
    factor = median_factor(fit.unseen, learned.targets[fit.rows, index])
    lines = [f"{name}: half of the cross-validated predictions are within a factor of {factor:.3g}"]
    if held_out and np.any(truth > 0):
        factors = {label: median_factor(predicted, truth) for label, predicted in held_out.items()}
        listed = ", ".join(f"{label} {factor:.3g}" for label, factor in factors.items())
        lines.append(f"{name}: the same factor of the held-out predictions: {listed}")
    return lines


def write_fit(
    folder: Path,
    record: dict[str, Any],
    data: FitData,
    measured: Stacks,
    learned: FitData,
    model: Stacks,
    related: Sequence[RelatedFit] = (),
) -> None:
    """Write the learners, the rows, the calibration, the domain, `fit.json` and the card.

    The arguments are as in `summarize`. The files have the order of the table.
    """
    of_related = [{RELATED_LEARNER: related_fit.model.learner} for related_fit in related]
    save_learners(folder, [*(fit.learners for fit in model.fitted), *of_related])
    order, is_learned = np.argsort(learned.places), model.folds[0] >= 0
    unseen = _by_row(learned, [(fit.rows, fit.unseen) for fit in model.outcomes])
    predictions = np.where(is_learned[:, None], unseen, _held_out(learned, model))
    splits = np.where(is_learned, "train", "test")
    table = _rows_table(learned, splits, model.folds[0], predictions, order)
    (folder / ROWS).write_text(table, encoding="utf-8")
    if model is not measured:
        splits, tested = np.full(len(data.smiles), "test"), np.argsort(data.places)
        tested = tested[data.test[tested]]
        table = _rows_table(data, splits, measured.folds[0], _held_out(data, measured), tested)
        (folder / HELD_OUT).write_text(table, encoding="utf-8")
    if learned.origins:
        (folder / TABLE_ROWS).write_text(_origins_table(learned, order), encoding="utf-8")
    _calibrate(learned, model.outcomes, model.folds).write(folder)
    if learned.partner is None:  # pairs have no domain
        domain = describe_domain(learned, order[is_learned[order]], model.outcomes, model.folds)
        domain.write(folder)
        record["domain"] = domain.rule.to_mapping()
    (folder / FIT).write_text(to_json(record), encoding="utf-8")
    (folder / CARD).write_text(write_card(record), encoding="utf-8")


def _held_out(data: FitData, stacks: Stacks) -> np.ndarray:
    """Return the predictions of the held-out rows, float64 [n, C], NaN for other rows."""
    predicted = [fit.held_out for fit in stacks.outcomes if FIT_LABEL in fit.held_out]
    return _by_row(data, [(data.test, of_target[FIT_LABEL]) for of_target in predicted])


def _by_row(data: FitData, predicted: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the predictions of all rows, float64 [n, C], NaN where there is none.

    `predicted` has the rows of each target and their predictions, with a column for each of several classes.
    """
    columns = [*column_slices(data.types)]
    result = np.full((len(data.smiles), columns[-1].stop), np.nan)
    for of_target, (rows, values) in zip(columns, predicted, strict=False):  # none without held-out rows
        result[rows, of_target] = values.reshape(len(values), -1)
    return result


def _calibrate(data: FitData, fitted: Sequence[TargetFit], folds: np.ndarray) -> Calibration:
    """Keep the out-of-fold predictions of the training rows, from which intervals are computed."""
    held_out, num_folds = [], int(folds.max()) + 1
    for index, (name, of_target, fit) in enumerate(zip(data.names, data.types, fitted, strict=True)):
        order = np.argsort(data.places[fit.rows])
        rows, predicted = fit.rows[order], fit.unseen[order]
        truth = data.informative(predicted, rows, index)
        held_out.append(
            HeldOut.of_rows(
                name,
                of_target.kind,
                truth,
                predicted,
                member_numbers(folds[:, rows], num_folds),
                scale=None if fit.expected is None else fit.expected[order],
                logarithmic=data.logarithmic[index],
                classes=() if of_target.several is None else of_target.several.names,
            )
        )
    return Calibration(common_kind(data.types), num_folds ** len(folds), OUT_OF_FOLD, tuple(held_out))


def _rows_table(
    data: FitData, splits: np.ndarray, folds: np.ndarray, predictions: np.ndarray, rows: np.ndarray
) -> str:
    """Write SMILES, split, fold, targets, predictions, conditions and identifiers of some rows as CSV.

    A class that has a name is written as its name. More than two classes have a probability each. If there
    are limits, each target has a column of them, after the predictions; a limit has no value in the column of
    the target.

    Args:
        data: All n rows.
        splits: Split of each row, text [n].
        folds: Fold of each row in the first assignment, int [n]; -1 without one.
        predictions: Prediction of each row by models that have not seen it, float64 [n, C].
        rows: The rows that are written, in order, int [k].
    """
    columns = row_columns(data.names)
    given = [condition.name for condition in data.conditions]
    given += [name for name in [data.partner] if name is not None]
    predicted = prediction_row_columns(data.names, data.types, given)
    header = [*ROW_COLUMNS, *columns, *predicted, *given]
    header += [] if data.bounds is None else limit_columns(columns, header)
    for name in data.identifiers:
        header.append(free_name(name, header))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        cells = [_cell(data, index, value) for index, value in enumerate(data.targets[row])]
        cells += [repr(float(v)) if np.isfinite(v) else "" for v in predictions[row]]
        cells += [*data.condition_cells(row), *data.partners[row : row + 1]]
        if data.bounds is not None:
            cells += [
                limit_text(*data.bounds[:, row, index]) if data.limited[row, index] else ""
                for index in range(len(columns))
            ]
        cells += [of_column[row] for of_column in data.identifiers.values()]
        writer.writerow([data.smiles[row], splits[row], folds[row] if folds[row] >= 0 else "", *cells])
    return stream.getvalue()


def _origins_table(data: FitData, rows: np.ndarray) -> str:
    """Write the rows of the table that the rows of `rows.csv` were made of as CSV.

    The column `row` has the row of `rows.csv`, from 1, or a negative number for each molecule whose classes
    disagree, which has no row.

    Args:
        data: All n rows.
        rows: The rows in the order of `rows.csv`, int [n].
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    header = [*ORIGIN_COLUMNS, *row_columns(data.names, ORIGIN_COLUMNS)]
    for name in data.identifiers:
        header.append(free_name(name, header))
    writer.writerow(header)
    listed = [(number, data.origins[row]) for number, row in enumerate(rows, 1)]
    for number, origins in [*listed, *((-number, origins) for number, origins in enumerate(data.lost, 1))]:
        for origin in origins:
            cells = [_cell(data, index, value) for index, value in enumerate(origin.values)]
            line = "" if origin.line is None else origin.line
            writer.writerow([origin.smiles, number, origin.file, origin.row, line, *cells, *origin.names])
    return stream.getvalue()


def _cell(data: FitData, index: int, value: float) -> str:
    if not np.isfinite(value):
        return ""
    of_target = data.types[index]
    if of_target.several is not None or of_target.words:
        return of_target.class_names[int(value)]
    return repr(float(value))
