"""A Gaussian process on similarities of descriptors, fingerprint counts and embeddings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from molslice.learners.base import Learner
from molslice.learners.features import Features, NormalScores
from molslice.learners.fold_averages import average_unseen, left_out
from molslice.learners.labels import Labels
from molslice.learners.similarities import (
    LEAST_NOISE,
    PRIOR,
    fit_labels,
    measure,
    min_max_kernel,
    predictive_spread,
    rational_quadratic_kernel,
    solve,
    squared_distances,
)
from molslice.types import MolsliceError

SCALES = (0.25, 1.0, 4.0)  # of the rational quadratic kernels, in mean squared distances of training rows
EVIDENCE_ROWS = (300, 1_000)  # rows that choose the weights of the kernels, roughly and then finely
KERNELS = ("all", "counts", "scores")  # which kernels are in the sum; conditions always have theirs
MAX_ROWS = 6_000  # rows of one model; time grows with the cube, memory with the square
MAX_POOL = 7_500  # rows from which the rows of all models are drawn
CHUNK_ROWS = 2_048
MAX_COUNTS = 1 << 16  # bins of a fingerprint


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
    noise maximize the evidence of at most 1,000 training rows of the model. The likelihood of a limit is the
    probability of the values beyond it; see `molslice.learners.truncated`. Classes are regressed as 0 and 1;
    the calibration of their scores makes up for a pool with a larger share of the rarer class.

    Conditions have an effect that is the same for all molecules, and one that is alike for similar molecules.
    The first has a rational quadratic and a linear kernel of the conditions, the second the products of both
    with a rational quadratic kernel of the descriptors.

    Source: Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning", eq. 2.25 and 5.8; Bonilla,
    Chai and Williams 2007, "Multi-task Gaussian Process Prediction", eq. 1 (products of kernels).

    Args:
        rows: Training rows, at most 7,500, with descriptors and embedding as normal scores.
        scores: Quantiles of the descriptors, and of the embedding if there is one.
        scales: Mean squared distance of training rows, for the descriptors, the embedding and the conditions.
        weights: Weight of each kernel, float64 [kernels, models].
        solved: Inverse covariance times the target, float64 [n, models]; 0 for rows that a model has not
            seen. Kernel k contributes `weights[k] * (K_k @ solved)`.
        offsets: Mean of the target of each model, float64 [models].
    """

    label = "a Gaussian process"
    indicators = ("novelty",)

    def __init__(
        self,
        rows: Features,
        scores: tuple[NormalScores, ...],
        scales: np.ndarray,
        weights: np.ndarray,
        solved: np.ndarray,
        offsets: np.ndarray,
    ) -> None:
        self.rows, self.scores, self.scales = rows, scores, scales
        self.weights, self.solved, self.offsets = weights, solved, offsets
        self._is_rounded = all(_is_short(block) for block in _scored_parts(rows))

    @classmethod
    def fit(
        cls,
        features: Features,
        labels: Labels,
        folds: np.ndarray,
        *,
        classes: bool,
        seed: int,
        **settings: Any,  # noqa: ANN401
    ) -> tuple[Self, np.ndarray]:
        """Fit one process for each model; see `Learner.fit`."""
        learner, unseen, _ = cls.fit_and_complete(
            features, labels, folds, classes=classes, seed=seed, **settings
        )
        return learner, unseen

    @classmethod
    def choices(cls, *, classes: bool) -> Mapping[str, Sequence[Any]]:  # noqa: ARG003
        """Return values of the settings; see `Learner.choices`, and `fit_weights` for the numbers."""
        return {
            "kernels": KERNELS,
            "prior": (PRIOR, 0.005, 0.5),
            "least_noise": (LEAST_NOISE, 0.01, 0.05, 0.2),
        }

    @classmethod
    def fit_and_complete(
        cls,
        features: Features,
        labels: Labels,
        folds: np.ndarray,
        *,
        classes: bool,
        seed: int,
        kernels: str = KERNELS[0],
        prior: float = PRIOR,
        least_noise: float = LEAST_NOISE,
    ) -> tuple[Self, np.ndarray, Labels]:
        """Fit one process for each model, and complete the labels for other learners.

        Returns:
            The result of `fit`, and the labels with `completed` and `spreads`, if there are limits or
            standard errors.
        """
        # the classes 0 and 1 are regressed
        scores = tuple(NormalScores.of(block) for block in _scored_parts(features))
        scored = _rounded(_scored(features, scores))
        blocks = [*_scored_parts(scored), *_conditions_of(scored)]
        scales = np.array([_mean_distance(block) for block in blocks])
        masks = left_out(folds)
        draw = np.random.default_rng(seed)
        pool = draw_pool(labels.values, draw, classes=classes)
        rows, of_pool, held_out = scored[pool], labels[pool], masks[:, pool]
        used_kernels = _used_kernels(rows, kernels)
        matrices = np.empty((len(used_kernels), len(pool), len(pool)), np.float32)
        for place, kernel in enumerate(_some_kernels(rows, scales, used_kernels)):
            matrices[place] = kernel
        all_weights = np.zeros((_count_kernels(rows), len(masks)))
        all_solved = np.zeros((len(pool), len(masks)))
        offsets, predicted = np.zeros(len(masks)), np.zeros(masks.shape)
        expected, spreads = np.full(masks.shape, np.nan), np.ones(len(masks))
        for number, held in enumerate(map(np.flatnonzero, held_out)):
            used = draw.permutation(np.flatnonzero(~held_out[number]))[:MAX_ROWS]
            learned, offsets[number], spread = of_pool[used].standardized()
            few = rows[used[: EVIDENCE_ROWS[-1]]]
            exact = np.stack([*_some_kernels(few, scales, used_kernels)])  # those in float32 are indefinite
            weights = fit_labels(exact, learned, EVIDENCE_ROWS, prior=prior, least_noise=least_noise)
            covariance = np.zeros((len(used), len(used)))
            for weight, kernel in zip(weights, matrices, strict=False):
                covariance += weight * kernel[used[:, None], used]
            measured, completed = measure(learned, weights[-1], covariance)
            noise = measured.shares * weights[-1] + measured.extra
            if labels.needs_process:
                expected[number, pool[used]] = completed * spread + offsets[number]
                spreads[number] = spread * predictive_spread(exact, weights, learned)
            solved = solve(covariance, noise, measured.values) * spread
            all_weights[used_kernels, number], all_solved[used, number] = weights[:-1], solved
            predicted[number, pool[held]] = offsets[number]
            for kernel, weight in zip(matrices, weights[:-1], strict=True):
                predicted[number, pool[held]] += kernel[held[:, None], used] @ (weight * solved)
        learner = cls(rows, scores, scales, all_weights, all_solved, offsets)
        others = np.setdiff1d(np.arange(masks.shape[1]), pool)
        predicted[:, others] = learner._predict_scored(scored[others])
        unseen = average_unseen(predicted, folds)
        if not labels.needs_process:
            return learner, unseen, labels
        return learner, unseen, _completed(labels, expected, spreads, learner._predict_scored(scored))

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
        if self.rows.embedding is None:
            features = features.without_embedding()
        expected = [array.quantiles.shape[1] for array in self.scores]
        expected += [array.shape[1] for array in _conditions_of(self.rows)]
        given = [array.shape[1] for array in (*_scored_parts(features), *_conditions_of(features))]
        if given != expected or features.counts.shape[1] != self.rows.counts.shape[1]:
            raise MolsliceError(f"the Gaussian process takes {expected} features, got {given}")
        scored = _scored(features, self.scores)
        return _rounded(scored) if self._is_rounded else scored

    def _predict_scored(self, features: Features, novelty: np.ndarray | None = None) -> np.ndarray:
        """Predict rows with normal scores, and write the indicator into `novelty` [models, n] if given."""
        result = np.empty((len(self.offsets), len(features)))
        used = self.solved != 0.0  # rows of each process, [rows, models]
        for start in range(0, len(features), CHUNK_ROWS):
            chunk = slice(start, start + CHUNK_ROWS)
            result[:, chunk] = self.offsets[:, None]
            kernels = _kernels(features[chunk], self.rows, self.scales)
            for place, (kernel, weights) in enumerate(zip(kernels, self.weights, strict=True)):
                result[:, chunk] += (weights * (kernel @ self.solved)).T
                if novelty is not None and place == 0:
                    for number, is_used in enumerate(used.T):
                        novelty[number, chunk] = 1.0 - kernel[:, is_used].max(1, initial=0.0)
        return result

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the training rows, quantiles and weights; see `Learner.arrays`."""
        rows, columns = self.rows.counts.nonzero()
        arrays = {
            "descriptors": _shortest(self.rows.descriptors),
            "count_sizes": np.bincount(rows, minlength=len(self.rows)).astype(np.uint16),
            "count_columns": columns.astype(np.uint16),
            "count_values": self.rows.counts[rows, columns],
            "count_width": np.array([self.rows.counts.shape[1]], np.int64),
            "scales": self.scales,
            "weights": self.weights,
            "solved": self.solved,
            "offsets": self.offsets,
        }
        arrays |= {f"quantiles_{i}": transform.quantiles for i, transform in enumerate(self.scores)}
        if self.rows.embedding is not None:
            arrays["embedding"] = _shortest(self.rows.embedding)
        if self.rows.conditions is not None:
            arrays["conditions"] = self.rows.conditions
        return arrays

    @classmethod
    def _rebuild(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        names = [name for name in ("descriptors", "embedding") if name in arrays]
        blocks = {name: arrays[name].astype(np.float64) for name in names}
        rows = Features(counts=_read_counts(arrays), conditions=arrays.get("conditions"), **blocks)
        scores = tuple(NormalScores(arrays[f"quantiles_{i}"]) for i in range(len(blocks)))
        weights, solved = _read_weights(arrays)
        learner = cls(rows, scores, arrays["scales"], weights, solved, arrays["offsets"])
        columns, models = [array.shape[1] for array in _scored_parts(rows)], len(learner.offsets)
        sound = weights.shape == (_count_kernels(rows), models) and solved.shape == (len(rows), models)
        sound = sound and learner.scales.shape == (len(blocks) + len(_conditions_of(rows)),)
        sound = sound and [array.quantiles.shape[-1] for array in scores] == columns
        floats = [array for name, array in arrays.items() if not name.startswith("count")]
        if not sound or not all(array.dtype.kind == "f" and np.isfinite(array).all() for array in floats):
            raise ValueError("their shapes or types do not fit")
        return learner


def _read_counts(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the counts of the training rows, uint8 [n, P], from `GaussianProcess.arrays`.

    Raises:
        KeyError: An array is missing.
        ValueError: The arrays have other types or sizes.
    """
    if "counts" in arrays:  # of earlier versions
        if arrays["counts"].dtype != np.uint8:
            raise ValueError("the counts are not bytes")
        return arrays["counts"]
    sizes, columns, values = (arrays[f"count_{name}"] for name in ("sizes", "columns", "values"))
    width = arrays["count_width"]
    if values.dtype != np.uint8 or any(
        array.dtype.kind != "u" or array.ndim != 1 for array in (sizes, columns)
    ):
        raise ValueError("the counts are not whole numbers")
    if width.shape != (1,) or not 0 <= int(width[0]) <= MAX_COUNTS:
        raise ValueError("the counts have an invalid width")
    if len(sizes) > MAX_POOL or not sizes.sum(dtype=np.int64) == columns.size == values.size:
        raise ValueError("the counts have other sizes")
    counts = np.zeros((len(sizes), int(width[0])), np.uint8)
    counts[np.repeat(np.arange(len(sizes)), sizes), columns] = values
    return counts


