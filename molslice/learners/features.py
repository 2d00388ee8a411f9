"""The fixed features of molecules that learners take."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from molslice.types import MolsliceError

NUM_QUANTILES = 200
SCORE_TAIL = 0.5 * (1.0 - 0.9973002039367398)  # P(z > 3) of a normal score z


@dataclass(frozen=True, slots=True)
class Features:
    """Features of n molecules.

    Attributes:
        descriptors: float64 [n, D], NaN where a descriptor is not defined.
        counts: Counts of hashed fingerprint bits, uint8 [n, P].
        embedding: States of a trained encoder, float32 [n, E]; None without an encoder.
        conditions: Conditions of the rows, such as the temperature, and predicted related targets, of
            variance one and without missing values, float64 [n, C]; None without any.
    """

    descriptors: np.ndarray
    counts: np.ndarray
    embedding: np.ndarray | None = None
    conditions: np.ndarray | None = None

    def __post_init__(self) -> None:
        sizes = {len(array) for array in self._parts()}
        if len(sizes) != 1 or any(array.ndim != 2 for array in self._parts()):
            shapes = ", ".join(str(list(array.shape)) for array in self._parts())
            raise MolsliceError(f"features must have the same number of rows and two axes, got {shapes}")

    def __len__(self) -> int:
        return len(self.descriptors)

    def __getitem__(self, rows: np.ndarray | slice) -> Self:
        added = (None if array is None else array[rows] for array in (self.embedding, self.conditions))
        return type(self)(self.descriptors[rows], self.counts[rows], *added)

    def joined(self, other: Self, *, symmetric: bool) -> Self:
        """Return features of pairs: of the first molecules, then of the second.

        Args:
            other: Features of the second molecules.
            symmetric: Whether to take the sum and the absolute difference instead, which are the same for
                swapped molecules. The larger counts are limited to 255.
        """

        def join(first: np.ndarray, second: np.ndarray) -> np.ndarray:
            if not symmetric:
                return np.concatenate([first, second], axis=1)
            wide = (array.astype(np.int16) if array.dtype == np.uint8 else array for array in (first, second))
            one, two = wide
            both = np.concatenate([one + two, np.abs(one - two)], axis=1)
            return np.minimum(both, 255).astype(np.uint8) if first.dtype == np.uint8 else both

        embedding = None
        if self.embedding is not None and other.embedding is not None:
            embedding = join(self.embedding, other.embedding)
        descriptors, counts = join(self.descriptors, other.descriptors), join(self.counts, other.counts)
        return type(self)(descriptors, counts, embedding, self.conditions)

    def without_embedding(self) -> Self:
        """Return the other features."""
        return type(self)(self.descriptors, self.counts, None, self.conditions)

    def with_conditions(self, columns: Sequence[np.ndarray]) -> Self:
        """Return the features with more conditions, float64 [n] each."""
        blocks = [block for block in (self.conditions,) if block is not None]
        return replace(self, conditions=np.column_stack([*blocks, *columns]))

    def _parts(self) -> list[np.ndarray]:
        arrays = (self.descriptors, self.counts, self.embedding, self.conditions)
        return [array for array in arrays if array is not None]

    @property
    def width(self) -> int:
        """Number of columns of `matrix`."""
        return sum(array.shape[1] for array in self._parts())

    def size(self) -> np.ndarray:
        """Return the number of fragments that are counted in each molecule, float64 [n]."""
        return self.counts.sum(1, dtype=np.float64)

    def matrix(self) -> np.ndarray:
        """Return all features side by side, float64 [n, D + P + E + C], NaN where not defined."""
        return np.concatenate([array.astype(np.float64, copy=False) for array in self._parts()], axis=1)


class NormalScores:
    """Map each column to standard normal scores by its quantiles in the training rows.

    Columns with outliers, counts and heavy tails become comparable. A value that is not defined gets the
    score 0, the median. Scores are limited to three standard deviations.

    Args:
        quantiles: Quantiles of each column at evenly spaced probabilities [q, C], ascending.

    Source: the normal-output quantile transform of scikit-learn, with the mean of the interpolations from
    both sides at ties.
    """

    def __init__(self, quantiles: np.ndarray) -> None:
        self.quantiles = quantiles
        self._probabilities = np.linspace(0.0, 1.0, len(quantiles))

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """Compute the quantiles of `values` [n, C]; a column without any defined value is constant."""
        defined = np.where(np.isfinite(values), values, np.nan)
        empty = np.isnan(defined).all(0)
        defined[:, empty] = 0.0
        levels = np.linspace(0.0, 1.0, min(NUM_QUANTILES, max(len(values), 2)))
        return cls(np.maximum.accumulate(np.nanquantile(defined, levels, axis=0), axis=0))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the scores of `values` [n, C], float64 [n, C]."""
        from scipy.special import ndtri

        scores = np.zeros(values.shape)
        for column in range(values.shape[1]):
            known, quantiles = values[:, column], self.quantiles[:, column]
            above = np.interp(known, quantiles, self._probabilities)
            below = 1.0 - np.interp(-known, -quantiles[::-1], self._probabilities)
            scores[:, column] = (above + below) / 2
        # a new molecule may be far outside of the training range
        scores = ndtri(np.clip(scores, SCORE_TAIL, 1.0 - SCORE_TAIL))
        return np.where(np.isfinite(values), scores, 0.0)
