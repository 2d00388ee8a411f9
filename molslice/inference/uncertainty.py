"""How good the uncertainties of a model are on held-out rows: coverage, width and ranking."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from molslice.data.base import Dataset
from molslice.data.molecules.base import MoleculeDataset
from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.evaluate import check_split, check_targets
from molslice.inference.fitted import FittedPredictor
from molslice.inference.groups import MoleculeGroup, find_groups
from molslice.inference.network import Predictor
from molslice.inference.options import PredictionOptions, add_intervals
from molslice.inference.predictions import NOT_FINITE, Predictions
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import Calibration
from molslice.uncertainty.scores import calibration_error, coverage, miscalibration_area, rank_correlation

__all__ = ["GRID", "LEVELS", "evaluate_uncertainty", "score_intervals"]

LEVELS = (0.5, 0.8, 0.9, 0.95)
GROUP_LEVEL = 0.9
GRID = tuple(round(0.05 * step, 2) for step in range(1, 20))  # of the miscalibration area
SAME_WIDTH = 1e-4  # relative difference of widths that is rounding of float32 bounds
CALIBRATED_ON = ("train", "valid")


def evaluate_uncertainty(
    predictor: Predictor | EnsemblePredictor | FittedPredictor,
    dataset: Dataset,
    split: str = "test",
    *,
    progress: bool = False,
) -> dict[str, Any]:
    """Compare intervals, or sets of classes, with the measured values of a split.

    Args:
        predictor: The model.
        dataset: Data with the same targets as the model.
        split: A split that neither trained nor calibrated the model.
        progress: Whether to show a bar on standard error.

    Returns:
        `split`, `rows` (those with a prediction), `calibration` (what the intervals are computed from), and
        `targets`. For each target: `name`, `unit`, `count`, `levels` (for each stated level: `coverage`, its
        `standard_error`, and `width` in the unit of the target, or the coverage of each class, `set_size`,
        and the share of `empty_sets` and of `double_sets`, which have both classes), `by_level` (`level` and
        `coverage` of a fine grid), `miscalibration_area`,
        `rank_correlation` of the absolute error with the `spread` and with the `width` (None if undefined),
        `groups` (for each group by size and by scaffold: `count`, `error`, `coverage`, `width`), and `bins`
        (mean uncertainty and mean error of fifths of the rows by uncertainty). For classes also
        `class_counts` (rows of class 0 and of class 1), and `calibration_error` and `brier_score` of the
        prediction and of the calibrated probability.

    Raises:
        MolsliceError: The split has calibrated the model, has no labels, or the model has no intervals.
    """
    check_targets(predictor, dataset)
    if not isinstance(dataset, MoleculeDataset):
        raise MolsliceError(
            f"intervals are for molecules; the rows of {dataset.source} are {dataset.row_name}"
        )
    if split in CALIBRATED_ON:
        raise MolsliceError(
            f"uncertainty cannot be evaluated on the split {split!r}: it trained or calibrated the model"
        )
    if predictor.targets.kind == "multiclass":
        raise MolsliceError(
            f"the coverage of sets is measured for two classes; {predictor.name} has "
            f"{len(predictor.targets.classes)}"
        )
    check_split(predictor, dataset, split)
    calibration = predictor.find_calibration()
    rows = dataset.labeled_rows(split)
    options = PredictionOptions(dropout_passes=calibration.dropout_passes, with_members=True)
    predictions = predictor.predict_dataset(dataset, rows, options, progress=progress)
    good = np.flatnonzero([reason in (None, NOT_FINITE) for reason in predictions.errors])
    truth = np.asarray(dataset.targets)[rows].astype(np.float64)
    at = {level: add_intervals(predictions, calibration, level) for level in _possible(calibration)}
    groups = [group._replace(rows=group.rows[good]) for group in find_groups(predictor, dataset, rows)]
    score = _score_numbers if calibration.kind == "regression" else _score_classes
    targets = []
    for index, (name, unit) in enumerate(zip(predictor.target_names, predictor.target_units, strict=True)):
        columns = {level: _Target(with_intervals, index, good) for level, with_intervals in at.items()}
        targets.append({"name": name, "unit": unit, **score(truth[good, index], columns, groups)})
    return {"split": split, "rows": len(good), "calibration": calibration.source, "targets": targets}


def _possible(calibration: Calibration) -> list[float]:
    """Return the levels for which all targets have enough held-out rows.

    Raises:
        MolsliceError: There are not even enough for the smallest.
    """
    levels = []
    for level in sorted({*GRID, *LEVELS}):
        try:
            calibration.check(level)
        except MolsliceError:
            if not levels:
                raise
            break
        levels.append(level)
    return levels


class _Target:
    """The columns of one target, in float64.

    Args:
        predictions: Predictions with intervals.
        index: The target.
        rows: The rows with a prediction.
    """

    def __init__(self, predictions: Predictions, index: int, rows: np.ndarray) -> None:
        def column(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[rows, index].astype(np.float64)

        self.values = predictions.values[rows, index].astype(np.float64)
        self.spread, self.calibrated = column(predictions.spread), column(predictions.calibrated)
        self.lower, self.upper = column(predictions.lower), column(predictions.upper)
        self.sets = None if predictions.sets is None else predictions.sets[rows, index]


def _score_numbers(
    truth: np.ndarray, at: dict[float, _Target], groups: Sequence[MoleculeGroup]
) -> dict[str, Any]:
    bounds = {}
    for level, column in at.items():
        assert column.lower is not None
        assert column.upper is not None
        bounds[level] = column.lower, column.upper
    column = next(iter(at.values()))
    return score_intervals(truth, column.values, bounds, column.spread, groups)


def score_intervals(
    truth: np.ndarray,
    predicted: np.ndarray,
    bounds: Mapping[float, tuple[np.ndarray, np.ndarray]],
    spread: np.ndarray | None = None,
    groups: Sequence[MoleculeGroup] = (),
) -> dict[str, Any]:
    """Compare intervals with the measured values of n rows.

    Args:
        truth: Measured values, float64 [n], NaN where missing.
        predicted: Predictions, float64 [n].
        bounds: Lower and upper bounds of each level, float64 [n] each. The levels contain `GRID`, up to the
            largest possible one.
        spread: Stated uncertainties, float64 [n]; None without them.
        groups: Groups of the n rows.

    Returns:
        The numbers of a target; see `evaluate_uncertainty`.
    """
    known = np.isfinite(truth)
    levels, by_level = [], []
    for level, (lower, upper) in bounds.items():
        share = coverage(truth, lower, upper)
        by_level.append({"level": level, "coverage": share})
        if level in LEVELS:
            levels.append({**_share(level, share, known), "width": _mean(upper - lower, known)})
    group_level = max(level for level in bounds if level <= GROUP_LEVEL)
    lower, upper = bounds[group_level]
    errors, width = np.abs(truth - predicted), upper - lower
    table = []
    for by, name, in_group in groups:
        rows = in_group & known
        if rows.any():
            inside = coverage(truth[rows], lower[rows], upper[rows])
            table.append(
                {"by": by, "group": name, "error": _mean(errors, rows), **_share(group_level, inside, rows)}
                | {"width": _mean(width, rows)}
            )
    uncertainty = spread if spread is not None else width
    return {
        "count": int(known.sum()),
        "error": _mean(errors, known),
        "levels": levels,
        "by_level": by_level,
        "miscalibration_area": _area(by_level),
        "rank_correlation": _rankings(errors, spread, width),
        "groups": table,
        "bins": _bins(uncertainty[known], errors[known]),
    }


def _score_classes(
    truth: np.ndarray, at: dict[float, _Target], groups: Sequence[MoleculeGroup]
) -> dict[str, Any]:
    known = np.isfinite(truth)
    labels = np.where(known, truth, 0.0).astype(np.int64)
    levels, by_level = [], []
    for level, column in at.items():
        assert column.sets is not None
        inside = column.sets[np.arange(len(labels)), labels]
        by_level.append({"level": level, "coverage": _mean(inside, known)})
        if level in LEVELS:
            by_class = {f"coverage_class_{c}": _mean(inside, known & (labels == c)) for c in (0, 1)}
            sizes = column.sets.sum(1)
            shares = {"empty_sets": _mean(sizes == 0, known), "double_sets": _mean(sizes == 2, known)}
            share = _share(level, _mean(inside, known), known)
            levels.append({**share, **by_class, "set_size": _mean(sizes, known), **shares})
    group_level = max(level for level in at if level <= GROUP_LEVEL)
    chosen = at[group_level]
    assert chosen.sets is not None
    assert chosen.calibrated is not None
    inside, errors = chosen.sets[np.arange(len(labels)), labels], np.abs(truth - chosen.values)
    unsure = 0.5 - np.abs(chosen.calibrated - 0.5)
    table = [
        {"by": by, "group": name, "error": _mean(errors, rows)}
        | _share(group_level, _mean(inside, rows), rows)
        | {"set_size": _mean(chosen.sets.sum(1), rows)}
        for by, name, in_group in groups
        if (rows := in_group & known).any()
    ]
    return {
        "count": int(known.sum()),
        "error": _mean(errors, known),
        "levels": levels,
        "by_level": by_level,
        "miscalibration_area": _area(by_level),
        "rank_correlation": _rankings(errors, chosen.spread, unsure),
        "calibration_error": {
            "predicted": calibration_error(chosen.values, truth),
            "calibrated": calibration_error(chosen.calibrated, truth),
        },
        "class_counts": [int((known & (labels == label)).sum()) for label in (0, 1)],
        "brier_score": {
            "predicted": _mean((chosen.values - labels) ** 2, known),
            "calibrated": _mean((chosen.calibrated - labels) ** 2, known),
        },
        "groups": table,
        "bins": _bins(unsure[known], errors[known]),
    }


def _mean(values: np.ndarray, rows: np.ndarray) -> float:
    return float(values[rows].mean()) if rows.any() else float("nan")


def _share(level: float, share: float, rows: np.ndarray) -> dict[str, Any]:
    """Return a coverage with its standard error if the stated level is right."""
    count = int(rows.sum())
    error = float(np.sqrt(level * (1 - level) / count)) if count else float("nan")
    return {"level": level, "count": count, "coverage": share, "standard_error": error}


def _area(by_level: list[dict[str, float]]) -> float:
    grid = [entry for entry in by_level if entry["level"] in GRID]
    return miscalibration_area([entry["level"] for entry in grid], [entry["coverage"] for entry in grid])


def _rankings(errors: np.ndarray, spread: np.ndarray | None, width: np.ndarray) -> dict[str, float | None]:
    constant = np.ptp(width) <= SAME_WIDTH * np.abs(width).max() if len(width) else True
    uncertainties = {"spread": spread, "width": None if constant else width}
    return {
        name: None if values is None or np.isnan(rank := rank_correlation(errors, values)) else rank
        for name, values in uncertainties.items()
    }


def _bins(uncertainty: np.ndarray, errors: np.ndarray, count: int = 5) -> list[dict[str, float]]:
    """Return mean uncertainty and mean error of rows sorted by uncertainty, in parts of nearly equal size."""
    order = np.argsort(uncertainty, kind="stable")
    return [
        {"uncertainty": float(uncertainty[rows].mean()), "error": float(errors[rows].mean())}
        for rows in np.array_split(order, count)
        if len(rows)
    ]
