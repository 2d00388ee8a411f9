"""Split- and cross-conformal intervals and sets of classes.

A set of held-out rows is divided into folds. The model of a fold has not seen the rows of the fold. A new row
is predicted by the model of each fold. With one fold this is split-conformal prediction.

Source: Papadopoulos et al. 2002, "Inductive Confidence Machines for Regression" (split); Barber et al. 2021,
"Predictive Inference with the Jackknife+" (CV+); Vovk 2012, "Conditional Validity of Inductive Conformal
Predictors" (sets for each class).
"""

import math
from fractions import Fraction

import numpy as np

from molslice.errors import MolsliceError

CELLS = 1 << 22  # numbers of an array of new rows by held-out rows


def check_level(level: float) -> float:
    """Return a level as a number, if it is between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float | np.number) or not 0 < level < 1:
        raise MolsliceError(f"invalid interval {level!r}: give a probability between 0 and 1, such as 0.9")
    return float(level)


def quantile_rank(rows: int, level: float) -> int:
    """Return the rank from 1 of the score that bounds a new score: the ceiling of (rows + 1) level.

    It is larger than `rows` if there are too few rows.

    The level is taken as the decimal number that it is written as, so that 10 times 0.7 is 7.
    """
    return math.ceil((rows + 1) * Fraction(repr(float(level))))


def required_rows(level: float) -> int:
    """Return the smallest number of held-out rows for a level: 9 for 0.9, 19 for 0.95."""
    exact = Fraction(repr(float(level)))
    return math.ceil(exact / (1 - exact))


def check_rows(rows: int, level: float, what: str) -> None:
    """Refuse a level for which there are too few held-out rows; `what` says of what, for the message."""
    needed = required_rows(level)
    if rows < needed:
        raise MolsliceError(
            f"interval {level:g} needs {needed} calibration rows of {what}, there are {rows}; the largest "
            f"possible interval is {math.floor(1e4 * rows / (rows + 1)) / 1e4:g}"
        )


def intervals(
    predictions: np.ndarray,
    scales: np.ndarray,
    scores: np.ndarray,
    folds: np.ndarray,
    level: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the interval of each of m new rows.

    A held-out row i with score S of fold k stands for the values f_k(x) - S s_k(x) and f_k(x) + S s_k(x) of a
    new row x, where f_k is the prediction and s_k the scale of the model of fold k. The bounds are order
    statistics of these values. With one fold the interval is f(x) +- q s(x), with the
    `quantile_rank`-th smallest score q.

    Args:
        predictions: Prediction of each row by the model of each of K folds, float [K, m].
        scales: Scale of the error of each row by each fold, positive, float [K, m].
        scores: |truth - prediction| / scale of the n held-out rows, float [n]; enough of them for the level
            (`check_rows`).
        folds: Fold of each held-out row, int [n], from 0 to K - 1.
        level: The probability that an interval covers the truth. It is exact for one fold. For several folds
            and many rows about 2 level - 1 is guaranteed (theorem 4), and about `level` is usual.

    Returns:
        Lower and upper bounds, float64 [m] each, in the unit of `predictions`.
    """
    rank = quantile_rank(len(scores), level)
    predictions, scales = np.asarray(predictions, np.float64), np.asarray(scales, np.float64)
    if len(predictions) == 1:
        half = np.partition(scores, rank - 1)[rank - 1] * scales[0]
        return predictions[0] - half, predictions[0] + half
    rows = predictions.shape[1]
    lower, upper = np.empty(rows), np.empty(rows)
    step = max(1, CELLS // len(scores))
    for start in range(0, rows, step):
        chunk = slice(start, start + step)
        centers = predictions[:, chunk][folds]
        widths = scores[:, None] * scales[:, chunk][folds]
        upper[chunk] = np.partition(centers + widths, rank - 1, axis=0)[rank - 1]
        lower[chunk] = np.partition(centers - widths, len(scores) - rank, axis=0)[len(scores) - rank]
    return lower, upper


def class_sets(
    probabilities: np.ndarray,
    held_out: np.ndarray,
    labels: np.ndarray,
    folds: np.ndarray,
    level: float,
) -> np.ndarray:
    """Find the classes that each of m new rows may have.

    Each class has its own held-out rows, so that the sets cover each of the classes with the stated
    probability, also a rare one. A set may hold several classes, or none if the row is unlike all of them.

    Args:
        probabilities: Probability of class 1 of each row by the model of each of K folds, float [K, m]; of
            each of C classes, float [K, m, C], if there are more than two.
        held_out: The same probabilities of the n held-out rows, float [n] or [n, C].
        labels: Class of the held-out rows, from 0, [n]; enough of each class for the level (`check_rows`).
        folds: Fold of each held-out row, int [n].
        level: The probability that a set holds the true class.

    Returns:
        Whether the set has each class, bool [m, 2] or [m, C].
    """
    probabilities = np.asarray(probabilities, np.float64)
    # the lower the probability of the class, the stranger the row
    strange, known = (
        (-probabilities, -held_out)
        if held_out.ndim == 2
        else (np.stack([probabilities, -probabilities], axis=-1), np.stack([held_out, -held_out], axis=-1))
    )
    sets = np.zeros(strange.shape[1:], bool)
    for label in range(sets.shape[1]):
        of_class = labels == label
        count = int(of_class.sum())
        scores, new = known[of_class, label], strange[:, :, label]
        at_least = np.zeros(new.shape[1], np.int64)
        for fold in range(len(new)):
            of_fold = np.sort(scores[folds[of_class] == fold])
            at_least += len(of_fold) - np.searchsorted(of_fold, new[fold], side="left")
        # as strange as at least this many: the new score is at most the `quantile_rank`-th smallest
        sets[:, label] = at_least >= count - quantile_rank(count, level) + 1
    return sets
