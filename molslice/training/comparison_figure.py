"""The plots of a comparison: parameters against error, and the training curves of its runs."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from molslice.figures import DPI, Point, color_of, grid, literal, place_labels, set_log_scale, to_picture
from molslice.files.text_tables import csv_text
from molslice.folders.run import METRICS
from molslice.tasks.metrics import METRIC_LABELS, with_unit
from molslice.training.comparison import Comparison, Line
from molslice.training.records import read_metrics

Columns = Mapping[str, Sequence[float]]  # of `metrics.csv`

MOST_PANELS = 6
PANEL = (6.4, 4.4)  # inches
LEGEND_ROW = 0.17  # inches
MARKERS = "osD^vPX*<>hp"
MARK_SIZE = 7.0  # points
FONT = 7.5  # points
CROWD = 10  # with more entries, marks have numbers and a legend has the names
CURVE_PANEL = (6.4, 4.2)  # inches
NOT_DRAWN = ("step", "epoch", "seconds", "learning_rate", "rows_per_second")
WIDE = 30.0  # ratio of the values of a curve from which their axis is logarithmic


def draw_comparison(comparison: Comparison, suffix: str) -> bytes:
    """Draw one mark for each entry, with the spread over runs as a bar, as the content of a picture file.

    There is one panel for each target, at most six. The error is measured on the test split, or on the
    validation split if the data have no test labels.
    """
    first, lines = comparison.results[0], comparison.lines()
    is_tested = all(any(value is not None for value in line.test.values()) for line in lines)
    split = "test" if is_tested else "valid"
    targets = list(first.units)[:MOST_PANELS]
    rows, columns = grid(len(targets))
    numbered = len(lines) > CROWD
    names = [f"{number} {line.label}" for number, line in enumerate(lines, start=1)] if numbered else []
    legend_columns, legend_inches = _legend_layout(names, PANEL[0] * columns)
    size = (PANEL[0] * columns, PANEL[1] * rows + legend_inches)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    for index, target in enumerate(targets):
        axes = figure.add_subplot(rows, columns, index + 1)
        unit = first.units[target]
        _draw_panel(axes, lines, target, split)
        label = f"{split} {METRIC_LABELS[first.metric]} of {target}"
        axes.set_ylabel(literal(with_unit(label, unit)))
    if numbered:
        handles = [
            Line2D([], [], linestyle="none", marker=marker, color=color_of(line.label), label=literal(name))
            for line, marker, name in zip(lines, _markers(lines), names, strict=True)
        ]
        figure.legend(
            handles=handles,
            loc="outside upper center",
            ncols=legend_columns,
            fontsize=FONT,
            frameon=False,
        )
    figure.draw_without_rendering()  # fixes the sizes of panels, which the labels depend on
    figure.set_layout_engine("none")
    for axes, target in zip(figure.axes, targets, strict=True):
        _label_panel(axes, lines, target, split, numbered)
    return to_picture(figure, suffix)


def _legend_layout(names: list[str], width: float) -> tuple[int, float]:
    """Return the columns of a legend that fit into `width` inches, and its height in inches."""
    if not names:
        return 1, 0.0
    columns = max(1, int(width / (0.5 + 0.07 * max(map(len, names)))))
    return columns, LEGEND_ROW * -(-len(names) // columns)


def _markers(lines: list[Line]) -> list[str]:
    """Return the marker of each entry; entries of one color have different ones."""
    colors = [color_of(line.label) for line in lines]
    return [MARKERS[colors[:index].count(color) % len(MARKERS)] for index, color in enumerate(colors)]


def _error(line: Line, target: str, split: str) -> tuple[float | None, float]:
    """Return the mean error of an entry and its spread over the runs, 0 of a single run."""
    mean = getattr(line, split)[target]
    return mean, getattr(line, f"{split}_sd")[target] or 0.0


def _draw_panel(axes: Axes, lines: list[Line], target: str, split: str) -> None:
    for line, marker in zip(lines, _markers(lines), strict=True):
        mean, spread = _error(line, target, split)
        axes.errorbar(
            line.parameters,
            math.nan if mean is None else mean,
            yerr=spread or None,
            marker=marker,
            markersize=MARK_SIZE,
            markeredgecolor="white",
            capsize=3,
            elinewidth=1,
            linestyle="none",
            color=color_of(line.label),
        )
    counts = [line.parameters for line in lines]
    if max(counts) > 10 * min(counts):
        set_log_scale(axes, "x", counts)
    else:
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("parameters")
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.margins(x=0.15, y=0.15)


def _label_panel(axes: Axes, lines: list[Line], target: str, split: str, numbered: bool) -> None:
    points = []
    for number, line in enumerate(lines, start=1):
        mean, spread = _error(line, target, split)
        if mean is not None and math.isfinite(mean):
            label = str(number) if numbered else line.label
            color = color_of(line.label)
            points.append(Point(line.parameters, mean, label, color, MARK_SIZE / 2, spread))
    place_labels(axes, points, FONT)


def read_curves(comparison: Comparison) -> dict[str, Columns]:
    """Read `metrics.csv` of each run, by the name of the run, such as `softmax, seed 0`.

    Raises:
        MolsliceError: A file cannot be read.
    """
    return {
        f"{result.label}, {result.repetition}": read_metrics(Path(result.run) / METRICS)
        for result in comparison.results
    }


def curves_table(curves: Mapping[str, Columns]) -> str:
    """Return a line of CSV for each run and validation: its name, then the columns of `metrics.csv`.

    A number that a run did not measure is an empty cell.
    """
    names = list(dict.fromkeys(name for columns in curves.values() for name in columns))
    rows: list[list[object]] = [["run", *names]]
    for run, columns in curves.items():
        for index in range(len(columns["step"])):
            values = [columns[name][index] if name in columns else math.nan for name in names]
            rows.append([run, *(None if math.isnan(value) else value for value in values)])
    return csv_text(rows)


def draw_curves(curves: Mapping[str, Columns], suffix: str) -> bytes:
    """Draw the training loss and the validation metrics against the step; at most six panels.

    The axis of positive values that differ by a factor of more than 30 is logarithmic.
    """
    names = dict.fromkeys(name for columns in curves.values() for name in columns if name not in NOT_DRAWN)
    panels = list(names)[:MOST_PANELS]
    down, across = grid(len(panels))
    size = (CURVE_PANEL[0] * across, CURVE_PANEL[1] * down)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    colors = _colors(len(curves))
    for index, name in enumerate(panels):
        axes = figure.add_subplot(down, across, index + 1)
        for (run, columns), color in zip(curves.items(), colors, strict=True):
            if name in columns:
                axes.plot(columns["step"], columns[name], color=color, linewidth=1.2, label=literal(run))
        axes.set(xlabel="step", ylabel=literal(name.replace("_", " ")))
        axes.grid(alpha=0.25, linewidth=0.5)
        values = [v for columns in curves.values() for v in columns.get(name, ()) if math.isfinite(v)]
        if values and min(values) > 0 and max(values) > WIDE * min(values):
            set_log_scale(axes, "y", values)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=across, fontsize="small", frameon=False)
    return to_picture(figure, suffix)


def _colors(count: int) -> list[tuple[float, ...]]:
    """Return one color for each run."""
    if count <= 10:
        return [colormaps["tab10"](index) for index in range(count)]
    return [colormaps["turbo"](index / (count - 1)) for index in range(count)]
