"""The unit in which learners are fitted to numbers."""

import numpy as np

GRID = 2.0**-30  # in standard deviations; above the rounding of values in another unit


def standardize(values: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Convert the values of a target to standard deviations from their mean.

    A learner that is fitted to the result does not depend on the unit of the target. Standardized values are
    rounded to multiples of 2^-30, so that they are equal, bit for bit, whichever unit the values had.
    Otherwise, the last bits would choose between splits of a tree that are equally good, and a model of grams
    would differ from one of kilograms. The nodes of scikit-learn's forests also become leaves below an
    absolute variance of 2.2e-16.

    Args:
        values: The training values, float64 [n].

    Returns:
        The standardized values, float64 [n], the mean, and the standard deviation; 1 if all values are equal.
    """
    mean, spread = float(np.mean(values)), float(np.std(values)) or 1.0
    return np.round((values - mean) / spread / GRID) * GRID, mean, spread
