"""Weigh the learners of one target by their predictions for rows that they have not seen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from molslice.learners.labels import Labels
from molslice.types import MolsliceError

EVEN_SHARE = 0.05  # how strongly weights are drawn to equal ones, relative to the spread of the target


@dataclass(frozen=True, slots=True)
class Stack:
    """A convex combination of learners; for classes, of calibrated probabilities.

    Attributes:
        names: Names of the learners, in order.
        weights: Weight of each learner; not negative, their sum is one.
        calibration: For classes, slope and intercept of the log-odds of each learner; else empty.
        logarithmic: Whether the learners predict the common logarithm of the target.

    Source: Breiman 1996, "Stacked Regressions" (weights that are not negative); Platt 1999, "Probabilistic
    Outputs for Support Vector Machines" (calibration).
    """

    names: tuple[str, ...]
    weights: tuple[float, ...]
    calibration: tuple[tuple[float, float], ...] = ()
    logarithmic: bool = False

    @classmethod
    def fit(
        cls,
        predictions: Mapping[str, np.ndarray],
        labels: Labels,
        *,
        classes: bool,
        logarithmic: bool = False,
    ) -> Self:
        """Minimize the squared error of the combination.

        Args:
            predictions: Out-of-fold prediction of each learner, float64 [n].
            labels: What the learners predict: the target or its common logarithm; 0 and 1 for classes. A
                limit that is met has no error, and the error of another one is the distance to it.
            classes: Whether to calibrate the predictions as log-odds.
            logarithmic: Whether `labels` are logarithms.
        """
        names = tuple(predictions)
        weights = labels.row_weights(0.0 if labels.spreads is None else float(labels.spreads.mean()))
        shares = None if weights is None else weights / weights.mean()
        calibration = ()
        if classes:
            calibration = tuple(_platt(predictions[name], labels.values, shares) for name in names)
        columns = [predictions[name] for name in names]
        if classes:
            columns = [_logistic(*line, scores) for line, scores in zip(calibration, columns, strict=True)]
        return cls(
            names, _convex_weights(np.stack(columns, axis=1), labels, shares), calibration, logarithmic
        )

    def combine(self, predictions: Mapping[str, np.ndarray]) -> np.ndarray:
        """Combine predictions of any one shape.

        Returns:
            Values in the unit of the target, or the probability of class 1, float64.
        """
        mean = self.mean(predictions)
        return 10.0**mean if self.logarithmic else mean

    def mean(self, predictions: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the weighted mean of predictions of any one shape, in the unit of the learners."""
        total = np.zeros_like(predictions[self.names[0]], dtype=np.float64)
        for i, (name, weight) in enumerate(zip(self.names, self.weights, strict=True)):
            predicted = predictions[name]
            if self.calibration:
                predicted = _logistic(*self.calibration[i], predicted)
            total += weight * predicted
        return total

    def disagreement(self, predictions: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the standard deviation over the learners, of any one shape, in the unit of the learners.

        It tends to grow with the error of the combination. Only numbers have one.
        """
        return np.std([predictions[name] for name in self.names], axis=0)

    def to_mapping(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "names": list(self.names),
            "weights": list(self.weights),
            "calibration": [list(line) for line in self.calibration],
            "logarithmic": self.logarithmic,
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild a stack.

        Raises:
            MolsliceError: The values do not describe a stack.
        """
        try:
            names = tuple(str(name) for name in mapping["names"])
            weights = tuple(float(weight) for weight in mapping["weights"])
            calibration = tuple((float(a), float(b)) for a, b in mapping["calibration"])
            logarithmic = mapping.get("logarithmic", False)
            if not isinstance(logarithmic, bool) or (logarithmic and calibration):
                raise ValueError(f"logarithmic {logarithmic!r}")
        except (KeyError, TypeError, ValueError) as error:
            raise MolsliceError(f"invalid weights of learners: {error}") from error
        sound = len(names) == len(weights) > 0 and len(calibration) in (0, len(names))
        numbers = np.array([*weights, *(number for line in calibration for number in line)])
        if not sound or not np.isfinite(numbers).all() or min(weights) < 0 or abs(sum(weights) - 1) > 1e-6:
            raise MolsliceError(f"invalid weights of learners: {weights}")
        return cls(names, weights, calibration, logarithmic)


def _convex_weights(columns: np.ndarray, labels: Labels, shares: np.ndarray | None) -> tuple[float, ...]:
    """Minimize the squared error over weights that are not negative and add up to one.

    The mean of the values is subtracted, so that the sum of the weights matters equally in every unit.

    Args:
        columns: Out-of-fold predictions, float64 [n, learners].
        labels: The labels.
        shares: Weights of the rows, of mean 1, float64 [n]; None if they count alike.
    """
    from scipy.optimize import nnls

    rows, count = columns.shape
    values = labels.values[~labels.limited]
    mean, spread = float(np.mean(values)), float(np.std(values)) or 1.0
    unit = spread * np.sqrt(rows)
    if labels.bounds is not None:
        return _fit_limits(columns / unit, labels.bounds / unit, shares)
    scaled, target = (columns - mean) / unit, (labels.values - mean) / unit
    if shares is not None:
        scaled, target = scaled * np.sqrt(shares)[:, None], target * np.sqrt(shares)
    even = EVEN_SHARE * np.eye(count)
    heavy = 1e4  # enforces the sum
    system = np.concatenate([scaled, even, np.full((1, count), heavy)])
    wanted = np.concatenate([target, np.full(count, EVEN_SHARE / count), [heavy]])
    weights = nnls(system, wanted)[0]
    return tuple((weights / weights.sum()).tolist())


def _fit_limits(columns: np.ndarray, bounds: np.ndarray, shares: np.ndarray | None) -> tuple[float, ...]:
    """Minimize what `_convex_weights` minimizes, with errors that are zero within bounds, which is convex.

    Args:
        columns: Out-of-fold predictions in the unit of errors, float64 [n, learners].
        bounds: Least and largest possible values in this unit, float64 [2, n].
        shares: See `_convex_weights`.
    """
    from scipy.optimize import minimize

    count, heights = columns.shape[1], 1.0 if shares is None else shares

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        predicted = columns @ weights
        errors, uneven = predicted - np.clip(predicted, *bounds), weights - 1.0 / count
        value = float((heights * errors**2).sum() + EVEN_SHARE**2 * (uneven**2).sum())
        return value, 2.0 * (columns.T @ (heights * errors) + EVEN_SHARE**2 * uneven)

    start, whole = np.full(count, 1.0 / count), {"type": "eq", "fun": lambda weights: weights.sum() - 1.0}
    options = {"ftol": 1e-12, "maxiter": 500}
    result = minimize(
        loss, start, jac=True, method="SLSQP", bounds=[(0.0, 1.0)] * count, constraints=whole, options=options
    )
    weights = np.maximum(result.x, 0.0)
    return tuple((weights / weights.sum()).tolist())


def _platt(scores: np.ndarray, values: np.ndarray, shares: np.ndarray | None) -> tuple[float, float]:
    """Fit slope and intercept of the log-odds, with Platt's smoothed targets; the slope is positive.

    Args:
        scores: Scores of the rows, float64 [n].
        values: Their classes, 0 and 1, float64 [n].
        shares: Weights of the rows, of mean 1, float64 [n]; None if they count alike.
    """
    from scipy.optimize import minimize

    positive = float(values.sum())
    high, low = (positive + 1.0) / (positive + 2.0), 1.0 / (len(values) - positive + 2.0)
    wanted = np.where(values > 0.5, high, low)
    center, spread = float(scores.mean()), float(scores.std()) or 1.0
    standardized = (scores - center) / spread

    def loss(line: np.ndarray) -> tuple[float, np.ndarray]:
        odds = line[0] * standardized + line[1]
        excess = 1.0 / (1.0 + np.exp(-odds)) - wanted
        terms = np.logaddexp(0.0, odds) - wanted * odds
        if shares is not None:
            excess, terms = excess * shares, terms * shares
        value = np.mean(terms)
        return float(value), np.array([np.mean(excess * standardized), np.mean(excess)])

    fitted = minimize(loss, [1.0, 0.0], jac=True, method="L-BFGS-B", bounds=[(1e-3, 50.0), (-50.0, 50.0)]).x
    return float(fitted[0] / spread), float(fitted[1] - fitted[0] * center / spread)


def _logistic(slope: float, intercept: float, scores: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-np.clip(slope * scores + intercept, -700.0, 700.0)))