def _read_weights(arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return `weights` and `solved`; earlier versions stored their products, [kernels, n, models].

    Raises:
        KeyError: An array is missing.
        ValueError: The products have another number of axes.
    """
    if "coefficients" not in arrays:
        return arrays["weights"], arrays["solved"]
    products = arrays["coefficients"]
    if products.ndim != 3:
        raise ValueError("the coefficients do not have three axes")
    largest = np.abs(products).max(1).argmax(0)  # for each model, the kernel of the largest product
    solved = np.take_along_axis(products, largest[None, None], axis=0)[0]
    squares = (solved**2).sum(0)
    return (products * solved).sum(1) / np.where(squares > 0.0, squares, 1.0), solved


def _completed(labels: Labels, expected: np.ndarray, spreads: np.ndarray, predicted: np.ndarray) -> Labels:
    """Add `completed` and `spreads` to labels.

    Args:
        labels: The labels of n rows.
        expected: Expected value of the rows of each process, float64 [models, n]; NaN for others, which are
            completed by their predictions.
        spreads: See `Labels`.
        predicted: Prediction of each row by each process, float64 [models, n].
    """
    if labels.bounds is None:
        return replace(labels, spreads=spreads)
    others = np.stack([labels.expected(*row) for row in zip(predicted, spreads, strict=True)])
    completed = np.where(np.isnan(expected) | ~labels.limited, others, expected)
    return replace(labels, completed=completed, spreads=spreads)


def stored_bytes(features: Features, rows: int) -> int:
    """Return how many bytes a process at least stores that is fitted to so many rows like these."""
    stored = 2 * sum(array.shape[1] for array in _scored_parts(features))  # in float16
    return min(rows, MAX_POOL) * (stored + 8 * sum(array.shape[1] for array in _conditions_of(features)))


def _scored(features: Features, scores: tuple[NormalScores, ...]) -> Features:
    embedding = None if features.embedding is None else scores[1](features.embedding)
    return Features(scores[0](features.descriptors), features.counts, embedding, features.conditions)


def _rounded(rows: Features) -> Features:
    """Round scores to float16, as which the training rows are stored."""
    blocks = [array.astype(np.float16).astype(np.float64) for array in _scored_parts(rows)]
    return Features(blocks[0], rows.counts, next(iter(blocks[1:]), None), rows.conditions)


def _is_short(scores: np.ndarray) -> bool:
    """Return whether float16 holds the scores exactly; earlier versions did not round them."""
    return bool((scores == scores.astype(np.float16)).all())


def _shortest(scores: np.ndarray) -> np.ndarray:
    return scores.astype(np.float16) if _is_short(scores) else scores


def _scored_parts(rows: Features) -> list[np.ndarray]:
    return [array for array in (rows.descriptors, rows.embedding) if array is not None]


def _conditions_of(rows: Features) -> list[np.ndarray]:
    return [] if rows.conditions is None else [rows.conditions]


def _count_kernels(rows: Features) -> int:
    return 1 + len(_scored_parts(rows)) * (len(SCALES) + 1) + 4 * len(_conditions_of(rows))


def _used_kernels(rows: Features, kernels: str) -> np.ndarray:
    """Return the numbers of the kernels that one of `KERNELS` stands for, int [kernels]."""
    every = np.arange(_count_kernels(rows))
    of_conditions = every >= len(every) - 4 * len(_conditions_of(rows))
    counted = every == 0
    return every[of_conditions | {"all": True, "counts": counted, "scores": ~counted}[kernels]]


def _some_kernels(rows: Features, scales: np.ndarray, numbers: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the kernels of some numbers of rows with themselves."""
    return (kernel for number, kernel in enumerate(_kernels(rows, rows, scales)) if number in numbers)


def _mean_distance(rows: np.ndarray) -> float:
    """Return the mean squared distance of two rows, drawn independently; 1 if all rows are equal."""
    return float(2.0 * rows.var(0).sum()) or 1.0


def _kernels(left: Features, right: Features, scales: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the kernels one by one, because together they take much memory."""
    yield min_max_kernel(left.counts, right.counts)
    similar = None  # of the descriptors, at their mean distance
    for one, other, scale in zip(_scored_parts(left), _scored_parts(right), scales, strict=False):
        distances = squared_distances(one, other)
        for factor in SCALES:
            kernel = rational_quadratic_kernel(distances, factor * scale)
            if factor == 1.0 and similar is None and left.conditions is not None:
                similar = kernel
            yield kernel
        yield (one @ other.T) * (2.0 / scale)
    for one, other in zip(_conditions_of(left), _conditions_of(right), strict=True):
        for kernel in (
            rational_quadratic_kernel(squared_distances(one, other), scales[-1]),
            (one @ other.T) * (2.0 / scales[-1]),
        ):
            yield kernel
            yield kernel * similar
