"""How good stated uncertainties are: rank correlation, miscalibration area, errors of probabilities."""

from collections.abc import Sequence

import numpy as np


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Compute Spearman's rank correlation; tied values share their mean rank.

    Rows in which a value is not finite are left out.

    Returns:
        The correlation from -1 to 1; NaN for fewer than two rows or a constant.
    """
    known = np.isfinite(first) & np.isfinite(second)
    ranks = [_ranks(np.asarray(values)[known]) for values in (first, second)]
    centered = [rank - rank.mean() if len(rank) else rank for rank in ranks]
    size = np.sqrt((centered[0] ** 2).sum() * (centered[1] ** 2).sum())
    return float((centered[0] * centered[1]).sum() / size) if size > 0 else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[index]


def miscalibration_area(levels: Sequence[float], observed: Sequence[float]) -> float:
    """Compute the area between the observed and the stated coverage, as functions of the stated one.

    The observed coverage is joined by straight lines, from (0, 0) to (1, 1).

    Args:
        levels: Stated coverages, increasing, between 0 and 1.
        observed: Share of rows that the interval of each level covers.

    Returns:
        The area from 0 (calibrated) to 0.5; NaN if a coverage is not known.

    Source: Tran et al. 2020, "Methods for Comparing Uncertainty Quantifications for Material Property
    Predictions".
    """
    x = np.array([0.0, *levels, 1.0])
    gap = np.array([0.0, *observed, 1.0]) - x
    left, right, width = gap[:-1], gap[1:], np.diff(x)
    size = np.abs(left) + np.abs(right)
    crossing = left * right < 0  # two triangles
    squares = (left**2 + right**2) / np.where(size > 0, size, 1.0)
    return float((width / 2 * np.where(crossing, squares, size)).sum())


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, bins: int = 10) -> float:
    """Compute the expected calibration error: the mean gap between probability and share of class 1.

    Rows are sorted by probability and divided into bins of nearly equal size.

    Args:
        probabilities: Probability of class 1, float [n].
        labels: Class, float [n], NaN where missing.
        bins: Number of bins.

    Returns:
        The error from 0 to 1; NaN without a known class.
    """
    known = np.isfinite(labels)
    if not known.any():
        return float("nan")
    chances, truth = np.asarray(probabilities)[known], np.asarray(labels)[known]
    order = np.argsort(chances, kind="stable")
    bins_of_rows = [rows for rows in np.array_split(order, bins) if len(rows)]
    gaps = [len(rows) * abs(float(chances[rows].mean() - truth[rows].mean())) for rows in bins_of_rows]
    return float(sum(gaps) / len(order))


def class_calibration_errors(probabilities: np.ndarray, labels: np.ndarray) -> list[float]:
    """Compute the calibration error of each class.

    Of two classes, which have the same gaps, class 1 stands for both: the bins of class 0 may be others.

    Args:
        probabilities: Probability of each class, float [n, K].
        labels: Index of the class, int [n].

    Source: Kull et al. 2019, "Beyond Temperature Scaling".
    """
    count = probabilities.shape[1]
    errors = [
        calibration_error(probabilities[:, label], (labels == label).astype(np.float64))
        for label in ([1] if count == 2 else range(count))
    ]
    return errors * 2 if count == 2 else errors


def brier_score(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Compute the mean squared error of probabilities: the sum over the classes, or one of two classes.

    Args:
        probabilities: Probability of each class, float64 [n, K].
        labels: Index of the class, int [n].

    Returns:
        The score; NaN without a row.

    Source: Brier 1950, "Verification of Forecasts Expressed in Terms of Probability".
    """
    if not len(labels):
        return float("nan")
    count = probabilities.shape[1]
    squared = ((probabilities - (labels[:, None] == np.arange(count))) ** 2).sum(1)
    return float(squared.mean()) / (2 if count == 2 else 1)  # both of two classes have the same squared error
