"""The error of a trained model on a split of a data set."""

import time
from dataclasses import fields
from typing import Any

import numpy as np

from molslice.data.base import Dataset
from molslice.data.molecules.base import ArraysOnly, MoleculeDataset
from molslice.data.molecules.leaderboard import evaluate_gap
from molslice.data.molecules.pcqm4m import Pcqm4m
from molslice.data.molecules.refusals import Refusals, failure_text
from molslice.folders.fitted import CARD, ROWS
from molslice.inference.base import Predictor
from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.fitted import FittedPredictor
from molslice.inference.groups import number_molecules
from molslice.inference.load import AnyPredictor, NetworkPredictor
from molslice.inference.predictions import NOT_FINITE
from molslice.model.count import parameters_by_part
from molslice.tasks import TASKS
from molslice.tasks.metrics import labels_per_target
from molslice.tasks.standard_errors import measure_rows
from molslice.tasks.target_types import TargetType, column_slices
from molslice.types import DataSpec, MolsliceError

KIND_NAMES = {
    "regression": "regression (numbers)",
    "classification": "classification (0 or 1)",
    "multiclass": "one class of several",
    "mixed": "targets of several kinds",
    "tokens": "the next token",
    "actions": "actions",
}


def evaluate(
    predictor: AnyPredictor,
    dataset: Dataset,
    split: str = "test",
    *,
    atom_permutation: int | None = None,
    strict: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Predict a split and compare the predictions with its labels.

    A row without a label for a target is left out for this target. Rows that cannot be read are counted in
    `failed`.

    Args:
        predictor: The model.
        dataset: Data with the same targets as the model.
        split: The name of a split of the data.
        atom_permutation: Seed of a random order of the atoms of each molecule; None keeps the order.
        strict: Whether to stop at the first row that cannot be read.
        progress: Whether to show a bar on standard error.

    Returns:
        `split`, `rows` (that can be read), `noun` (the name of a row), `failed`, `metric`, `targets` (for
        each: `name`, `unit`, `count` (of labels, predicted tokens or steps), and the metric, or all metrics
        of several classes), `parameters`, `parameters_without_embeddings` and `seconds`. Targets of molecules
        have the `standard_error` of the primary metric over samples of molecules, whose rows are drawn
        together; None if it is not defined. For molecules also `molecules` (their number, of which some may
        have several rows), `refusals`, the failed rows by reason (see `Refusals.report`), and `atoms`, the
        order of the atoms. A model of `molslice fit` has neither parameters nor atoms.

    Raises:
        MolsliceError: A row cannot be read although `strict` is set, the split does not exist or has no
            labels, or the data have other targets, classes or another vocabulary than the model.
    """
    check_targets(predictor, dataset)
    if not isinstance(dataset, MoleculeDataset):
        if atom_permutation is not None:
            raise MolsliceError(
                f"atom_permutation needs molecules; the rows of {dataset.source} are {dataset.row_name}"
            )
        if not isinstance(predictor, NetworkPredictor):
            raise MolsliceError(f"{predictor.name} takes molecules; {dataset.source} are {dataset.row_name}")
        return _evaluate_rows(predictor, dataset, split, strict, progress)
    check_split(predictor, dataset, split)
    rows = dataset.rows(split)
    labels = np.asarray(dataset.store.targets)[rows].astype(np.float64)
    if not np.isfinite(labels).any():
        raise MolsliceError(
            f"split {split!r} of {dataset.source} holds no labels, so there is no error to measure"
        )
    start = time.perf_counter()
    predictions = predictor.predict_dataset(
        dataset, rows, atom_permutation=atom_permutation, progress=progress
    )
    seconds = time.perf_counter() - start
    # a prediction that is not finite counts as infinitely wrong
    readable = np.array([reason in (None, NOT_FINITE) for reason in predictions.errors])
    failed = int((~readable).sum())
    if failed == len(rows):
        raise MolsliceError(
            f"no molecule of split {split!r} of {dataset.source} can be read; first: {predictions.errors[0]}"
        )
    refusals = Refusals()
    for row, reason in zip(rows, predictions.errors, strict=True):
        if reason not in (None, NOT_FINITE):
            if strict:
                raise MolsliceError(failure_text(dataset.where(int(row)), "", reason))
            refusals.add(reason, "", dataset.where(int(row)))
    labels, values = labels[readable], predictions.values[readable].astype(np.float64)
    molecules = number_molecules(predictor, dataset, rows[readable])
    errors = _errors(predictor, dataset, labels, values, molecules)
    announced = {next(iter(of_target)) for of_target in errors}
    counts = np.isfinite(labels).sum(0).tolist()
    targets = zip(dataset.target_names, dataset.target_units, counts, errors, strict=True)
    result = {
        "split": split,
        "rows": len(rows) - failed,
        "molecules": len(np.unique(molecules)),
        "noun": dataset.row_name,
        "failed": failed,
        "refusals": refusals.report(),
        "metric": announced.pop() if len(announced) == 1 else None,  # each target has its own
        "targets": [{"name": name, "unit": unit, "count": count, **of} for name, unit, count, of in targets],
    }
    if not isinstance(predictor, FittedPredictor):
        order = predictor.atom_order if atom_permutation is None else f"shuffled, seed {atom_permutation}"
        result |= {**_parameters(predictor), "atoms": order}
    return {**result, "seconds": seconds}


def count_trained(predictor: Predictor, dataset: Dataset, rows: np.ndarray) -> int:
    """Count the labeled molecules of some rows that are known training molecules of the model.

    The count is 0 if the model does not know its training molecules, or the data have no SMILES.
    """
    if not isinstance(dataset, MoleculeDataset) or isinstance(dataset, ArraysOnly):
        return 0
    if predictor.partner is None and predictor.known_domain() is None:
        return 0
    labeled = rows[np.isfinite(np.asarray(dataset.store.targets)[rows]).any(1)]
    partners = [] if predictor.partner is None else dataset.side_cells([predictor.partner]).values()
    given = ([cells[row] for row in labeled] for cells in (dataset.smiles(), *partners))
    return predictor.count_trained(*map(predictor.name_molecules, given))


def _parameters(predictor: NetworkPredictor | EnsemblePredictor) -> dict[str, int]:
    if isinstance(predictor, EnsemblePredictor):
        counts = [_parameters(member) for member in predictor.members]
        return {name: sum(count[name] for count in counts) for name in counts[0]}
    counts = parameters_by_part(predictor.model)
    return {
        "parameters": counts["total"],
        "parameters_without_embeddings": counts["without embeddings"],
    }


def _evaluate_rows(
    predictor: NetworkPredictor, dataset: Dataset, split: str, strict: bool, progress: bool
) -> dict[str, Any]:
    """Compute the metrics of the task that the model was trained for."""
    if dataset.spec != predictor.data:
        difference = _difference(dataset.spec, predictor.data)
        raise MolsliceError(f"{dataset.source} is not what the model was trained on: {difference}")
    unread = dataset.rows(split)[dataset.num_tokens[dataset.rows(split)] == 0]
    if strict and len(unread):
        first = int(unread[0])
        raise MolsliceError(failure_text(dataset.where(first), "", dataset.errors.get(first, "it is empty")))
    rows = dataset.labeled_rows(split)
    task = TASKS.build(predictor.config.task, predictor.model, predictor.targets)
    start = time.perf_counter()
    results = predictor.predict_rows(dataset, rows, task.results, task.num_results, progress=progress)
    seconds = time.perf_counter() - start
    truth = np.asarray(dataset.targets[rows])
    values, measures = task.metrics(results, truth), task.measures
    known = np.isfinite(truth)
    # a measure of a target counts its labels, another one the rows with a label
    counts = dict(zip(dataset.target_names, labels_per_target(predictor.targets, truth), strict=True))
    return {
        "split": split,
        "rows": len(rows),
        "noun": dataset.row_name,
        "failed": len(unread),
        "metric": measures[0].metric,
        "targets": [
            {
                "name": measure.name,
                "unit": measure.unit,
                "count": int(counts.get(measure.name, known.any(1).sum())),
                measure.metric: values[measure.name],
            }
            for measure in measures
        ],
        **_parameters(predictor),
        "seconds": seconds,
    }


def _difference(given: DataSpec, expected: DataSpec) -> str:
    pairs = [
        (f.name, getattr(given, f.name), getattr(expected, f.name)) for f in fields(DataSpec) if f.compare
    ]
    return "; ".join(f"{name} is {new!r}, was {old!r}" for name, new, old in pairs if new != old)


def check_targets(predictor: Predictor, dataset: Dataset) -> None:
    """Check that a data set has the targets and classes of a model."""
    if dataset.kind != predictor.targets.kind:
        raise MolsliceError(
            f"the model is for {KIND_NAMES[predictor.targets.kind]}, but the targets of {dataset.source} are "
            "for "
            f"{KIND_NAMES[dataset.kind]}"
        )
    given = tuple(zip(dataset.target_names, dataset.target_units, strict=True))
    expected = tuple(zip(predictor.target_names, predictor.target_units, strict=True))
    if given != expected:
        only_units = dataset.target_names == predictor.target_names
        raise MolsliceError(
            f"the model predicts {_listed(expected)}, but the targets of {dataset.source} are "
            f"{_listed(given)}; "
            + ("set data.units" if only_units else "evaluate on data with the targets of the model")
        )
    classes = dataset.class_names if dataset.kind == "multiclass" else ()
    if tuple(classes) != predictor.targets.classes:
        odd = sorted(set(classes) ^ set(predictor.targets.classes))
        raise MolsliceError(
            f"the model has {len(predictor.targets.classes)} classes, the data have {len(classes)}"
            + (f"; not in both: {', '.join(odd[:5])}" if odd else ", in another order")
        )


def check_split(predictor: Predictor, dataset: Dataset, split: str) -> None:
    """Check that the rows of a fit have a split."""
    if not isinstance(predictor, FittedPredictor) or split in dataset.splits:
        return
    if dataset.source == str(predictor.folder / ROWS):
        raise MolsliceError(
            f"{predictor.name} has learned all of its rows, so there is no split {split!r}. Its errors are "
            f"in {CARD}, and `molslice report` shows them. For other rows, give --data.path FILE"
        )


def _listed(targets: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} [{unit}]" if unit else name for name, unit in targets)


def _errors(
    predictor: Predictor,
    dataset: MoleculeDataset,
    labels: np.ndarray,
    values: np.ndarray,
    molecules: np.ndarray,
) -> list[dict[str, float | None]]:
    """Return the metrics of each target by name, the primary one first, and `standard_error`."""
    types, errors = predictor.types, []
    for target_type, columns, truth in zip(types, column_slices(types), labels.T, strict=True):
        metrics = target_type.measure(values[:, columns], truth)
        if isinstance(dataset, Pcqm4m) and (known := np.isfinite(truth)).any():  # the evaluator of OGB
            metrics[target_type.metric] = evaluate_gap(
                dataset.version, truth[known], values[known, columns.start]
            )
        errors.append(
            {**metrics, "standard_error": _standard_error(target_type, values[:, columns], truth, molecules)}
        )
    return errors


def _standard_error(
    of_target: TargetType, predicted: np.ndarray, truth: np.ndarray, molecules: np.ndarray
) -> float | None:
    """Return the standard error of the primary metric; None if it is not defined."""
    values = predicted[:, 0] if of_target.several is None else predicted
    error = measure_rows(of_target, values, truth, molecules, of_target.metric).standard_error
    return error if np.isfinite(error) else None
