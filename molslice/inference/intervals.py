"""Intervals, sets and spread of the predictions of the members of an ensemble."""

from dataclasses import replace

import numpy as np

from molslice.inference.predictions import Predictions
from molslice.uncertainty.calibration import Calibration

__all__ = ["with_intervals"]


def with_intervals(
    predictions: Predictions,
    members: np.ndarray,
    calibration: Calibration,
    level: float,
    *,
    models: np.ndarray | None = None,
    difficulty: np.ndarray | None = None,
) -> Predictions:
    """Add spread and intervals, or sets and calibrated probabilities, to predictions.

    Failed rows get NaN and empty sets.

    Args:
        predictions: The predictions of n rows.
        members: Prediction by each of K members, float [K, n, T]. The values of failed rows are not used.
        calibration: The held-out rows.
        level: The probability that an interval or a set holds the truth.
        models: Prediction by the model of each fold of `calibration`, float [F, n, T]; by default `members`.
        difficulty: Difficulty of each row for these models, float [F, n, T]; None without one.
    """
    rows, targets = predictions.values.shape
    good = np.flatnonzero([reason is None for reason in predictions.errors])
    models = members if models is None else models

    def spread_out(values: np.ndarray) -> np.ndarray:
        full = np.full((rows, targets), np.nan, np.float32)
        full[good] = values
        return full

    spread = spread_out(members[:, good].std(0)) if len(members) > 1 else None
    if calibration.kind == "classification":
        sets = np.zeros((rows, targets, 2), bool)
        sets[good] = calibration.sets(models[:, good], level)
        calibrated = spread_out(calibration.calibrated(predictions.values[good]))
        return replace(predictions, spread=spread, sets=sets, calibrated=calibrated)
    hard = None if difficulty is None else difficulty[:, good]
    lower, upper = map(spread_out, calibration.intervals(models[:, good], hard, level))
    return replace(predictions, spread=spread, lower=lower, upper=upper)
