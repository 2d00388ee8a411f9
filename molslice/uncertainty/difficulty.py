"""The expected error of a molecule, from indicators of how difficult it is.

An indicator is a number that tends to grow with the error, such as the disagreement of learners or the
distance from the training molecules. The errors come from held-out rows. The expected error of a row is
computed without its own error: it is fitted once for each fold, to the rows of the other folds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from molslice.errors import MolsliceError

OFFSET = 0.1  # share of the mean that is added to an indicator, which may be zero, before the logarithm
LIMIT = 3.0  # standard deviations of the logarithm; a new molecule may be far outside of the training range
RIDGE = 10.0  # rows by which slopes are drawn to zero
RANGE = 10.0  # of the logarithm of the error around the mean error
SMALLEST = 1e-9  # a spread below it is rounding
LARGEST_LOGARITHM = 1e6  # of a sound scale; offsets are in the unit of the indicator and may be larger


@dataclass(frozen=True, slots=True)
class ErrorScale:
    """Expected absolute error of the model of each of K folds: exp(a + sum of b z).

    z is the standardized logarithm of an indicator, and b is not negative. They maximize the likelihood of
    Laplace distributions of the errors.

    Attributes:
        names: Names of the q indicators.
        offsets: What is added to each indicator before the logarithm.
        centers: Mean of the logarithm of each indicator.
        spreads: Standard deviation of the logarithm of each indicator.
        lines: For each fold a, the logarithm of an error in the unit of the target, and b of each indicator.

    Source: Papadopoulos, Vovk and Gammerman 2011, "Regression Conformal Prediction with Nearest Neighbours"
    (scores relative to an expected error); Cortes-Ciriano and Bender 2019, "Deep Confidence" (expected errors
    of molecules from the spread of an ensemble). The fit on out-of-fold rows is ours.
    """

    names: tuple[str, ...]
    offsets: tuple[float, ...]
    centers: tuple[float, ...]
    spreads: tuple[float, ...]
    lines: tuple[tuple[float, ...], ...]

    @classmethod
    def fit(
        cls, indicators: Mapping[str, np.ndarray], errors: np.ndarray, folds: np.ndarray
    ) -> tuple[Self, np.ndarray]:
        """Fit the expected error for each fold to the rows of the other folds.

        Args:
            indicators: Indicators of the n held-out rows, not negative, float [n] each. Those that do not
                vary are left out.
            errors: Absolute errors of these rows, float64 [n].
            folds: Fold of each row, int [n], from 0 without gaps; at least two.

        Returns:
            The fitted scale, and the expected error of each row by the line of its fold, float64 [n].
        """
        offsets = {name: OFFSET * float(np.mean(values)) for name, values in indicators.items()}
        logs = {
            name: np.log(np.asarray(values, np.float64) + offsets[name])
            for name, values in indicators.items()
            if np.ptp(values) > SMALLEST * np.abs(values).max()
        }
        names = tuple(logs)
        centers = tuple(float(values.mean()) for values in logs.values())
        spreads = tuple(float(values.std()) for values in logs.values())
        unfitted = cls(names, tuple(offsets[name] for name in names), centers, spreads, ())
        columns = unfitted._columns(indicators, (len(errors),))
        lines = [_fit_line(columns[folds != fold], errors[folds != fold]) for fold in range(folds.max() + 1)]
        fitted = replace(unfitted, lines=tuple(tuple(line.tolist()) for line in lines))
        return fitted, fitted._expected(columns, np.array(lines)[folds])

    def expect(self, indicators: Mapping[str, np.ndarray]) -> np.ndarray:
        """Compute the expected error of m rows by each of P models.

        Args:
            indicators: Indicators of the rows for each model, float [P, m] each; more than `names`
                may be given. P is a multiple of K; the first P / K models belong to the first fold.

        Returns:
            Expected absolute errors in the unit of the target, float64 [P, m].
        """
        shape = np.shape(next(iter(indicators.values())))
        lines = np.repeat(self.lines, shape[0] // len(self.lines), axis=0)
        return self._expected(self._columns(indicators, shape), lines[:, None])

    def _columns(self, indicators: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        """Return one and the standardized logarithms, float64 [..., 1 + q]."""
        columns = [np.ones(shape)]
        for name, offset, center, spread in zip(
            self.names, self.offsets, self.centers, self.spreads, strict=True
        ):
            scores = (np.log(np.asarray(indicators[name], np.float64) + offset) - center) / spread
            columns.append(np.clip(scores, -LIMIT, LIMIT))
        return np.stack(columns, axis=-1)

    @staticmethod
    def _expected(columns: np.ndarray, lines: np.ndarray) -> np.ndarray:
        return np.exp((columns * lines).sum(-1))

    def to_mapping(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "names": list(self.names),
            "offsets": list(self.offsets),
            "centers": list(self.centers),
            "spreads": list(self.spreads),
            "lines": [list(line) for line in self.lines],
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild a scale."""
        try:
            names = tuple(str(name) for name in mapping["names"])
            offsets, centers, spreads = (
                tuple(float(value) for value in mapping[key]) for key in ("offsets", "centers", "spreads")
            )
            lines = tuple(tuple(float(value) for value in line) for line in mapping["lines"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise MolsliceError(f"invalid scale of errors: {error}") from error
        sound = len(names) == len(offsets) == len(centers) == len(spreads) == len(set(names))
        sound = sound and len(lines) > 0 and {len(line) for line in lines} == {1 + len(names)}
        logarithms = np.array([*centers, *spreads, *(value for line in lines for value in line)])
        sound = (
            sound
            and bool(np.isfinite(offsets).all())
            and bool((np.abs(logarithms) < LARGEST_LOGARITHM).all())
        )
        if not sound or min((*offsets, *spreads), default=1.0) <= 0.0:
            raise MolsliceError(f"invalid scale of errors by {', '.join(names)}")
        return cls(names, offsets, centers, spreads, lines)


def _fit_line(columns: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Minimize sum(e + |error| exp(-e)) + ridge, e = columns @ line, which is convex: float64 [1 + q]."""
    from scipy.optimize import minimize

    start = np.zeros(columns.shape[1])
    mean = float(errors.mean())
    if mean <= 0.0:  # no errors at all
        return start
    relative = errors / mean

    def loss(line: np.ndarray) -> tuple[float, np.ndarray]:
        logs = columns @ line
        excess = relative * np.exp(-logs)
        slopes = np.concatenate([[0.0], line[1:]])
        value = float((logs + excess).sum() + 0.5 * RIDGE * (slopes**2).sum())
        return value, columns.T @ (1.0 - excess) + RIDGE * slopes

    bounds = [(-RANGE, RANGE), *[(0.0, RANGE)] * (len(start) - 1)]
    line = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    line[0] += np.log(mean)
    return line
