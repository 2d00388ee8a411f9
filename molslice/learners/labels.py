"""What learners are fitted to: measured values, and what is known about how precise they are."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from molslice.learners.standardizing import standardize
from molslice.learners.truncated import truncated_moments


@dataclass(frozen=True, slots=True)
class Labels:
    """The values of one target in n rows.

    Some values may be limits: of a value above 10, only the lower bound 10 is known.

    Attributes:
        values: Values, or classes 0 and 1, float64 [n]; NaN for a limit.
        bounds: Least and largest possible value, float64 [2, n], infinite where there is no bound and equal
            to `values` where these are known; None if there are no limits.
        weights: How much a row counts, positive, float64 [n]; None if all rows count alike.
        noise: Standard error of each value, float64 [n]; None if it is not known.
        completed: For each of M models, `values` with the limits replaced by the expected value, given the
            rows that the model may see, float64 [M, n]; None if there are no limits. `GaussianProcess`
            computes them.
        spreads: For each model, the standard deviation of its errors for new rows without their standard
            errors, float64 [M]; None if neither `bounds` nor `noise` is given. `GaussianProcess` computes
            them.
    """

    values: np.ndarray
    bounds: np.ndarray | None = None
    weights: np.ndarray | None = None
    noise: np.ndarray | None = None
    completed: np.ndarray | None = None
    spreads: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: np.ndarray | slice) -> Self:
        return replace(
            self,
            values=self.values[rows],
            bounds=None if self.bounds is None else self.bounds[:, rows],
            weights=None if self.weights is None else self.weights[rows],
            noise=None if self.noise is None else self.noise[rows],
            completed=None if self.completed is None else self.completed[:, rows],
        )

    @property
    def is_plain(self) -> bool:
        """Whether all values are exact and count alike."""
        return self.bounds is None and self.weights is None and self.noise is None

    @property
    def needs_process(self) -> bool:
        """Whether `GaussianProcess` must first compute what other learners need."""
        return (self.bounds is not None or self.noise is not None) and self.spreads is None

    @property
    def limited(self) -> np.ndarray:
        """Whether a row is a limit, bool [n]."""
        return np.isnan(self.values)

    @property
    def known(self) -> np.ndarray:
        """Whether a row has a value or a finite bound, bool [n]."""
        finite = np.isfinite(self.values[None] if self.bounds is None else self.bounds)
        return np.asarray(finite.any(0))

    def of_model(self, number: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return what a model learns that has no likelihood of limits, such as trees.

        Args:
            number: The number of the model.
            rows: The rows that it is fitted to, int [k] or bool [n].

        Returns:
            Values without limits, float64 [k], and weights whose mean is 1, float64 [k]; None if the rows
            count alike.
        """
        assert not self.needs_process, "the Gaussian process completes limits and is fitted first"
        values = (self.values if self.completed is None else self.completed[number])[rows]
        weights = self.row_weights(0.0 if self.spreads is None else float(self.spreads[number]))
        if weights is None:
            return values, None
        return values, weights[rows] / weights[rows].mean()

    def row_weights(self, spread: float) -> np.ndarray | None:
        """Return weight / (spread^2 + noise^2) of each row, float64 [n]; None if the rows count alike.

        Args:
            spread: Standard deviation of the errors of a model, without the errors of the measurements.

        Source: Aitken 1936, "On Least Squares and Linear Combination of Observations" (inverse variances).
        """
        if self.noise is None:
            return self.weights
        weights = 1.0 / (spread**2 + self.noise**2)
        return weights if self.weights is None else weights * self.weights

    def nearest(self, predicted: np.ndarray) -> np.ndarray:
        """Return the possible values that are nearest to predictions, float64 [n].

        A limit that is met thus has no error, and the error of another one is the distance to the limit.
        """
        return self.values if self.bounds is None else np.clip(predicted, *self.bounds)

    def standardized(self) -> tuple[Self, float, float]:
        """Return the labels in standard deviations from the mean of the known values; see `standardize`."""
        known = self.values if self.bounds is None else self.values[~self.limited]
        values, mean, spread = standardize(known)
        if self.is_plain:
            return replace(self, values=values), mean, spread
        every = np.full(len(self), np.nan)
        every[~self.limited] = values
        bounds = None
        if self.bounds is not None:
            bounds = np.where(self.limited, (self.bounds - mean) / spread, every)
        noise = None if self.noise is None else self.noise / spread
        return replace(self, values=every, bounds=bounds, noise=noise), mean, spread

    def expected(self, mean: np.ndarray, deviation: np.ndarray | float) -> np.ndarray:
        """Replace limits by their expectation for a normal distribution of what was measured.

        Args:
            mean: Mean of each row, float64 [n].
            deviation: Standard deviation of each row, float64 [n].

        Returns:
            The values, float64 [n].
        """
        if self.bounds is None:
            return self.values
        shift, _ = truncated_moments(*((self.bounds - mean) / deviation))
        return np.where(self.limited, np.clip(mean + deviation * shift, *self.bounds), self.values)
