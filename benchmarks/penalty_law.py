"""How the error of an attention, relative to softmax, depends on the number of training rows.

The penalty is the error divided by the error of softmax with the same options, minus 1. Both are trained for
the same number of steps, the largest that was measured for both. The logarithm of the ratio is fitted by a
line in the logarithm of the number of training rows, with one point for each number of rows and each seed.
The interval at a number of rows is the 95 % interval of the line, for normal deviations of equal size. It
does not cover a law of another form.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

# compared entry -> the entry with softmax and the same options
COMPARED: Mapping[str, str] = {
    "key_sort": "softmax",
    "slice_sort": "softmax",
    "flow": "softmax",
    "singular": "softmax",
    "identity": "softmax",
    "slice_sort, pair state": "softmax",
    "slice_sort, messages": "softmax, messages",
    "slice_sort, pair state and messages": "softmax, pair state and messages",
    "slice_sort:order=max_exchange": "softmax",
    "slice_sort:order=max_exchange, pair state and messages": "softmax, pair state and messages",
    "identity, pair state and messages": "softmax, pair state and messages",
}
PAPER_ROWS, PAPER_PENALTY = 3_045_360, 0.1308 / 0.1287 - 1  # training rows and errors of PCQM4M-LSC
CONFIDENCE = 0.95
FEWEST_POINTS = 3


@dataclass(frozen=True, slots=True)
class PenaltyLaw:
    """The line of log(1 + penalty) in log(rows), fitted by least squares.

    Attributes:
        rows: Number of training rows of each point.
        penalties: Penalty of each point.
    """

    rows: Sequence[float]
    penalties: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.rows) < FEWEST_POINTS or len({*self.rows}) < 2:
            raise ValueError(
                f"a line with an interval needs three points and two numbers of rows, got {self.rows}"
            )

    def interval(self, rows: float) -> tuple[float, float, float]:
        """Return the penalty at a number of rows, with the limits of its 95 % interval."""
        (_, middle), covariance = self._fit(rows)
        width = math.sqrt(covariance[1, 1]) * stats.t.ppf((1 + CONFIDENCE) / 2, len(self.rows) - 2)
        return math.expm1(middle), math.expm1(middle - width), math.expm1(middle + width)

    @property
    def slope(self) -> float:
        """Change of log(1 + penalty) with the natural logarithm of the number of rows."""
        return float(self._fit(1.0)[0][0])

    def _fit(self, origin: float) -> tuple[np.ndarray, np.ndarray]:
        """Return slope and value at a number of rows, and their covariance."""
        return np.polyfit(np.log(self.rows) - math.log(origin), np.log1p(self.penalties), 1, cov=True)


def penalties(
    runs: Sequence[Mapping[str, Any]], label: str, reference: str, dim: int
) -> list[tuple[int, float]]:
    """Return the number of rows and the penalty of each seed for which both entries were trained."""
    errors = {
        (run["label"], run["rows"], run["steps"], run["seed"]): run["test_mae"]
        for run in runs
        if run["dim"] == dim
    }
    compared = {
        (rows, steps, seed): error / errors[reference, rows, steps, seed] - 1
        for (name, rows, steps, seed), error in sorted(errors.items())
        if name == label and (reference, rows, steps, seed) in errors
    }
    longest = {rows: steps for rows, steps, _ in compared}
    return [(rows, penalty) for (rows, steps, _), penalty in compared.items() if steps == longest[rows]]


def fit_penalties(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the penalties of each compared entry and width, with the fitted line at the paper's rows.

    Args:
        runs: Runs with `label`, `dim`, `rows`, `steps`, `seed` and `test_mae`, one for each seed and number
            of steps.
    """
    fits = []
    for dim in sorted({run["dim"] for run in runs}):
        for label, reference in COMPARED.items():
            points = penalties(runs, label, reference, dim)
            if not points:
                continue
            fitted: dict[str, Any] = {"label": label, "reference": reference, "dim": dim}
            fitted["points"] = [{"rows": rows, "penalty": penalty} for rows, penalty in points]
            if len({rows for rows, _ in points}) >= FEWEST_POINTS:
                law = PenaltyLaw(*zip(*points, strict=True))
                names = ("penalty", "low", "high")
                fitted["slope"] = law.slope
                fitted["extrapolated"] = dict(zip(names, law.interval(PAPER_ROWS), strict=True))
            fits.append(fitted)
    return fits
