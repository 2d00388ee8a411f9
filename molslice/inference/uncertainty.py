"""How good the uncertainties of a model are on held-out rows: coverage, width and ranking."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from molslice.data.base import Dataset
from molslice.data.molecules.base import MoleculeDataset
from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.evaluate import check_split, check_targets
from molslice.inference.fitted import FittedPredictor
from molslice.inference.groups import Groups, find_groups
from molslice.inference.network import Predictor
from molslice.inference.options import PredictionOptions, add_intervals
from molslice.inference.predictions import NOT_FINITE
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import Calibration
from molslice.uncertainty.scores import calibration_error, miscalibration_area, rank_correlation

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
    rows: np.ndarray | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Compare intervals, or sets of classes, with the measured values of a split.

    Args:
        predictor: The model.
        dataset: Data with the same targets as the model.
        split: A split that neither trained nor calibrated the model.
        rows: The rows of the split to predict, int [n]; None for all that have a measured value.
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
    rows = dataset.labeled_rows(split) if rows is None else rows
    options = PredictionOptions(dropout_passes=calibration.dropout_passes, with_members=True)
    predictions = predictor.predict_dataset(dataset, rows, options, progress=progress)
    good = np.flatnonzero([reason in (None, NOT_FINITE) for reason in predictions.errors])
    truth = np.asarray(dataset.targets)[rows].astype(np.float64)
    at = {level: add_intervals(predictions, calibration, level) for level in _possible(calibration)}
    groups = {
        by: {name: in_group[good] for name, in_group in kinds.items()}
        for by, kinds in find_groups(predictor, dataset, rows).items()
    }

    def column(values: Any) -> Any:  # noqa: ANN401
        return None if values is None else values[good, index].astype(np.float64)

    targets = []
    for index, (name, unit) in enumerate(zip(predictor.target_names, predictor.target_units, strict=True)):
        first = next(iter(at.values()))
        guess, spread = column(first.values), column(first.spread)
        if calibration.kind == "regression":
            bounds = {level: (column(chosen.lower), column(chosen.upper)) for level, chosen in at.items()}
            scores = score_intervals(truth[good, index], guess, bounds, spread, groups)
        else:
            sets = {
                level: chosen.sets[good, index] for level, chosen in at.items() if chosen.sets is not None
            }
            calibrated = column(first.calibrated)
            scores = _score_classes(truth[good, index], guess, calibrated, sets, spread, groups)
        targets.append({"name": name, "unit": unit, **scores})
    return {"split": split, "rows": len(good), "calibration": calibration.source, "targets": targets}


def _possible(calibration: Calibration) -> list[float]:
    """Return the levels for which all targets have enough held-out rows; none is an error."""
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


def score_intervals(
    truth: np.ndarray,
    predicted: np.ndarray,
    bounds: Mapping[float, tuple[np.ndarray, np.ndarray]],
    spread: np.ndarray | None = None,
    groups: Mapping[str, Groups] = MappingProxyType({}),
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
    known, errors = np.isfinite(truth), np.abs(truth - predicted)
    inside = {level: (lower <= truth) & (truth <= upper) for level, (lower, upper) in bounds.items()}
    widths = {level: upper - lower for level, (lower, upper) in bounds.items()}
    width = widths[_group_level(bounds)]
    uncertainty = spread if spread is not None else width
    return {
        **_summarize(known, errors, inside, "width", widths, groups),
        "rank_correlation": _rankings(errors, spread, width),
        "bins": _bins(uncertainty[known], errors[known]),
    }


def _score_classes(
    truth: np.ndarray,
    predicted: np.ndarray,
    calibrated: np.ndarray,
    sets: Mapping[float, np.ndarray],
    spread: np.ndarray | None,
    groups: Mapping[str, Groups],
) -> dict[str, Any]:
    known, errors = np.isfinite(truth), np.abs(truth - predicted)
    labels = np.where(known, truth, 0.0).astype(np.int64)
    inside = {level: in_set[np.arange(len(labels)), labels] for level, in_set in sets.items()}
    sizes = {level: in_set.sum(1) for level, in_set in sets.items()}
    summary = _summarize(known, errors, inside, "set_size", sizes, groups)
    for entry in summary["levels"]:
        covered, size = inside[entry["level"]], sizes[entry["level"]]
        entry |= {f"coverage_class_{c}": _mean(covered, known & (labels == c)) for c in (0, 1)}
        entry |= {"empty_sets": _mean(size == 0, known), "double_sets": _mean(size == 2, known)}
    unsure = 0.5 - np.abs(calibrated - 0.5)
    guesses = {"predicted": predicted, "calibrated": calibrated}
    return {
        **summary,
        "rank_correlation": _rankings(errors, spread, unsure),
        "calibration_error": {name: calibration_error(guess, truth) for name, guess in guesses.items()},
        "class_counts": [int((known & (labels == label)).sum()) for label in (0, 1)],
        "brier_score": {name: _mean((guess - labels) ** 2, known) for name, guess in guesses.items()},
        "bins": _bins(unsure[known], errors[known]),
    }


def _group_level(levels: Iterable[float]) -> float:
    return max(level for level in levels if level <= GROUP_LEVEL)


def _summarize(
    known: np.ndarray,
    errors: np.ndarray,
    inside: Mapping[float, np.ndarray],
    size_name: str,
    sizes: Mapping[float, np.ndarray],
    groups: Mapping[str, Groups],
) -> dict[str, Any]:
    """Return the numbers that intervals and sets have in common; `known` rows have a measured value."""

    def at_level(level: float, rows: np.ndarray) -> dict[str, Any]:
        """Return coverage and size, and the standard error of the coverage if the stated level is right."""
        count = int(rows.sum())
        return {
            "level": level,
            "count": count,
            "coverage": _mean(inside[level], rows),
            "standard_error": float(np.sqrt(level * (1 - level) / count)) if count else float("nan"),
            size_name: _mean(sizes[level], rows),
        }

    by_level = [{"level": level, "coverage": _mean(covered, known)} for level, covered in inside.items()]
    grid = [entry for entry in by_level if entry["level"] in GRID]
    area = miscalibration_area([entry["level"] for entry in grid], [entry["coverage"] for entry in grid])
    table = [
        {"by": by, "group": name, "error": _mean(errors, rows)} | at_level(_group_level(inside), rows)
        for by, kinds in groups.items()
        for name, in_group in kinds.items()
        if (rows := in_group & known).any()
    ]
    return {
        "count": int(known.sum()),
        "error": _mean(errors, known),
        "levels": [at_level(level, known) for level in inside if level in LEVELS],
        "by_level": by_level,
        "miscalibration_area": area,
        "groups": table,
    }


def _mean(values: np.ndarray, rows: np.ndarray) -> float:
    return float(values[rows].mean()) if rows.any() else float("nan")


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


def rank_texts(target: Mapping[str, Any]) -> list[str]:
    """Return the defined rank correlations of a target, such as `width 0.42`."""
    return [f"{name} {rank:.2f}" for name, rank in target["rank_correlation"].items() if rank is not None]
