"""What is unusual among errors and probabilities of which most belong to right measurements."""

import numpy as np

MIDDLE, OUTER = 0.5, 0.9  # levels of the errors that decide which quantiles are usual


def usual_error(errors: np.ndarray, level: float) -> float:
    """Estimate the quantile of absolute errors, as if the largest were no wrong measurements.

    The errors are assumed to have a Weibull distribution with their median and their quantile 0.9: between
    the absolute values of a normal and of a Laplace distribution, or beyond. So wrong values, of up to about
    a tenth of the rows, do not raise the result much, and few rows are enough for a level such as 0.99.

    Args:
        errors: Absolute errors, float64 [n]; at least one.
        level: The level of the quantile, above 0.9.
    """
    middle, outer = np.quantile(errors, [MIDDLE, OUTER])
    if middle <= 0.0:  # half of the rows have no error
        return float(np.quantile(errors, level))
    # the quantile of a level is scale * (-log(1 - level)) ** power
    logs = -np.log1p(-np.array([MIDDLE, OUTER, level]))
    power = np.log(outer / middle) / np.log(logs[1] / logs[0])
    return float(middle * (logs[2] / logs[0]) ** power)


def least_probability(probabilities: np.ndarray, level: float) -> float:
    """Find the probability below which classes are unusual.

    The classes of lower probability, of all rows together, have a probability of at most 1 - level. If the
    probabilities are right, at most that share of the rows has such a class.

    Args:
        probabilities: The calibrated probability of each class, float64 [n, K].
        level: The share of rows that have a usual class.
    """
    ordered = np.sort(probabilities, axis=None)
    place = int(np.searchsorted(np.cumsum(ordered), (1.0 - level) * len(probabilities), side="right"))
    return float(ordered[min(place, len(ordered) - 1)])
