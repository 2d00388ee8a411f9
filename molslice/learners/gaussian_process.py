"""A Gaussian process on similarities of descriptors, fingerprint counts and embeddings."""

from collections.abc import Iterator, Mapping
from typing import Self

import numpy as np

from molslice.learners.base import Learner
from molslice.learners.features import Features, NormalScores
from molslice.learners.fold_averages import average_unseen, left_out
from molslice.learners.kernels import (
    fit_weights,
    min_max_kernel,
    rational_quadratic_kernel,
    solve,
    squared_distances,
)
from molslice.learners.standard import standardize
from molslice.types import MolsliceError

__all__ = ["GaussianProcess"]

SCALES = (0.25, 1.0, 4.0)  # of the rational quadratic kernels, in mean squared distances of training rows
EVIDENCE_ROWS = (300, 1_000)  # rows that choose the weights of the kernels, roughly and then finely
MAX_ROWS = 6_000  # rows of one model; time grows with the cube, memory with the square
MAX_POOL = 7_500  # rows from which the rows of all models are drawn
CHUNK_ROWS = 2_048


def draw_pool(values: np.ndarray, draw: np.random.Generator, *, classes: bool) -> np.ndarray:
    """Draw the rows that enter the process: all, or 7,500 in which the rarer class has up to half.

    Args:
        values: The targets of the n training rows, float64 [n].
        draw: Source of random numbers.
        classes: Whether the targets are classes, 0 and 1.

    Returns:
        The rows in ascending order, int [at most 7,500].
    """
    count = len(values)
    if count <= MAX_POOL:
        return np.arange(count)
    order = draw.permutation(count)
    if classes:
        ones = values[order] > 0.5
        rare = order[ones == (2 * ones.sum() <= count)][: MAX_POOL // 2]
        order = np.concatenate([rare, order[~np.isin(order, rare)]])
    return np.sort(order[:MAX_POOL])


class GaussianProcess(Learner):
    r"""Mean of a Gaussian process whose covariance is a weighted sum of kernels.

    The kernels are the MinMax kernel of fingerprint counts, and, for the normal scores of the descriptors and
    of the embedding each, rational quadratic kernels of three scales and a linear one. The weights and the
    noise maximize the evidence of at most 1,000 training rows of the model. Classes are regressed as 0 and 1;
    the calibration of their scores makes up for a pool with a larger share of the rarer class. A row that
    counts w times has 1 / w of the variance of the noise.

    Source: Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning", eq. 2.25 and 5.8.

    Args:
        rows: Training rows, at most 7,500, with descriptors and embedding as normal scores.
        scores: Quantiles of the descriptors, and of the embedding if there is one.
        scales: Mean squared distance of training rows, for the descriptors and the embedding.
        coefficients: float64 [kernels, n, models]; kernel k contributes `K_k @ coefficients[k]`.
        offsets: Mean of the target of each model, float64 [models].
    """

    indicators = ("novelty",)

    def __init__(
        self,
        rows: Features,
        scores: tuple[NormalScores, ...],
        scales: np.ndarray,
        coefficients: np.ndarray,
        offsets: np.ndarray,
    ) -> None:
        self.rows, self.scores, self.scales = rows, scores, scales
        self.coefficients, self.offsets = coefficients, offsets

    @classmethod
    def fit(
        cls,
        features: Features,
        values: np.ndarray,
        folds: np.ndarray,
        *,
        classes: bool,
        seed: int,
        weights: np.ndarray | None = None,
    ) -> tuple[Self, np.ndarray]:
        """Fit one process for each model; see `Learner.fit`."""
        # the classes 0 and 1 are regressed
        scores = tuple(NormalScores.of(block) for block in _scored_parts(features))
        everything = _scored(features, scores)
        scales = np.array([_mean_distance(block) for block in _scored_parts(everything)])
        masks = left_out(folds)
        draw = np.random.default_rng(seed)
        pool = draw_pool(values, draw, classes=classes)
        rows, values, held_out = everything[pool], values[pool], masks[:, pool]
        kernels = np.empty((1 + len(scores) * (len(SCALES) + 1), len(pool), len(pool)), np.float32)
        for place, kernel in enumerate(_kernels(rows, rows, scales)):
            kernels[place] = kernel
        coefficients = np.zeros((len(kernels), len(values), len(masks)))
        offsets, predicted = np.zeros(len(masks)), np.zeros(masks.shape)
        for number, held in enumerate(map(np.flatnonzero, held_out)):
            used = draw.permutation(np.flatnonzero(~held_out[number]))[:MAX_ROWS]
            standardized, offsets[number], spread = standardize(values[used])
            shares, few = None, rows[used[: EVIDENCE_ROWS[-1]]]
            exact = np.stack(list(_kernels(few, few, scales)))  # those in float32 are indefinite
            for size in EVIDENCE_ROWS:
                block = np.ascontiguousarray(exact[:, :size, :size])
                shares = fit_weights(block, standardized[: block.shape[1]], start=shares)
            assert shares is not None
            covariance = np.zeros((len(used), len(used)))
            for share, kernel in zip(shares, kernels, strict=False):
                covariance += share * kernel[used[:, None], used]
            noise = shares[-1] if weights is None else shares[-1] / weights[pool[used]]
            solved = solve(covariance, noise, standardized) * spread
            coefficients[:, used, number] = shares[:-1, None] * solved
            predicted[number, pool[held]] = offsets[number]
            for kernel, coefficient in zip(kernels, coefficients[:, used, number], strict=True):
                predicted[number, pool[held]] += kernel[held[:, None], used] @ coefficient
        learner = cls(rows, scores, scales, coefficients, offsets)
        others = np.setdiff1d(np.arange(masks.shape[1]), pool)
        predicted[:, others] = learner._predict_scored(everything[others])
        return learner, average_unseen(predicted, folds)

    def predict(self, features: Features) -> np.ndarray:
        """Predict with each process; see `Learner.predict`."""
        return self._predict_scored(self._checked(features))

    def predict_with_indicators(self, features: Features) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Predict; the indicator `novelty` is 1 minus the largest MinMax kernel with a row of the process."""
        novelty = np.empty((len(self.offsets), len(features)))
        return self._predict_scored(self._checked(features), novelty), {"novelty": novelty}

    def _checked(self, features: Features) -> Features:
        """Return the features with normal scores.

        Raises:
            MolsliceError: The process was fitted on other features.
        """
        expected = [array.quantiles.shape[1] for array in self.scores]
        given = [array.shape[1] for array in _scored_parts(features)]
        if given != expected or features.counts.shape[1] != self.rows.counts.shape[1]:
            raise MolsliceError(f"the Gaussian process takes {expected} features, got {given}")
        return _scored(features, self.scores)

    def _predict_scored(self, features: Features, novelty: np.ndarray | None = None) -> np.ndarray:
        """Predict rows with normal scores, and write the indicator into `novelty` [models, n] if given."""
        result = np.empty((len(self.offsets), len(features)))
        used = (self.coefficients != 0.0).any(0)  # rows of each process, [rows, models]
        for start in range(0, len(features), CHUNK_ROWS):
            chunk = slice(start, start + CHUNK_ROWS)
            result[:, chunk] = self.offsets[:, None]
            kernels = _kernels(features[chunk], self.rows, self.scales)
            for place, (kernel, coefficients) in enumerate(zip(kernels, self.coefficients, strict=True)):
                result[:, chunk] += (kernel @ coefficients).T
                if novelty is not None and place == 0:
                    for number, is_used in enumerate(used.T):
                        novelty[number, chunk] = 1.0 - kernel[:, is_used].max(1, initial=0.0)
        return result

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the training rows, quantiles and coefficients; see `Learner.arrays`."""
        arrays = {
            "descriptors": self.rows.descriptors,
            "counts": self.rows.counts,
            "scales": self.scales,
            "coefficients": self.coefficients,
            "offsets": self.offsets,
        }
        arrays |= {f"quantiles_{i}": transform.quantiles for i, transform in enumerate(self.scores)}
        if self.rows.embedding is not None:
            arrays["embedding"] = self.rows.embedding
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild the learner; see `Learner.from_arrays`."""
        try:
            rows = Features(arrays["descriptors"], arrays["counts"], arrays.get("embedding"))
            parts = len(_scored_parts(rows))
            scores = tuple(NormalScores(arrays[f"quantiles_{i}"]) for i in range(parts))
            learner = cls(rows, scores, arrays["scales"], arrays["coefficients"], arrays["offsets"])
        except KeyError as error:
            raise MolsliceError(f"the arrays do not describe a Gaussian process: no {error}") from error
        kernels = 1 + parts * (len(SCALES) + 1)
        columns = [array.shape[1] for array in _scored_parts(rows)]
        sound = learner.coefficients.shape == (kernels, len(rows), len(learner.offsets))
        sound = sound and learner.scales.shape == (parts,)
        sound = sound and [array.quantiles.shape[-1] for array in scores] == columns
        sound = sound and all(
            array.dtype.kind == ("u" if name == "counts" else "f") for name, array in arrays.items()
        )
        if not sound or not all(np.isfinite(array).all() for array in arrays.values()):
            raise MolsliceError("the arrays do not describe a Gaussian process")
        return learner


def stored_bytes(features: Features, rows: int) -> int:
    """Return how many bytes a process at least stores that is fitted to so many rows like these."""
    columns = sum(array.shape[1] for array in _scored_parts(features))  # as float64
    return min(rows, MAX_POOL) * (8 * columns + features.counts.shape[1])


def _scored(features: Features, scores: tuple[NormalScores, ...]) -> Features:
    embedding = None if features.embedding is None else scores[1](features.embedding)
    return Features(scores[0](features.descriptors), features.counts, embedding)


def _scored_parts(rows: Features) -> list[np.ndarray]:
    return [array for array in (rows.descriptors, rows.embedding) if array is not None]


def _mean_distance(rows: np.ndarray) -> float:
    """Return the mean squared distance of two rows, drawn independently; 1 if all rows are equal."""
    return float(2.0 * rows.var(0).sum()) or 1.0


def _kernels(left: Features, right: Features, scales: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the kernels one by one, because together they take much memory."""
    yield min_max_kernel(left.counts, right.counts)
    for one, other, scale in zip(_scored_parts(left), _scored_parts(right), scales, strict=True):
        distances = squared_distances(one, other)
        for factor in SCALES:
            yield rational_quadratic_kernel(distances, factor * scale)
        yield (one @ other.T) * (2.0 / scale)
