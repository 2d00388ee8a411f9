"""How good the uncertainties of a model are on held-out rows: coverage, width and ranking."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from molslice.data.base import Dataset
from molslice.data.molecules.base import ArraysOnly, MoleculeDataset
from molslice.data.molecules.fragments import choose_fragments
from molslice.inference.base import SmilesPredictor
from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.evaluate import check_targets
from molslice.inference.fitted import FittedPredictor
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

Groups = Sequence[tuple[str, str, np.ndarray]]  # what they are by, name, and rows, bool [n]


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
        found = f"the rows of {dataset.source} are {dataset.row_name}"
        raise MolsliceError(f"intervals are for molecules; {found}")
    if split in CALIBRATED_ON:
        raise MolsliceError(
            f"uncertainty cannot be evaluated on the split {split!r}: it trained or calibrated the model"
        )
    calibration = predictor.find_calibration()
    rows = dataset.labeled_rows(split)
    options = PredictionOptions(dropout_passes=calibration.dropout_passes, with_members=True)
    predictions = predictor.predict_dataset(dataset, rows, options, progress=progress)
    good = np.flatnonzero([reason in (None, NOT_FINITE) for reason in predictions.errors])
    truth = np.asarray(dataset.targets)[rows].astype(np.float64)
    at = {level: add_intervals(predictions, calibration, level) for level in _possible(calibration)}
    groups = [(by, name, own[good]) for by, name, own in _groups(predictor, dataset, rows)]
    score = _score_numbers if calibration.kind == "regression" else _score_classes
    targets = []
    for index, (name, unit) in enumerate(zip(predictor.target_names, predictor.target_units, strict=True)):
        parts = {level: _Target(part, index, good) for level, part in at.items()}
        targets.append({"name": name, "unit": unit, **score(truth[good, index], parts, groups)})
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
        found: Predictions with intervals.
        index: The target.
        rows: The rows with a prediction.
    """

    def __init__(self, found: Predictions, index: int, rows: np.ndarray) -> None:
        def column(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[rows, index].astype(np.float64)

        self.values = found.values[rows, index].astype(np.float64)
        self.spread, self.calibrated = column(found.spread), column(found.calibrated)
        self.lower, self.upper = column(found.lower), column(found.upper)
        self.sets = None if found.sets is None else found.sets[rows, index]


def _score_numbers(truth: np.ndarray, at: dict[float, _Target], groups: Groups) -> dict[str, Any]:
    bounds = {}
    for level, part in at.items():
        assert part.lower is not None
        assert part.upper is not None
        bounds[level] = part.lower, part.upper
    part = next(iter(at.values()))
    return score_intervals(truth, part.values, bounds, part.spread, groups)


def score_intervals(
    truth: np.ndarray,
    predicted: np.ndarray,
    bounds: Mapping[float, tuple[np.ndarray, np.ndarray]],
    spread: np.ndarray | None = None,
    groups: Groups = (),
) -> dict[str, Any]:
    """Compare intervals with the measured values of n rows.

    Args:
        truth: Measured values, float64 [n], NaN where missing.
        predicted: Predictions, float64 [n].
        bounds: Lower and upper bounds of each level, float64 [n] each. The levels contain `GRID`, up to the
            largest possible one.
        spread: Stated uncertainties, float64 [n]; None without them.
        groups: What each group is by, its name, and whether a row is in it, bool [n].

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
    for by, name, own in groups:
        mine = own & known
        if mine.any():
            inside = coverage(truth[mine], lower[mine], upper[mine])
            table.append(
                {"by": by, "group": name, "error": _mean(errors, mine), **_share(group_level, inside, mine)}
                | {"width": _mean(width, mine)}
            )
    by = spread if spread is not None else width
    return {
        "count": int(known.sum()),
        "error": _mean(errors, known),
        "levels": levels,
        "by_level": by_level,
        "miscalibration_area": _area(by_level),
        "rank_correlation": _rankings(errors, spread, width),
        "groups": table,
        "bins": _bins(by[known], errors[known]),
    }


def _score_classes(truth: np.ndarray, at: dict[float, _Target], groups: Groups) -> dict[str, Any]:
    known = np.isfinite(truth)
    labels = np.where(known, truth, 0.0).astype(np.int64)
    levels, by_level = [], []
    for level, part in at.items():
        assert part.sets is not None
        inside = part.sets[np.arange(len(labels)), labels]
        by_level.append({"level": level, "coverage": _mean(inside, known)})
        if level in LEVELS:
            each = {f"coverage_class_{c}": _mean(inside, known & (labels == c)) for c in (0, 1)}
            sizes = part.sets.sum(1)
            shares = {"empty_sets": _mean(sizes == 0, known), "double_sets": _mean(sizes == 2, known)}
            share = _share(level, _mean(inside, known), known)
            levels.append({**share, **each, "set_size": _mean(sizes, known), **shares})
    group_level = max(level for level in at if level <= GROUP_LEVEL)
    chosen = at[group_level]
    assert chosen.sets is not None
    assert chosen.calibrated is not None
    inside, errors = chosen.sets[np.arange(len(labels)), labels], np.abs(truth - chosen.values)
    unsure = 0.5 - np.abs(chosen.calibrated - 0.5)
    table = [
        {"by": by, "group": name, "error": _mean(errors, own & known)}
        | _share(group_level, _mean(inside, own & known), own & known)
        | {"set_size": _mean(chosen.sets.sum(1), own & known)}
        for by, name, own in groups
        if (own & known).any()
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
    own = [entry for entry in by_level if entry["level"] in GRID]
    return miscalibration_area([entry["level"] for entry in own], [entry["coverage"] for entry in own])


def _rankings(errors: np.ndarray, spread: np.ndarray | None, width: np.ndarray) -> dict[str, float | None]:
    constant = np.ptp(width) <= SAME_WIDTH * np.abs(width).max() if len(width) else True
    found = {"spread": spread, "width": None if constant else width}
    return {
        name: None if values is None or np.isnan(rank := rank_correlation(errors, values)) else rank
        for name, values in found.items()
    }


def _bins(uncertainty: np.ndarray, errors: np.ndarray, count: int = 5) -> list[dict[str, float]]:
    """Return mean uncertainty and mean error of rows sorted by uncertainty, in parts of nearly equal size."""
    order = np.argsort(uncertainty, kind="stable")
    return [
        {"uncertainty": float(uncertainty[part].mean()), "error": float(errors[part].mean())}
        for part in np.array_split(order, count)
        if len(part)
    ]


def _groups(predictor: SmilesPredictor, dataset: MoleculeDataset, rows: np.ndarray) -> Groups:
    """Divide rows into thirds by size, and by whether a training molecule has their scaffold."""
    sizes = np.asarray(dataset.store.num_atoms)[rows]
    low, high = (int(value) for value in np.quantile(sizes, (1 / 3, 2 / 3), method="lower"))
    names = (f"up to {low} heavy atoms", f"{low + 1} to {high} heavy atoms", f"more than {high} heavy atoms")
    places = (sizes > low).astype(int) + (sizes > high)
    groups = [("size", name, places == place) for place, name in enumerate(names) if (places == place).any()]
    domain = predictor.known_domain()
    if domain is None or domain.is_sample:  # the scaffold of a molecule outside of a sample would look new
        return groups
    if isinstance(dataset, ArraysOnly):
        return groups
    smiles = dataset.smiles()
    from molslice.chem.scaffold import scaffold_groups, scaffolds  # needs rdkit

    chosen, _ = choose_fragments([smiles[row] for row in rows], predictor.fragment)
    kinds = scaffold_groups(scaffolds(chosen), scaffolds(domain.smiles))
    return [*groups, *(("scaffold", kind, own) for kind, own in kinds.items())]
