"""Intervals, sets and spread of predictions."""

from dataclasses import replace

import numpy as np

from molslice.inference.predictions import Predictions
from molslice.uncertainty.calibration import Calibration

__all__ = ["with_intervals"]


def with_intervals(predictions: Predictions, calibration: Calibration, level: float) -> Predictions:
    """Add spread and intervals, or sets and calibrated probabilities, to predictions.

    Failed rows get NaN and empty sets.

    Args:
        predictions: The predictions of n rows, with `members`.
        calibration: The held-out rows of the model.
        level: The probability that an interval or a set holds the truth.
    """
    members = predictions.members
    assert members is not None
    shape = predictions.values.shape
    good = np.flatnonzero([reason is None for reason in predictions.errors])

    def fill(values: np.ndarray) -> np.ndarray:
        full = np.full(shape, np.nan, np.float32)
        full[good] = values
        return full

    models = members.models[good].transpose(1, 0, 2)
    spread = None if members.spread is None else fill(members.spread[good])
    if calibration.kind == "classification":
        sets = np.zeros((*shape, 2), bool)
        sets[good] = calibration.sets(models, level)
        calibrated = fill(calibration.calibrated(predictions.values[good]))
        return replace(predictions, spread=spread, sets=sets, calibrated=calibrated)
    difficulty = None if members.difficulty is None else members.difficulty[good].transpose(1, 0, 2)
    lower, upper = map(fill, calibration.intervals(models, difficulty, level))
    return replace(predictions, spread=spread, lower=lower, upper=upper)
