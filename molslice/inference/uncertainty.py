"""How good the uncertainties of a model are on held-out rows: coverage, width and ranking."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from molslice.data.base import Dataset
from molslice.data.molecules.base import MoleculeDataset
from molslice.inference.evaluate import check_split, check_targets
from molslice.inference.fitted import FittedPredictor
from molslice.inference.groups import Groups, find_groups, number_molecules
from molslice.inference.load import AnyPredictor
from molslice.inference.options import PredictionOptions, add_intervals
from molslice.inference.predictions import NOT_FINITE, Predictions
from molslice.number_text import format_metric
from molslice.tasks.target_types import column_slices
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import Calibration
from molslice.uncertainty.conformal import class_sets, intervals
from molslice.uncertainty.scores import (
    brier_score,
    class_calibration_errors,
    miscalibration_area,
    rank_correlation,
)

LEVELS = (0.5, 0.8, 0.9, 0.95)
GROUP_LEVEL = 0.9
GRID = tuple(round(0.05 * step, 2) for step in range(1, 20))  # of the miscalibration area
SAME_WIDTH = 1e-4  # relative difference of widths that is rounding of float32 bounds
CALIBRATED_ON = ("train", "valid")


def evaluate_uncertainty(
    predictor: AnyPredictor,
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
        `standard_error`, and `width` in the unit of the target, or `set_size`), `by_level` (`level` and
        `coverage` of a fine grid), `miscalibration_area`,
        `rank_correlation` of the error with the `spread` and with the `width`, for sets with 1 - the largest
        probability (None if undefined),
        `groups` (for each group by size and by scaffold: `count`, `error`, `coverage`, `width`), and `bins`
        (mean uncertainty and mean error of fifths of the rows by uncertainty). For numbers also
        `logarithmic`, and `width_bins` (the same by the width, empty if all widths are equal). If the
        logarithm is learned, `rank_correlation`, `bins` and `width_bins` compare decimal logarithms, because
        large values have large errors and wide intervals; `levels` and `groups` have the `factor` between the
        ends of an interval, a geometric mean, and `groups` the `fold_error`. For K classes also
        `set_sizes` of each level (the share of sets of 0 to K classes; for two classes also as `empty_sets`
        and `double_sets`, with `coverage_class_0` and `coverage_class_1`), `classes` (coverage and `set_size`
        of the rows of each class, at each level), `class_counts`, and `calibration_error` and `brier_score`
        of the prediction and of the calibrated probability: of class 1 of two classes, and of more than two
        the mean of `class_calibration_errors` and the sum of the squared errors of all classes. Both
        `class_calibration_errors` of two classes are the one of class 1.

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
    check_split(predictor, dataset, split)
    calibration = predictor.find_calibration()
    rows = dataset.labeled_rows(split) if rows is None else rows
    options = PredictionOptions(dropout_passes=calibration.dropout_passes, with_members=True)
    predictions = predictor.predict_dataset(dataset, rows, options, progress=progress)
    readable = np.flatnonzero([reason in (None, NOT_FINITE) for reason in predictions.errors])
    truth = np.asarray(dataset.targets)[rows].astype(np.float64)
    at = {level: add_intervals(predictions, calibration, level) for level in _possible(calibration)}
    groups = {
        by: {name: in_group[readable] for name, in_group in kinds.items()}
        for by, kinds in find_groups(predictor, dataset, rows).items()
    }

    molecules = number_molecules(predictor, dataset, rows[readable])

    def column(values: Any) -> np.ndarray:  # noqa: ANN401 - an array for this kind of target
        return values[readable, columns.start].astype(np.float64)

    def probabilities(values: np.ndarray) -> np.ndarray:
        """Return the values of each class, float64 [n, K]: class 0 of two has the others of class 1."""
        if of_target.several is not None:
            return values[readable, columns].astype(np.float64)
        return two_classes(column(values))

    targets, types = [], predictor.types
    names_and_units = zip(predictor.target_names, predictor.target_units, strict=True)
    described = zip(names_and_units, types, column_slices(types), strict=True)
    for index, ((name, unit), of_target, columns) in enumerate(described):
        first = next(iter(at.values()))
        chosen_columns: Any = columns.start
        if of_target.several is not None:
            chosen_columns += first.values[readable, columns].argmax(1)  # of the most probable class
        spread = None if first.spread is None else first.spread[readable, chosen_columns].astype(np.float64)
        if not of_target.has_classes:
            bounds = {level: (column(chosen.lower), column(chosen.upper)) for level, chosen in at.items()}
            scores = score_intervals(
                truth[readable, index],
                column(first.values),
                bounds,
                spread,
                groups,
                molecules,
                logarithmic=calibration.targets[index].logarithmic,
            )
        else:
            names: tuple[str, ...] = of_target.class_names
            sets = {level: _sets_of(chosen, readable, index, len(names)) for level, chosen in at.items()}
            guesses = {"predicted": probabilities(first.values)}
            if of_target.several is None and first.calibrated is not None:
                guesses["calibrated"] = probabilities(first.calibrated)
            scores = score_sets(truth[readable, index], guesses, sets, names, spread, groups, molecules)
        targets.append({"name": name, "unit": unit, **scores})
    return {"split": split, "rows": len(readable), "calibration": calibration.source, "targets": targets}


def score_learned_rows(
    predictor: FittedPredictor, known: Sequence[np.ndarray], molecules: np.ndarray
) -> dict[str, Any]:
    """Compare intervals or sets of the training rows of a fit with their values; see `evaluate_uncertainty`.

    The interval or set of a row is computed from its out-of-fold prediction and the out-of-fold predictions
    of all rows, so that the coverage is near the level in any case.

    Args:
        predictor: The model.
        known: The rows with a value and a prediction of each target, int64 [k] each.
        molecules: Number of the molecule of each row, int64 [n].
    """
    calibration, targets = predictor.find_calibration(), []
    levels = _possible(calibration)
    for unit, of_target, rows, held_out in zip(
        predictor.target_units, predictor.types, known, calibration.targets, strict=True
    ):
        guess, truth = held_out.predicted, held_out.truth
        # a sample of the rows does not match the calibration
        numbers = molecules[rows] if len(rows) == len(truth) else np.arange(len(truth))
        one_fold = np.zeros(len(truth), np.int64)
        if of_target.has_classes:
            sets = {level: class_sets(guess[None], guess, truth, one_fold, level) for level in levels}
            probabilities = guess if guess.ndim == 2 else two_classes(guess)
            names = of_target.class_names
            scores = score_sets(truth, {"predicted": probabilities}, sets, names, molecules=numbers)
        else:
            centers, scales = held_out.transform(guess), held_out.scale(held_out.difficulty)
            scales = np.broadcast_to(scales, centers.shape)[None]
            ends = {
                level: intervals(centers[None], scales, held_out.scores, one_fold, level) for level in levels
            }
            bounds = {
                level: (held_out.invert(low), held_out.invert(high)) for level, (low, high) in ends.items()
            }
            scores = score_intervals(
                truth, guess, bounds, molecules=numbers, logarithmic=held_out.logarithmic
            )
        targets.append({"name": held_out.name, "unit": unit, **scores})
    count = max(target["count"] for target in targets)
    return {"split": "train", "rows": count, "calibration": calibration.source, "targets": targets}


def _sets_of(predictions: Predictions, rows: np.ndarray, target: int, count: int) -> np.ndarray:
    """Return whether the set of a target has each of its classes, bool [k, count]."""
    assert predictions.sets is not None
    return predictions.sets[rows, target, :count]


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
    molecules: np.ndarray | None = None,
    *,
    logarithmic: bool = False,
) -> dict[str, Any]:
    """Compare intervals with the measured values of n rows.

    Args:
        truth: Measured values, float64 [n], NaN where missing.
        predicted: Predictions, float64 [n].
        bounds: Lower and upper bounds of each level, float64 [n] each. The levels contain `GRID`, up to the
            largest possible one.
        spread: Stated uncertainties, float64 [n]; None without them.
        groups: Groups of the n rows.
        molecules: Number of the molecule of each row, int64 [n]; None if each row has another molecule.
        logarithmic: Whether the intervals belong to the logarithm of positive values.

    Returns:
        The numbers of a target; see `evaluate_uncertainty`.
    """
    known, errors = np.isfinite(truth), np.abs(truth - predicted)
    inside = {level: (lower <= truth) & (truth <= upper) for level, (lower, upper) in bounds.items()}
    widths = {level: upper - lower for level, (lower, upper) in bounds.items()}
    width = widths[_group_level(bounds)]
    molecules = np.arange(len(truth)) if molecules is None else molecules
    summary = _summarize(known, errors, inside, "width", widths, groups, molecules)
    if logarithmic:
        with np.errstate(divide="ignore", invalid="ignore"):  # a value or a prediction of 0 has no logarithm
            errors = np.abs(np.log10(predicted) - np.log10(truth))
            factors = {level: np.log10(upper) - np.log10(lower) for level, (lower, upper) in bounds.items()}
            spread = None if spread is None else spread / (predicted * np.log(10.0))
        for entry in summary["levels"]:
            entry["factor"] = float(10.0 ** _mean(factors[entry["level"]], known))
        for entry in summary["groups"]:
            rows = known & groups[entry["by"]][entry["group"]]
            entry["factor"] = float(10.0 ** _mean(factors[entry["level"]], rows))
            entry["fold_error"] = float(10.0 ** _mean(errors, rows & np.isfinite(errors)))
        width, known = factors[_group_level(bounds)], known & np.isfinite(errors)
    uncertainty = spread if spread is not None else width
    return {
        **summary,
        "logarithmic": logarithmic,
        "rank_correlation": _rankings(errors, spread, width),
        "bins": _bins(uncertainty[known], errors[known]),
        "width_bins": [] if _is_constant(width) else _bins(width[known], errors[known]),
    }


def two_classes(probabilities: np.ndarray) -> np.ndarray:
    """Return the probabilities of class 0 and class 1, [n, 2], from probabilities of class 1, [n]."""
    return np.stack([1.0 - probabilities, probabilities], axis=1)


def score_sets(
    truth: np.ndarray,
    guesses: Mapping[str, np.ndarray],
    sets: Mapping[float, np.ndarray],
    names: Sequence[str],
    spread: np.ndarray | None = None,
    groups: Mapping[str, Groups] = MappingProxyType({}),
    molecules: np.ndarray | None = None,
) -> dict[str, Any]:
    """Compare sets of K classes, and their probabilities, with the measured classes of n rows.

    Args:
        truth: Index of the class, float64 [n], NaN where missing.
        guesses: Probability of each class, float64 [n, K] each: the predictions, then calibrated ones, unless
            the predictions are calibrated.
        sets: Whether the set of each level has each class, bool [n, K]. The levels are as in
            `score_intervals`.
        names: Names of the classes.
        spread: Stated uncertainties, float64 [n]; None without them.
        groups: Groups of the n rows.
        molecules: As in `score_intervals`.

    Returns:
        The numbers of a target; see `evaluate_uncertainty`. The error of a row is 1 - probability of its
        class.
    """
    known, count = np.isfinite(truth), len(names)
    labels = np.where(known, truth, 0.0).astype(np.int64)
    rows, right = np.arange(len(labels)), labels[:, None] == np.arange(count)
    molecules = rows if molecules is None else molecules
    inside = {level: in_set[rows, labels] for level, in_set in sets.items()}
    sizes = {level: in_set.sum(1) for level, in_set in sets.items()}
    predicted, best = guesses["predicted"], [*guesses.values()][-1]
    errors, unsure = np.where(known, 1.0 - predicted[rows, labels], np.nan), 1.0 - best.max(1)
    summary = _summarize(known, errors, inside, "set_size", sizes, groups, molecules)
    classes = []
    for entry in summary["levels"]:
        level = entry["level"]
        entry["set_sizes"] = [_mean(sizes[level] == size, known) for size in range(count + 1)]
        for label, name in enumerate(names):
            of_class = known & right[:, label]
            scores = _at_level(level, inside[level], "set_size", sizes[level], of_class, molecules)
            classes.append({"class": name, **scores})
            if count == 2:
                entry[f"coverage_class_{label}"] = scores["coverage"]
        if count == 2:
            entry["empty_sets"], _, entry["double_sets"] = entry["set_sizes"]
    of_known = {guess: values[known] for guess, values in guesses.items()}
    calibration_errors = {
        guess: class_calibration_errors(values, labels[known]) for guess, values in of_known.items()
    }
    return {
        **summary,
        "classes": classes,
        "rank_correlation": _rankings(errors, spread, unsure),
        "calibration_error": {
            guess: float(np.mean(of_class)) for guess, of_class in calibration_errors.items()
        },
        "class_calibration_errors": calibration_errors,
        "class_counts": right[known].sum(0).tolist(),
        "brier_score": {guess: brier_score(values, labels[known]) for guess, values in of_known.items()},
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
    molecules: np.ndarray,
) -> dict[str, Any]:
    """Return the numbers that intervals and sets have in common; `known` rows have a measured value."""

    def at_level(level: float, rows: np.ndarray) -> dict[str, Any]:
        return _at_level(level, inside[level], size_name, sizes[level], rows, molecules)

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


def _at_level(
    level: float,
    inside: np.ndarray,
    size_name: str,
    sizes: np.ndarray,
    rows: np.ndarray,
    molecules: np.ndarray,
) -> dict[str, Any]:
    """Return coverage and size, and the standard error of the coverage if the stated level is right.

    It is the standard error if all or none of the rows of a molecule are inside, the largest possible one.
    """
    _, counts = np.unique(molecules[rows], return_counts=True)
    variance = level * (1 - level) * (counts**2).sum() / max(counts.sum(), 1) ** 2
    return {
        "level": level,
        "count": int(counts.sum()),
        "coverage": _mean(inside, rows),
        "standard_error": float(np.sqrt(variance)) if len(counts) else float("nan"),
        size_name: _mean(sizes, rows),
    }


def _mean(values: np.ndarray, rows: np.ndarray) -> float:
    return float(values[rows].mean()) if rows.any() else float("nan")


def _rankings(errors: np.ndarray, spread: np.ndarray | None, width: np.ndarray) -> dict[str, float | None]:
    uncertainties = {"spread": spread, "width": None if _is_constant(width) else width}
    return {
        name: None if values is None or np.isnan(rank := rank_correlation(errors, values)) else rank
        for name, values in uncertainties.items()
    }


def _is_constant(width: np.ndarray) -> bool:
    return bool(np.ptp(width) <= SAME_WIDTH * np.abs(width).max()) if len(width) else True


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
    labels = {"spread": "spread", "width": "1 - largest probability" if "classes" in target else "width"}
    ranks = target["rank_correlation"]
    return [f"{label} {ranks[name]:.2f}" for name, label in labels.items() if ranks[name] is not None]


def size_label(*targets: Mapping[str, Any]) -> str:
    """Return what `size_text` is for some targets, for the head of a table."""
    labels = {"classes in a set" if "classes" in target else "width" for target in targets}
    return " or ".join(sorted(labels, reverse=True))


def size_text(entry: Mapping[str, Any]) -> str:
    """Format the mean width of the intervals, or the mean size of the sets, of an entry of `levels`.

    For a target whose logarithm is learned, it is the mean factor between the ends.
    """
    if "factor" in entry:
        return f"factor {format_metric(entry['factor'])}"
    return format_metric(entry["width"] if "width" in entry else entry["set_size"])


def error_text(entry: Mapping[str, Any]) -> str:
    """Format the mean error of an entry of `groups`, or the mean factor if the logarithm is learned."""
    fold_error = entry.get("fold_error")
    return format_metric(entry["error"]) if fold_error is None else f"factor {format_metric(fold_error)}"
