"""How the error of an attention, relative to softmax, depends on the number of training rows.

The penalty is the error divided by the error of softmax with the same options, minus 1. The logarithm of the
ratio is fitted by a line in the logarithm of the number of training rows, with one point for each number of
rows and each seed. The interval at a number of rows is the 95 % interval of the line, for normal deviations
of equal size. It does not cover a law of another form.
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
    "slice_sort, pair state": "softmax",
    "slice_sort, messages": "softmax, messages",
    "slice_sort, pair state and messages": "softmax, pair state and messages",
}
PAPER_ROWS, PAPER_PENALTY = 3_045_360, 0.1308 / 0.1287 - 1  # training rows and errors of PCQM4M-LSC
CONFIDENCE = 0.95
FEWEST_POINTS = 3


@dataclass(frozen=True, slots=True)
class PenaltyLaw:
    """The line log(1 + penalty) = intercept + slope * (log(rows) - center), fitted by least squares.

    Attributes:
        intercept: Value at the mean logarithm of the numbers of rows.
        slope: Change with the natural logarithm of the number of rows.
        center: Mean logarithm of the numbers of rows.
        spread: Sum of the squared distances of the logarithms from `center`.
        points: Number of fitted points.
        variance: Estimated variance of a point around the line.
    """

    intercept: float
    slope: float
    center: float
    spread: float
    points: int
    variance: float

    @classmethod
    def fit(cls, rows: Sequence[float], penalties: Sequence[float]) -> "PenaltyLaw":
        """Fit at least three points, with at least two numbers of rows."""
        x, y = np.log(rows), np.log1p(penalties)
        if len(x) < 3 or np.ptp(x) == 0:
            raise ValueError(
                f"a line with an interval needs three points and two numbers of rows, found {rows}"
            )
        center, intercept = float(x.mean()), float(y.mean())
        spread = float(((x - center) ** 2).sum())
        slope = float(((x - center) * y).sum()) / spread
        residuals = y - intercept - slope * (x - center)
        variance = float((residuals**2).sum()) / (len(x) - 2)
        return cls(intercept, slope, center, spread, len(x), variance)

    def interval(self, rows: float) -> tuple[float, float, float]:
        """Return the penalty at a number of rows, with the limits of its 95 % interval."""
        distance = math.log(rows) - self.center
        middle = self.intercept + self.slope * distance
        error = math.sqrt(self.variance * (1 / self.points + distance**2 / self.spread))
        width = error * float(stats.t.ppf((1 + CONFIDENCE) / 2, self.points - 2))
        return math.expm1(middle), math.expm1(middle - width), math.expm1(middle + width)


def penalties(
    runs: Sequence[Mapping[str, Any]], label: str, reference: str, dim: int
) -> list[tuple[int, float]]:
    """Return the number of rows and the penalty of each seed for which both entries were trained."""
    errors = {(run["label"], run["rows"], run["seed"]): run["test_mae"] for run in runs if run["dim"] == dim}
    return [
        (rows, error / errors[reference, rows, seed] - 1)
        for (name, rows, seed), error in sorted(errors.items())
        if name == label and (reference, rows, seed) in errors
    ]


def fit_penalties(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the penalties of each compared entry and width, with the fitted line at the paper's rows.

    Args:
        runs: Runs with `label`, `dim`, `rows`, `seed` and `test_mae`, one for each seed.
    """
    found = []
    for dim in sorted({run["dim"] for run in runs}):
        for label, reference in COMPARED.items():
            points = penalties(runs, label, reference, dim)
            if not points:
                continue
            fitted: dict[str, Any] = {"label": label, "reference": reference, "dim": dim}
            fitted["points"] = [{"rows": rows, "penalty": penalty} for rows, penalty in points]
            if len({rows for rows, _ in points}) >= FEWEST_POINTS:
                law = PenaltyLaw.fit(*zip(*points, strict=True))
                names = ("penalty", "low", "high")
                fitted["slope"] = law.slope
                fitted["extrapolated"] = dict(zip(names, law.interval(PAPER_ROWS), strict=True))
            found.append(fitted)
    return found
