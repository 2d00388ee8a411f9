"""Draw the results of `row_scaling.py`: errors against rows and parameters, and penalties with their lines.

Entries that were trained with one number of rows only, and not with all, are left out. Errors by parameters
are drawn if a width was compared.

    python benchmarks/row_scaling_figure.py
    python benchmarks/row_scaling_figure.py --qm9

Writes `row_scaling.png` and `.svg`, or `row_scaling_qm9.png` and `.svg`, in `benchmarks/results`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from penalty_law import COMPARED, FEWEST_POINTS, PAPER_PENALTY, PAPER_ROWS, PenaltyLaw, penalties
from record import group_by, make_parser
from row_scaling import CHEMPROP_DIM, DIM, LABELS, MAX_EXCHANGE, NAME, QM9_NAME, choose_rates

from molslice.figures import DPI, line_style, set_log_scale, to_picture
from molslice.files.parsing import read_json_object

STYLES = {label: line_style(index) for index, label in enumerate(LABELS)}
DRAWN = ("slice_sort", f"{MAX_EXCHANGE}, pair state and messages")  # whose fitted line is drawn


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


def draw_penalties(axes: Axes, runs: Sequence[Mapping[str, Any]], dim: int, labels: Collection[str]) -> None:
    """Draw the penalties of labels, two fitted lines with their intervals, and the penalty of the paper."""
    places = np.geomspace(min(run["rows"] for run in runs), PAPER_ROWS, 50)
    for label, reference in COMPARED.items():
        if label not in labels:
            continue
        points = penalties(runs, label, reference, dim)
        style = STYLES[label]
        axes.plot(
            [rows for rows, _ in points],
            [100 * penalty for _, penalty in points],
            **{**style, "linestyle": "none"},
        )
        if label in DRAWN and len({rows for rows, _ in points}) >= FEWEST_POINTS:
            law = PenaltyLaw(*zip(*points, strict=True))
            middle, low, high = 100 * np.array([law.interval(rows) for rows in places]).T
            axes.plot(places, middle, color=style["color"], linewidth=1)
            axes.fill_between(places, low, high, color=style["color"], alpha=0.12, linewidth=0)
    axes.plot(PAPER_ROWS, 100 * PAPER_PENALTY, "k*", markersize=9, label="slice_sort, paper")
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylim(-20, 60)
    axes.set_xlabel("training rows")
    axes.set_ylabel("error above softmax (%)")
    axes.legend(fontsize=7, frameon=False)
    axes.grid(alpha=0.25, linewidth=0.5)


def draw(result: Mapping[str, Any], suffix: str) -> bytes:
    """Draw errors against rows, errors against parameters if a width was compared, and penalties."""
    entries = [entry for entry in result["entries"] if entry["chosen"]]
    largest = max(entry["rows"] for entry in entries)
    labels = {
        label
        for label, group in group_by(entries, lambda entry: entry["label"]).items()
        if len(numbers := {entry["rows"] for entry in group}) > 1 or largest in numbers
    }
    entries = [entry for entry in entries if entry["label"] in labels]
    narrow = [entry for entry in entries if entry["dim"] in (DIM, CHEMPROP_DIM)]
    wider = [entry for entry in entries if entry not in narrow]
    panels = 3 if wider else 2
    figure = Figure(figsize=(14 * panels / 3, 5.4), dpi=DPI, layout="constrained")
    by_rows, *by_parameters, law = figure.subplots(1, panels)
    draw_errors(by_rows, narrow, "rows", f"training rows (width {DIM})")
    for axes in by_parameters:
        rows = max(entry["rows"] for entry in wider)
        widths = [entry for entry in entries if entry["rows"] == rows]
        draw_errors(axes, widths, "parameters", f"parameters ({rows:,} training rows)")
    draw_penalties(law, choose_rates(result["runs"]), DIM, labels)
    figure.legend(*by_rows.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return to_picture(figure, suffix)


def main() -> None:
    """Draw the recorded JSON."""
    parser = make_parser(__doc__)
    parser.add_argument("--qm9", action="store_true", help="draw the result on QM9")
    options = parser.parse_args()
    name = QM9_NAME if options.qm9 else NAME
    result = read_json_object(options.out / f"{name}.json")
    for suffix in ("png", "svg"):
        (options.out / f"{name}.{suffix}").write_bytes(draw(result, suffix))


if __name__ == "__main__":
    main()
