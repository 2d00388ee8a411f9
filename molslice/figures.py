"""Functions for all figures: image files, colors and styles, labels that do not overlap, matrices, molecules.

Imports matplotlib but no other module of molslice, so that every layer can use it.
"""

import io
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps, rc_context, ticker
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.transforms import Bbox

if TYPE_CHECKING:
    from molslice.chem.layout import Depiction

DPI = 150
COLORS_OF_VALUES = "viridis"
MARKERS = "os^Dv<>pPX*h"
PARALLEL = 0.12  # half the distance of the lines of a double bond, the bond being 1.5 long
CANVASES = {"png": FigureCanvasAgg, "svg": FigureCanvasSVG}

# Colors of the four main attentions, distinguishable for color-blind readers; all others are gray.
COLORS = {"softmax": "#0072b2", "slice_sort": "#d55e00", "flow": "#009e73", "singular": "#b0479a"}
OTHERS = "#8c8c8c"

# Candidate positions of a label, nearest first: the gap to its mark in points, and the direction in degrees.
GAPS = (1.5, 4.0, 7.0, 11.0, 15.0, 20.0, 26.0, 33.0, 41.0, 50.0, 62.0, 76.0, 92.0, 120.0)
DIRECTIONS = (0, 180, 90, 270, 45, 315, 135, 225, 20, 340, 160, 200, 70, 290, 110, 250)
LEADER_FROM = 6.0  # points; a label with a larger gap gets a line to its mark
PADDING = 1.0  # points around a label


@dataclass(frozen=True, slots=True)
class Point:
    """A mark with its label.

    Attributes:
        x: Position in data coordinates.
        y: Position in data coordinates.
        label: Text of the label, without formulas.
        color: Color of the label.
        radius: Radius of the mark in points.
        spread: Half the length of a vertical error bar in data coordinates.
    """

    x: float
    y: float
    label: str
    color: str = "black"
    radius: float = 4.0
    spread: float = 0.0


def is_highlighted(entry: str) -> bool:
    """Return whether an entry `name:option=value` has a color of its own."""
    return entry.split(":")[0] in COLORS


def color_of(entry: str) -> str:
    """Return the color of an entry `name:option=value`, gray for most attentions."""
    return COLORS.get(entry.split(":")[0], OTHERS)


def line_style(index: int) -> dict[str, Any]:
    """Return color, marker and dashes of line `index`, from 0; they differ for more lines than colors."""
    palette = colormaps["tab10"].colors  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "color": palette[index % 10],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": ("-", "--", ":", "-.")[index // 10 % 4],
        "markersize": 4,
        "linewidth": 1.2,
    }


