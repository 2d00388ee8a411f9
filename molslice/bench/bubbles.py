"""The bubble plot of the Sliceformer paper: speed against score, memory as the area of the bubbles.

Without scores it shows speed against memory, with parameters as the area. There is one panel for each length.
Softmax, slice_sort, flow, and singular are in color, with their options; the other attentions are gray.
"""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from molslice.bench.attention_result import BenchResult, Cell
from molslice.bench.rounds import GIGA
from molslice.bench.scores import Scores
from molslice.figures import (
    DPI,
    OTHERS,
    Point,
    color_of,
    grid,
    is_highlighted,
    place_labels,
    set_log_scale,
    to_picture,
)

MAX_PANELS = 6
PANEL = (5.8, 4.8)  # inches
LEGEND_ROW = 0.155  # inches
LARGEST_AREA = 420.0  # points squared
MAX_NAMED = 8  # with more entries, bubbles are smaller and the gray ones have numbers in place of names
FONT, SMALL = 8.0, 6.5  # points


def draw_bubbles(result: BenchResult, suffix: str, scores: Scores | None = None) -> bytes:
    """Draw a measurement; the same result gives the same bytes.

    At most six panels are drawn: the longest lengths of the first width and batching. A panel omits entries
    without a number and, where there are scores, entries without a score.

    Args:
        result: The measurement.
        suffix: `png` or `svg`.
        scores: Score of each attention for the vertical axis; None for memory.

    Returns:
        The content of the picture file.
    """
    panels = _panels(result, scores)
    drawn = {cell.attention for _, cells in panels for cell in cells}
    entries = [entry for entry in result.entries if entry in drawn]
    rows, columns = grid(len(panels) or 1, 2 if len(panels) == 4 else 3)
    numbered = len(entries) > MAX_NAMED
    legend = [entry for entry in entries if numbered and not is_highlighted(entry)]
    legend_columns, legend_inches = _legend_layout(legend, PANEL[1] * rows)
    figure = Figure(
        figsize=(PANEL[0] * columns + legend_inches, PANEL[1] * rows), dpi=DPI, layout="constrained"
    )
    for index, (title, cells) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, index + 1)
        _draw_panel(axes, cells, scores)
        axes.set_title(title, fontsize="medium")
    if legend:
        handles = [
            Line2D([], [], linestyle="none", label=f"{entries.index(entry) + 1} {entry}") for entry in legend
        ]
        figure.legend(
            handles=handles,
            loc="outside right upper",
            ncols=legend_columns,
            fontsize=SMALL + 0.5,
            labelcolor="0.35",
            handlelength=0.0,
            frameon=False,
        )
    figure.draw_without_rendering()  # decides the size of the panels, which labels need
    figure.set_layout_engine("none")
    for axes, (_, cells) in zip(figure.axes, panels, strict=True):
        _label_panel(axes, cells, entries, scores, numbered)
    return to_picture(figure, suffix)


def _panels(result: BenchResult, scores: Scores | None) -> list[tuple[str, list[Cell]]]:
    (dim, batching), cells = next(iter(result.tables().items()))
    lengths = sorted({cell.size.length for cell in cells})[-MAX_PANELS:]
    panels = []
    for length in lengths:
        drawn = [cell for cell in cells if cell.size.length == length and _is_drawn(cell, scores)]
        if drawn:
            panels.append((f"{length:,} tokens, width {dim}, {batching}", drawn))
    return panels


def _is_drawn(cell: Cell, scores: Scores | None) -> bool:
    known = all(cell.numbers[name] is not None for name in ("training_steps_per_second", "peak_bytes"))
    return known and (scores is None or cell.attention in scores.values)


def _bubbles(cells: Sequence[Cell], scores: Scores | None) -> tuple[list[float], list[float], list[float]]:
    """Return steps per second, heights, and areas of the bubbles in points squared."""
    speeds = [cell.numbers["training_steps_per_second"].median for cell in cells]
    memory = [cell.numbers["peak_bytes"].median / GIGA for cell in cells]
    if scores is None:
        heights, sizes = memory, [float(cell.numbers["parameters"] or 0) for cell in cells]
    else:
        heights, sizes = [scores.values[cell.attention] for cell in cells], memory
    unit = LARGEST_AREA * min(1.0, MAX_NAMED / (3 * len(cells))) / (max(sizes) or 1.0)
    return speeds, heights, [unit * size for size in sizes]


def _draw_panel(axes: Axes, cells: Sequence[Cell], scores: Scores | None) -> None:
    cells = sorted(cells, key=lambda cell: is_highlighted(cell.attention))  # colors above gray
    speeds, heights, areas = _bubbles(cells, scores)
    axes.scatter(
        speeds,
        heights,
        s=areas,
        c=[color_of(cell.attention) for cell in cells],
        alpha=0.75,
        edgecolors="white",
        linewidths=0.6,
        zorder=2,
    )
    set_log_scale(axes, "x", speeds)
    if scores is None:
        set_log_scale(axes, "y", heights)
    axes.set_ylabel(
        "peak memory (GB); area: parameters" if scores is None else f"{scores.label}; area: peak memory"
    )
    axes.set_xlabel("training steps per second")
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.margins(0.15)


def _label_panel(
    axes: Axes, cells: Sequence[Cell], entries: Sequence[str], scores: Scores | None, numbered: bool
) -> None:
    points = []
    for cell, speed, height, area in zip(cells, *_bubbles(cells, scores), strict=True):
        entry, radius = cell.attention, math.sqrt(area) / 2
        if is_highlighted(entry):
            points.append(Point(speed, height, entry, color_of(entry), radius))
        else:
            label = str(entries.index(entry) + 1) if numbered else entry
            points.append(Point(speed, height, label, "0.35" if numbered else OTHERS, radius))
    points.sort(key=lambda point: point.color == "0.35")  # names are placed before numbers
    place_labels(axes, points, SMALL if numbered else FONT)


def _legend_layout(labels: Sequence[str], height: float) -> tuple[int, float]:
    """Return the columns of a legend with at most `height` inches, and its width in inches."""
    columns = max(1, -(-len(labels) // int(height / LEGEND_ROW)))
    return columns, columns * (0.35 + 0.06 * max(map(len, labels))) if labels else 0.0
