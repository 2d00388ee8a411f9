"""The plot of a comparison: parameters against error, one mark for each entry, spread over runs as bars."""

import io
import math
from typing import TYPE_CHECKING

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from molslice.tasks.metrics import METRIC_LABELS

if TYPE_CHECKING:
    from molslice.training.comparison import Comparison, Line

__all__ = ["draw_comparison"]

MOST_PANELS = 6
PANEL = (6.4, 4.0)  # inches
MARKERS = "osD^vPX*<>hp"
CANVASES = {"png": FigureCanvasAgg, "svg": FigureCanvasSVG}


def draw_comparison(comparison: "Comparison", suffix: str) -> bytes:
    """The picture as PNG or SVG; the same comparison gives the same bytes.

    One panel for each target, at most six. The error is that of the test split, or of the validation
    split where the data have no test labels.
    """
    first, lines = comparison.results[0], comparison.lines()
    is_tested = all(any(value is not None for value in line.test.values()) for line in lines)
    split = "test" if is_tested else "valid"
    targets = list(first.units)[:MOST_PANELS]
    columns = min(3, len(targets))
    height = -(-len(targets) // columns)
    legend_columns, legend_inches = _legend_layout([line.label for line in lines], PANEL[0] * columns)
    with rc_context({"svg.hashsalt": "molslice", "svg.fonttype": "none"}):
        size = (PANEL[0] * columns, PANEL[1] * height + legend_inches)
        figure = Figure(figsize=size, layout="constrained")
        canvas = CANVASES[suffix](figure)
        for index, target in enumerate(targets):
            axes = figure.add_subplot(height, columns, index + 1)
            unit = first.units[target]
            _draw_panel(axes, lines, target, split)
            label = f"{split} {METRIC_LABELS[first.metric]} of {target}"
            axes.set_ylabel(f"{label} ({unit})" if unit else label)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=legend_columns, fontsize="small", frameon=False
        )
        stream = io.BytesIO()
        metadata = {"Date": None} if suffix == "svg" else {"Software": None}
        canvas.print_figure(stream, format=suffix, dpi=150, metadata=metadata)
    return stream.getvalue()


def _legend_layout(labels: list[str], width: float) -> tuple[int, float]:
    """Columns that fit into `width` inches without cutting a label, and the height that the rows take."""
    widest = 0.6 + 0.075 * max(map(len, labels))  # the mark, then letters of the small font
    columns = max(1, min(2, int(width / widest)))
    return columns, 0.2 * -(-len(labels) // columns)


def _draw_panel(axes: Axes, lines: "list[Line]", target: str, split: str) -> None:
    means = [getattr(line, split)[target] for line in lines]
    for index, (line, mean) in enumerate(zip(lines, means, strict=True)):
        spread = getattr(line, f"{split}_sd")[target]
        axes.errorbar(
            line.parameters,
            math.nan if mean is None else mean,
            yerr=spread,
            marker=MARKERS[index % len(MARKERS)],
            markersize=8,
            capsize=4,
            linestyle="none",
            color=f"C{index % 10}",
            label=line.label,
        )
    counts = [line.parameters for line in lines]
    if max(counts) > 10 * min(counts):
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("parameters")
    axes.grid(alpha=0.3)
    axes.margins(x=0.15, y=0.15)