def grid(count: int, most: int = 3) -> tuple[int, int]:
    """Return the rows and columns of a figure with `count` panels and at most `most` columns."""
    columns = min(most, count)
    return -(-count // columns), columns


def literal(text: str) -> str:
    """Escape a text for matplotlib, which reads what is between two dollar signs as a formula."""
    return text.replace("$", r"\$")


def set_log_scale(axes: Axes, axis: str, values: Sequence[float]) -> None:
    """Make the axis `x` or `y` logarithmic, with plain numbers at its ticks, if all values are positive."""
    if not values or min(values) <= 0:
        return
    scaled = axes.xaxis if axis == "x" else axes.yaxis
    (axes.set_xscale if axis == "x" else axes.set_yscale)("log")
    narrow = max(values) < 4 * min(values)
    scaled.set_major_locator(
        ticker.MaxNLocator(5) if narrow else ticker.LogLocator(subs=(1.0, 2.0, 5.0), numticks=12)
    )
    scaled.set_major_formatter(lambda value, _: f"{value:,.6g}")
    scaled.set_minor_formatter(ticker.NullFormatter())


def place_labels(axes: Axes, points: Sequence[Point], fontsize: float) -> None:
    """Write the label of each point beside it without covering another label or a mark.

    Labels are placed in the order of the points, each at the nearest free position, so the same points always
    give the same picture. A label that is not next to its mark gets a line to it. If no position is free, a
    label covers marks rather than other labels. The scales and the size of the axes must be final.

    Args:
        axes: The axes, with the marks already drawn.
        points: The marks; the first ones get the best positions.
        fontsize: Font size in points.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    scale = figure.dpi / 72.0  # pixels per point
    for limits in (axes.get_xlim, axes.get_ylim):
        limits()  # computes the limits if they are not set yet
    centers = [axes.transData.transform((point.x, point.y)) for point in points]
    sizes = [2 * scale * point.radius for point in points]
    marks = [_box(center, size, size) for center, size in zip(centers, sizes, strict=True)]
    marks += [_error_bar(axes, point, scale) for point in points if point.spread]
    renderer = FigureCanvasAgg(figure).get_renderer()
    taken: list[Bbox] = []
    leaders: list[Path] = []
    for point, center in zip(points, centers, strict=True):
        text = axes.text(0, 0, literal(point.label), fontsize=fontsize)
        extent = text.get_window_extent(renderer)
        text.remove()
        size = np.array([extent.width, extent.height]) + 2 * PADDING * scale
        best = None
        for gap, direction in itertools.product(GAPS, DIRECTIONS):
            box = _label_box(center, size, (point.radius + gap) * scale, math.radians(direction))
            leader = Path([center, _nearest(box, center)]) if gap > LEADER_FROM else None
            cost = _cost(box, leader, axes.bbox, marks, taken, leaders)
            if best is None or cost < best[0]:
                best = (cost, box, leader)
            if cost == 0:
                break
        assert best is not None
        _, box, leader = best
        taken.append(box)
        leaders += [] if leader is None else [leader]
        _write(axes, point, box, center, leader is not None, scale, fontsize)


def _box(center: np.ndarray, width: float, height: float) -> Bbox:
    return Bbox.from_bounds(center[0] - width / 2, center[1] - height / 2, width, height)


def _error_bar(axes: Axes, point: Point, scale: float) -> Bbox:
    ends = axes.transData.transform([(point.x, point.y - point.spread), (point.x, point.y + point.spread)])
    return Bbox(ends + [[-4 * scale, 0.0], [4 * scale, 0.0]])


def _label_box(center: np.ndarray, size: np.ndarray, away: float, angle: float) -> Bbox:
    """Return the box of a label whose nearest edge or corner is at a distance from its mark, in pixels."""
    direction = np.array([math.cos(angle), math.sin(angle)])
    sides = np.where(np.abs(direction) < 0.2, 0.0, np.sign(direction))
    return _box(center + direction * away + sides * size / 2, *size)


def _nearest(box: Bbox, place: np.ndarray) -> np.ndarray:
    """Return the point of a box that is nearest to a position."""
    return np.clip(place, box.min, box.max)


def _cost(
    box: Bbox, leader: Path | None, frame: Bbox, marks: list[Bbox], taken: list[Bbox], leaders: list[Path]
) -> float:
    """Return 0 for a free position. Leaving the axes or covering labels costs more than covering marks."""
    inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
    cost = 0.0 if inside else 1e4
    cost += 1e3 * sum(box.overlaps(other) for other in taken)
    cost += 10.0 * sum(box.overlaps(mark) for mark in marks)
    cost += 10.0 * sum(line.intersects_bbox(box) for line in leaders)
    if leader is not None:
        cost += 100.0 * sum(leader.intersects_bbox(other) for other in taken)
        cost += 1.0 * sum(leader.intersects_path(line, filled=False) for line in leaders)
        crossed = sum(leader.intersects_bbox(mark) for mark in marks)
        cost += 1.0 * max(0, crossed - 1)  # it starts at its mark
    return cost


def _write(
    axes: Axes, point: Point, box: Bbox, center: np.ndarray, leader: bool, scale: float, fontsize: float
) -> None:
    line = {
        "arrowstyle": "-",
        "color": point.color,
        "linewidth": 0.5,
        "alpha": 0.7,
        "shrinkA": 0.0,
        "shrinkB": point.radius,
        "patchA": None,
        "relpos": tuple((_nearest(box, center) - box.min) / box.size),
    }
    note = axes.annotate(
        literal(point.label),
        (point.x, point.y),
        xytext=tuple((box.get_points().mean(0) - center) / scale),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=fontsize,
        color=point.color,
        arrowprops=line if leader else None,
    )
    note.set_in_layout(False)


def draw_matrix(figure: Figure, axes: Axes, matrix: np.ndarray, title: str) -> None:
    """Draw a matrix [rows, columns] as an image with row i at height i, and its scale beside it.

    Entries of a square matrix are square.
    """
    aspect = "equal" if matrix.shape[0] == matrix.shape[1] else "auto"
    shown = axes.imshow(matrix, cmap=COLORS_OF_VALUES, interpolation="nearest", aspect=aspect)
    axes.set_title(title, fontsize="small")
    axes.tick_params(labelsize="xx-small")
    add_scale(figure, axes, shown)


def draw_molecule(figure: Figure, axes: Axes, depiction: "Depiction", values: np.ndarray, title: str) -> None:
    """Draw a structure of n atoms with a disk at each, colored by its value [n], and the scale beside it."""
    positions = depiction.positions
    for (begin, end), order in zip(depiction.bonds, depiction.orders, strict=True):
        _draw_bond(axes, positions[begin], positions[end], float(order))
    low, high = float(np.min(values)), float(np.max(values))
    norm = Normalize(low, high if high > low else low + 1e-9)
    across, up = positions.T
    style = {"cmap": COLORS_OF_VALUES, "norm": norm, "s": 170, "zorder": 2, "edgecolors": "0.3"}
    shown = axes.scatter(across, up, c=values, **style)
    for x, y, label, value in zip(across, up, depiction.labels, values, strict=True):
        ink = "white" if norm(float(value)) < 0.6 else "black"
        axes.text(x, y, label, ha="center", va="center", fontsize="x-small", color=ink, zorder=3)
    axes.set_aspect("equal")
    axes.margins(0.15)
    axes.axis("off")
    axes.set_title(title, fontsize="small")
    add_scale(figure, axes, shown)


def _draw_bond(axes: Axes, begin: np.ndarray, end: np.ndarray, order: float) -> None:
    along = end - begin
    across = np.array([-along[1], along[0]]) / max(float(np.hypot(*along)), 1e-9) * PARALLEL
    offsets = {1.0: (0.0,), 1.5: (-1.0, 1.0), 2.0: (-1.0, 1.0), 3.0: (-1.5, 0.0, 1.5)}[order]
    for number, offset in enumerate(offsets):
        style = "--" if order == 1.5 and number else "-"
        line = np.stack([begin + offset * across, end + offset * across])
        axes.plot(*line.T, style, color="0.35", linewidth=1.2, zorder=1)


def add_scale(figure: Figure, axes: Axes, shown: Any) -> None:  # noqa: ANN401
    """Draw the scale of an image or of points beside its axes."""
    bar = figure.colorbar(shown, ax=axes, shrink=0.8, pad=0.02)
    bar.ax.tick_params(labelsize="xx-small")


def to_picture(figure: Figure, suffix: str) -> bytes:
    """Encode a figure as the content of a `png` or `svg` file; the same figure gives the same bytes."""
    canvas = CANVASES[suffix](figure)
    stream = io.BytesIO()
    metadata = {"Date": None} if suffix == "svg" else {"Software": None}
    with rc_context({"svg.hashsalt": "molslice", "svg.fonttype": "none"}):
        canvas.print_figure(stream, format=suffix, dpi=DPI, metadata=metadata)
    return stream.getvalue()
