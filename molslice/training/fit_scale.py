"""Scale of the targets of a fit: whether a model learns values or their logarithms."""

import numpy as np

from molslice.files.urls import File
from molslice.training.fit_data import FitData, Scale
from molslice.types import MolsliceError

__all__ = ["is_logarithmic"]

TAILS, WIDE = (0.01, 0.99), 10.0  # ratio of these quantiles beyond which a logarithm may be learned


def is_logarithmic(data: FitData, path: File, index: int, geometric: np.ndarray, scale: Scale | None) -> bool:
    """Find whether the logarithm of a target is learned.

    Args:
        data: The rows.
        path: The table, for messages.
        index: Number of the target.
        geometric: Its values, with the geometric mean of several rows, float64 [n].
        scale: The scale that the user asks for; None finds it.

    Raises:
        MolsliceError: `scale` is `log`, and a target is a class or a value is not positive.
    """
    if scale == "linear" or (scale is None and data.kind == "classification"):
        return False
    name, values = data.names[index], np.where(data.test, np.nan, geometric)
    if scale == "log":
        where = f"{path}, column {name!r}"
        if data.kind == "classification":
            raise MolsliceError(f"{where}: the scale log is for numbers, but the targets are classes")
        if (bad := np.flatnonzero(values <= 0)).size:
            row = int(bad[0])
            raise MolsliceError(
                f"{where}: the value {values[row]:g} of {data.smiles[row]} has no logarithm; choose the "
                "scale linear"
            )
        data.findings.append(f"{name}: learned as its logarithm")
        return True
    known = values[np.isfinite(values)]
    if not _is_log_normal(known):
        return False
    span = f"from {known.min():.4g} to {known.max():.4g}"
    data.findings.append(f"{name}: learned as its logarithm (detected: positive and skewed, {span})")
    return True


def _is_log_normal(values: np.ndarray) -> bool:
    """Whether values span a wide range and are closer to a log-normal distribution than to a normal one.

    The likelihoods of a normal distribution of the logarithms and of the values are compared, with the mean
    and the variance of each.

    Args:
        values: float64 [n].

    Source: Box and Cox 1964, "An Analysis of Transformations" (the exponents 0 and 1).
    """
    low, high = np.quantile(values, TAILS)
    if values.min() <= 0 or high < WIDE * low:
        return False
    logs = np.log(values)
    return bool(np.exp(logs.mean()) * logs.std() < values.std())
