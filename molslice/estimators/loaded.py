"""The loaded models of estimators, and their number of processes."""

from typing import Any
from weakref import WeakKeyDictionary

from joblib import effective_n_jobs
from sklearn.base import BaseEstimator

# The loaded model of an estimator, which is no part of its state, with what it was loaded from.
LOADED: WeakKeyDictionary[BaseEstimator, tuple[Any, Any]] = WeakKeyDictionary()


def count_workers(n_jobs: Any) -> int:  # noqa: ANN401 - None has a meaning too
    """Return the number of worker processes; 0 computes in this process."""
    jobs = effective_n_jobs(n_jobs)
    return jobs if jobs > 1 else 0
