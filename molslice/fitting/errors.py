"""Standard errors of the errors that a fit announces."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from molslice.tasks.metrics import mean_absolute_error, roc_auc
from molslice.tasks.targets import Kind

__all__ = ["Measured", "cross_validation_factor", "measure_errors"]


@dataclass(frozen=True, slots=True)
class Measured:
    """An error and how precisely a sample of compounds tells it.

    Attributes:
        value: The mean absolute error, or the area under the ROC curve; NaN if it is not defined.
        standard_error: Standard deviation of `value` over samples of groups, from this sample alone; NaN with
            fewer than two groups.
        rows: Effective number of rows: their number, or 1 / (1 / positives + 1 / negatives).
    """

    value: float
    standard_error: float
    rows: float

    @classmethod
    def of(cls, kind: Kind, predicted: np.ndarray, truth: np.ndarray, groups: np.ndarray) -> "Measured":
        """Measure predictions.

        Args:
            kind: Kind of the target.
            predicted: Predictions in the unit of the target, or probabilities of class 1, float64 [n].
            truth: The measured values, float64 [n], NaN where missing.
            groups: Number of the compound or scaffold of each row, int [n]. Rows of a group are drawn
                together.

        Source: the variance of a mean of clusters; DeLong, DeLong and Clarke-Pearson 1988, "Comparing the
        areas under two or more correlated receiver operating characteristic curves", with clusters as in
        Obuchowski 1997, "Nonparametric analysis of clustered ROC curve data".
        """
        known = np.isfinite(truth)
        predicted, truth, groups = predicted[known], truth[known], groups[known]
        measure = mean_absolute_error if kind == "regression" else roc_auc
        value = measure(predicted, truth)
        if not np.isfinite(value):
            return cls(value, float("nan"), 0.0)
        if kind == "regression":
            influences, rows = (np.abs(predicted - truth) - value) / len(truth), float(len(truth))
        else:
            positive = truth > 0.5
            counts = np.where(positive, positive.sum(), (~positive).sum())
            influences = (_shares_in_order(predicted, positive) - value) / counts
            rows = 1.0 / (1.0 / positive.sum() + 1.0 / (~positive).sum())
        _, places = np.unique(groups, return_inverse=True)
        sums = np.bincount(places, influences)
        if len(sums) < 2:
            return cls(value, float("nan"), rows)
        variance = len(sums) / (len(sums) - 1) * float((sums**2).sum())
        return cls(value, float(np.sqrt(variance)), rows)


def _shares_in_order(predicted: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Return for each row the share of rows of the other class that are on the right side of it, [n]."""
    shares = np.empty(len(predicted))
    for side, sign in ((positive, 1.0), (~positive, -1.0)):
        others = np.sort(sign * predicted[~side])
        below = np.searchsorted(others, sign * predicted[side], "left")
        through = np.searchsorted(others, sign * predicted[side], "right")
        shares[side] = (below + through) / 2 / len(others)
    return shares


def cross_validation_factor(folds: int) -> float:
    """Return by how much the standard error of a cross-validated error is larger than of as many new rows.

    The models of the folds share training rows, so that their errors are correlated.

    Source: Nadeau and Bengio 2003, "Inference for the Generalization Error", eq. 10.
    """
    return float(np.sqrt(1.0 + folds / (folds - 1)))


def measure_errors(cross_validated: Measured, folds: int, held_out: dict[str, Measured]) -> dict[str, Any]:
    """Describe the errors of one target with their standard errors.

    A few held-out rows often lack the large errors that matter most, and then their spread is too small. The
    spread of the out-of-fold errors, of many more rows, is therefore the least that is assumed. Its ratio to
    the spread of the held-out errors of the fitted model is applied to the baselines too.

    Args:
        cross_validated: The errors of the out-of-fold predictions.
        folds: Number of folds.
        held_out: The errors on held-out rows: of the fitted model, then of baselines.

    Returns:
        `cross_validated` and `test`, the errors, and `standard_errors` with the same keys; None where one is
        not defined.
    """
    plain, first = cross_validated.standard_error, next(iter(held_out.values()), None)
    least = plain * np.sqrt(cross_validated.rows / first.rows) if first and first.rows else float("nan")
    factor = 1.0
    if first and first.standard_error > 0 and np.isfinite(least):
        factor = max(1.0, least / first.standard_error)
    errors = {
        name: _defined(float(np.fmax(factor * measured.standard_error, least)))
        for name, measured in held_out.items()
    }
    return {
        "cross_validated": cross_validated.value,
        "test": {name: measured.value for name, measured in held_out.items()},
        "standard_errors": {
            "cross_validated": _defined(plain * cross_validation_factor(folds)),
            "test": errors,
        },
    }


def _defined(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
