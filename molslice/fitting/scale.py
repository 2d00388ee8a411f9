"""Scale of the targets of a fit: whether a model learns values or their logarithms."""

import numpy as np

from molslice.data.target_values import is_log_normal
from molslice.files.urls import File
from molslice.fitting.data import FitData, Scale
from molslice.types import MolsliceError

__all__ = ["is_logarithmic"]


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
    if not is_log_normal(known):
        return False
    span = f"from {known.min():.4g} to {known.max():.4g}"
    data.findings.append(f"{name}: learned as its logarithm (detected: positive and skewed, {span})")
    return True
