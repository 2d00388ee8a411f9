"""The distribution of the measured value of a new row, of which conformal intervals are the quantiles.

The n held-out rows stand for 2 n equally likely values of a new row x, as in `conformal.intervals`: a row
with score S of fold k for f_k(x) - S s_k(x) and f_k(x) + S s_k(x). Two more values, one at each end of the
line, stand for what no held-out row has shown. The distribution function of these 2 n + 2 values is
(1 - level) / 2 at the lower end of an interval and (1 + level) / 2 at the upper one, if (n + 1) level is a
whole number and the ends of different folds are in order, as they are for all but the narrowest intervals.

The assumption beside the one of the intervals is that errors of either sign are equally likely.
"""

from collections.abc import Iterator

import numpy as np


def probability_below(
    limit: float, predictions: np.ndarray, scales: np.ndarray, scores: np.ndarray, folds: np.ndarray
) -> np.ndarray:
    """Compute the probability that the value of each of m new rows is below a limit.

    Args:
        limit: The limit; it may be infinite.
        predictions: Prediction of each row by the model of each of K folds, float [K, m].
        scales: Scale of the error of each row by each fold, positive, float [K, m].
        scores: |truth - prediction| / scale of the n held-out rows, float [n].
        folds: Fold of each held-out row, int [n], from 0 to K - 1.

    Returns:
        float64 [m], from 1 / (2 n + 2) to 1 - 1 / (2 n + 2) for a finite limit.
    """
    if np.isinf(limit):
        return np.full(predictions.shape[1], float(limit > 0))
    below = np.ones(predictions.shape[1])  # the value at the lower end of the line
    for distances, _, of_fold in _by_fold(limit, predictions, scales, scores, folds):
        below += np.searchsorted(of_fold, distances, side="right")  # f + S s <= limit
        below += len(of_fold) - np.searchsorted(of_fold, -distances, side="right")  # f - S s < limit
    return below / (2 * len(scores) + 2)


def expected_excess(
    limit: float, predictions: np.ndarray, scales: np.ndarray, scores: np.ndarray, folds: np.ndarray
) -> np.ndarray:
    """Compute the expected value of max(value - limit, 0) of m new rows, float64 [m].

    The two values at the ends of the line are left out. The arguments are as in `probability_below`, with a
    finite limit.
    """
    total = np.zeros(predictions.shape[1])
    for distances, sizes, of_fold in _by_fold(limit, predictions, scales, scores, folds):
        sums = np.concatenate([[0.0], np.cumsum(of_fold)])
        # f + S s > limit
        first = np.searchsorted(of_fold, distances, side="right")
        total += sizes * (sums[-1] - sums[first] - (len(of_fold) - first) * distances)
        # f - S s > limit
        last = np.searchsorted(of_fold, -distances, side="left")
        total += sizes * (-last * distances - sums[last])
    return total / (2 * len(scores))


def _by_fold(
    limit: float, predictions: np.ndarray, scales: np.ndarray, scores: np.ndarray, folds: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield of each fold the distances from the predictions to the limit in scales, the scales, the scores.

    The scores are sorted.
    """
    for fold, (centers, sizes) in enumerate(zip(predictions, scales, strict=True)):
        sizes = np.asarray(sizes, np.float64)
        yield (limit - np.asarray(centers, np.float64)) / sizes, sizes, np.sort(scores[folds == fold])
