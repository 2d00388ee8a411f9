"""Standard errors of the errors that a fit announces."""

from typing import Any

import numpy as np

from molslice.fitting.data import FitData
from molslice.tasks.standard_errors import MeasuredMetric, measure_rows


def measure_target(
    data: FitData, index: int, predicted: np.ndarray, rows: np.ndarray, groups: np.ndarray, metric: str
) -> MeasuredMetric:
    """Measure the predictions of a target in some rows, int [k] or bool [n], of these groups, int [k]."""
    truth = data.nearest(predicted, rows, index)
    return measure_rows(data.types[index], predicted, truth, groups, metric)


def cross_validation_factor(folds: int) -> float:
    """Return by how much the standard error of a cross-validated error is larger than of as many new rows.

    The models of the folds share training rows, so that their errors are correlated.

    Source: Nadeau and Bengio 2003, "Inference for the Generalization Error", eq. 10.
    """
    return float(np.sqrt(1.0 + folds / (folds - 1)))


def measure_errors(
    cross_validated: MeasuredMetric, folds: int, held_out: dict[str, MeasuredMetric]
) -> dict[str, Any]:
    """Describe the errors of one target with their standard errors.

    Each model has the standard error of its own held-out errors (`MeasuredMetric.of`). A few held-out
    compounds often lack the large errors that matter most, and their spread is then too small. The spread of
    the out-of-fold errors, of many more compounds, is therefore the least for all models. It does not depend
    on the spread of a few held-out errors, which may be near zero by chance.

    `held_out` has the errors on held-out rows: of the fitted model and of baselines.

    Returns:
        `cross_validated` and `test`, the errors, and `standard_errors` with the same keys; None where one is
        not defined.

    Source: Cameron and Miller 2015, "A Practitioner's Guide to Cluster-Robust Inference", section VI: with
    few clusters, the estimated variance is too small, also with the factor G / (G - 1).
    """
    plain = cross_validated.standard_error
    errors = {}
    for name, measured in held_out.items():
        least = plain * np.sqrt(cross_validated.rows / measured.rows) if measured.rows else float("nan")
        errors[name] = _defined(float(np.fmax(measured.standard_error, least)))
    return {
        "cross_validated": cross_validated.value,
        "test": {name: measured.value for name, measured in held_out.items()},
        "standard_errors": {
            "cross_validated": _defined(plain * cross_validation_factor(folds)),
            "test": errors,
        },
    }


def _defined(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
