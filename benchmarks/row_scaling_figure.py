"""Draw the results of `row_scaling.py`, and fit how the penalty of an attention depends on the training rows.

    python benchmarks/row_scaling_figure.py

The penalty is the error divided by the error of softmax with the same options, minus 1. The logarithm of the
ratio is fitted by a line in the logarithm of the number of training rows, with one point for each number of
rows and each seed. The interval at a number of rows is the 95 % interval of the line, for normal deviations
of equal size. It does not cover a law of another form. Writes `benchmarks/results/row_scaling.png` and
`.svg`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from record import group_by, make_parser
from row_scaling import ENTRIES, NAME, default_rate
from scipy import stats

from molslice.figures import DPI, line_style, set_log_scale, to_picture
from molslice.files.parsing import read_json_object

# compared entry -> the entry with softmax and the same options
COMPARED: Mapping[str, str] = {
    "key_sort": "softmax",
    "slice_sort": "softmax",
    "slice_sort, pair state": "softmax",
    "slice_sort, pair state and messages": "softmax, pair state and messages",
}
PAPER_ROWS, PAPER_PENALTY = 3_045_360, 0.1308 / 0.1287 - 1  # training rows and errors of PCQM4M-LSC
CONFIDENCE = 0.95
STYLES = {label: line_style(index) for index, label in enumerate(ENTRIES)}
DRAWN = ("slice_sort", "slice_sort, pair state and messages")  # whose fitted line is drawn


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
    errors = {
        (run["label"], run["rows"], run["seed"]): run["test_mae"]
        for run in runs
        if run["dim"] == dim and run["rate"] == default_rate(run["label"])
    }
    return [
        (rows, error / errors[reference, rows, seed] - 1)
        for (name, rows, seed), error in sorted(errors.items())
        if name == label and (reference, rows, seed) in errors
    ]


def draw_errors(axes: Axes, entries: Sequence[Mapping[str, Any]], key: str, text: str) -> None:
    """Draw the error against the number of rows or of parameters, one line for each entry."""
    for label, group in group_by(entries, lambda entry: entry["label"]).items():
        group.sort(key=lambda entry: entry[key])
        axes.errorbar(
            [entry[key] for entry in group],
            [entry["test_mae"]["mean"] for entry in group],
            yerr=[entry["test_mae"]["sd"] or 0.0 for entry in group],
            label=label,
            **STYLES[label],
        )
    set_log_scale(axes, "x", [entry[key] for entry in entries])
    set_log_scale(axes, "y", [entry["test_mae"]["mean"] for entry in entries])
    axes.set_xlabel(text)
    axes.set_ylabel("test MAE (eV)")
    axes.grid(alpha=0.25, linewidth=0.5)


def draw_penalties(axes: Axes, runs: Sequence[Mapping[str, Any]], dim: int) -> None:
    """Draw the penalties, two fitted lines with their intervals, and the penalty of the paper."""
    places = np.geomspace(min(run["rows"] for run in runs), PAPER_ROWS, 50)
    for label, reference in COMPARED.items():
        points = penalties(runs, label, reference, dim)
        style = STYLES[label]
        axes.plot(
            [rows for rows, _ in points],
            [100 * penalty for _, penalty in points],
            **{**style, "linestyle": "none"},
        )
        if label in DRAWN and len(points) > 2:
            law = PenaltyLaw.fit(*zip(*points, strict=True))
            middle, low, high = 100 * np.array([law.interval(rows) for rows in places]).T
            axes.plot(places, middle, color=style["color"], linewidth=1)
            axes.fill_between(places, low, high, color=style["color"], alpha=0.12, linewidth=0)
    axes.plot(PAPER_ROWS, 100 * PAPER_PENALTY, "k*", markersize=9, label="slice_sort, paper")
    axes.axhline(0, color="black", linewidth=0.6)
    set_log_scale(axes, "x", places.tolist())
    axes.set_ylim(-20, 60)
    axes.set_xlabel("training rows")
    axes.set_ylabel("error above softmax with the same options (%)")
    axes.legend(fontsize=7, frameon=False)
    axes.grid(alpha=0.25, linewidth=0.5)


def draw(result: Mapping[str, Any], suffix: str) -> bytes:
    """Draw errors against rows, errors against parameters, and penalties."""
    figure = Figure(figsize=(14, 4.6), dpi=DPI, layout="constrained")
    by_rows, by_parameters, law = figure.subplots(1, 3)
    entries = [entry for entry in result["entries"] if entry["rate"] == default_rate(entry["label"])]
    dim = min(entry["dim"] for entry in entries)
    narrow = [entry for entry in entries if entry["dim"] == dim]
    wider = [entry for entry in entries if entry["dim"] != dim]
    rows = max(entry["rows"] for entry in wider or narrow)
    widths = [entry for entry in entries if entry["rows"] == rows]
    draw_errors(by_rows, narrow, "rows", f"training rows (4 layers of width {dim})")
    draw_errors(by_parameters, widths, "parameters", f"parameters ({rows:,} training rows)")
    draw_penalties(law, result["runs"], dim)
    by_rows.legend(fontsize=7, frameon=False)
    return to_picture(figure, suffix)


def main() -> None:
    """Draw the recorded JSON and print the fitted penalties."""
    options = make_parser(__doc__).parse_args()
    result = read_json_object(options.out / f"{NAME}.json")
    for suffix in ("png", "svg"):
        (options.out / f"{NAME}.{suffix}").write_bytes(draw(result, suffix))
    dim = min(run["dim"] for run in result["runs"])
    for label, reference in COMPARED.items():
        points = penalties(result["runs"], label, reference, dim)
        if len(points) < 3:
            continue
        law = PenaltyLaw.fit(*zip(*points, strict=True))
        for rows in (*sorted({rows for rows, _ in points}), PAPER_ROWS):
            middle, low, high = law.interval(rows)
            print(f"{label}, {rows:,} rows: {middle:+.1%} ({low:+.1%} to {high:+.1%})")


if __name__ == "__main__":
    main()
