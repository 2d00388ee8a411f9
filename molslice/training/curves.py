"""Training curves of the runs of a comparison: one figure with a color for each run, and a table."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.figure import Figure

from molslice.figures import DPI, literal, set_log_scale, to_picture
from molslice.folders.run import METRICS
from molslice.training.comparison import Comparison
from molslice.training.records import read_metrics

Columns = Mapping[str, Sequence[float]]
MOST_PANELS = 6
PANEL = (6.4, 4.2)  # inches
NOT_DRAWN = ("step", "epoch", "seconds", "learning_rate", "rows_per_second")
WIDE = 30.0  # ratio of the values from which their axis is logarithmic


def read_curves(comparison: Comparison) -> dict[str, dict[str, list[float]]]:
    """Read `metrics.csv` of each run.

    Returns:
        The columns of each run by the name of the run, such as `softmax, seed 0`.

    Raises:
        MolsliceError: A file cannot be read.
    """
    curves: dict[str, dict[str, list[float]]] = {}
    for result in comparison.results:
        curves[f"{result.label}, {result.repetition}"] = read_metrics(Path(result.run) / METRICS)
    return curves


def curves_table(curves: Mapping[str, Columns]) -> str:
    """Return a line of CSV for each run and validation: its name, then the columns of `metrics.csv`.

    A number that a run did not measure is an empty cell.
    """
    names = list(dict.fromkeys(name for columns in curves.values() for name in columns))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["run", *names])
    for run, columns in curves.items():
        for index in range(len(columns["step"])):
            values = (columns[name][index] if name in columns else math.nan for name in names)
            writer.writerow([run, *("" if math.isnan(value) else f"{value:.8g}" for value in values)])
    return stream.getvalue()


def draw_curves(curves: Mapping[str, Columns], suffix: str) -> bytes:
    """Draw the training loss and the validation metrics against the step; at most six panels.

    The axis of positive values that differ by a factor of more than 30 is logarithmic.

    Returns:
        The content of the picture file.
    """
    names = dict.fromkeys(name for columns in curves.values() for name in columns if name not in NOT_DRAWN)
    panels = list(names)[:MOST_PANELS]
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(PANEL[0] * across, PANEL[1] * down), dpi=DPI, layout="constrained")
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
