"""What predictions have besides their values: intervals, spread and domain."""

from dataclasses import dataclass, replace

import numpy as np

from molslice.inference.domain import TrainingDomain
from molslice.inference.predictions import Members, Predictions
from molslice.uncertainty.calibration import Calibration


@dataclass(frozen=True, slots=True)
class PredictionOptions:
    """What predictions have besides their values.

    `Predictor.find_options` reads them from the folder of a model.

    Attributes:
        level: Probability that an interval or a set holds the truth; None without intervals.
        calibration: The held-out rows from which intervals are computed; None without intervals.
        domain: The training molecules with which molecules are compared; None without a comparison.
        dropout_passes: Number of passes with dropout over which the spread is computed; 0 without.
        with_members: Whether predictions have `members` without intervals too, from which any interval can be
            computed.
    """

    level: float | None = None
    calibration: Calibration | None = None
    domain: TrainingDomain | None = None
    dropout_passes: int = 0
    with_members: bool = False

    @property
    def needs_members(self) -> bool:
        """Whether predictions have `members`."""
        return self.with_members or self.level is not None


PLAIN = PredictionOptions()


def add_uncertainty(predictions: Predictions, members: Members, options: PredictionOptions) -> Predictions:
    """Add members, from which intervals are computed, and intervals if the options ask for them."""
    if not options.needs_members:
        return predictions
    predictions = replace(predictions, members=members)
    if options.level is None or options.calibration is None:
        return predictions
    return add_intervals(predictions, options.calibration, options.level)


def add_intervals(predictions: Predictions, calibration: Calibration, level: float) -> Predictions:
    """Add spread and intervals, or sets and calibrated probabilities, to predictions.

    Probabilities of more than two classes are calibrated already.

    Failed rows get NaN and empty sets.

    Args:
        predictions: The predictions of n rows, with `members`.
        calibration: The held-out rows of the model.
        level: The probability that an interval or a set holds the truth.
    """
    members = predictions.members
    assert members is not None
    shape, kinds = predictions.values.shape, {target.kind for target in calibration.targets}
    predicted = np.flatnonzero([reason is None for reason in predictions.errors])

    def fill(values: np.ndarray) -> np.ndarray:
        full = np.full(shape, np.nan, np.float32)
        full[predicted] = values
        return full

    models = members.models[predicted].transpose(1, 0, 2)
    spread = None if members.spread is None else fill(members.spread[predicted])
    predictions = replace(predictions, spread=spread)
    if "regression" in kinds:
        difficulty = None if members.difficulty is None else members.difficulty[predicted].transpose(1, 0, 2)
        lower, upper = map(fill, calibration.intervals(models, difficulty, level))
        predictions = replace(predictions, lower=lower, upper=upper)
    if "classification" in kinds:
        calibrated = fill(calibration.calibrated(predictions.values[predicted]))
        predictions = replace(predictions, calibrated=calibrated)
    if kinds != {"regression"}:
        of_predicted = calibration.sets(models, level)
        sets = np.zeros((shape[0], *of_predicted.shape[1:]), bool)
        sets[predicted] = of_predicted
        predictions = replace(predictions, sets=sets)
    return predictions
