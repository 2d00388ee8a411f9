"""What all figures share: picture files, the colors of attentions, labels that do not overlap.

Imports matplotlib and nothing of molslice, so that every layer can use it.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib import rc_context, ticker
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

__all__ = [
    "DPI",
    "OTHERS",
    "Point",
    "color_of",
    "is_highlighted",
    "place_labels",
    "set_log_scale",
    "to_picture",
]

DPI = 150
CANVASES = {"png": FigureCanvasAgg, "svg": FigureCanvasSVG}

# The attentions of the mission in colors that color-blind readers tell apart; all others are gray.
COLORS = {"softmax": "#0072b2", "slice_sort": "#d55e00", "flow": "#009e73", "singular": "#b0479a"}
OTHERS = "#8c8c8c"

# Where a label is tried, nearest first: points between the mark and the label, and directions in degrees.
GAPS = (1.5, 4.0, 7.0, 11.0, 15.0, 20.0, 26.0, 33.0, 41.0, 50.0, 62.0, 76.0, 92.0, 120.0)
DIRECTIONS = (0, 180, 90, 270, 45, 315, 135, 225, 20, 340, 160, 200, 70, 290, 110, 250)
LEADER_FROM = 6.0  # points; a label further away gets a line to its mark
PADDING = 1.0  # points around a label


Line = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Point:
    """A mark with its label.

    Attributes:
        x: Place in data coordinates.
        y: Place in data coordinates.
        label: The text.
        color: Color of the text.
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
    """Return whether an entry, a name with options behind colons, is drawn in color."""
    return entry.split(":")[0] in COLORS


def color_of(entry: str) -> str:
    """Return the color of an entry, a name with options behind colons."""
    return COLORS.get(entry.split(":")[0], OTHERS)


def set_log_scale(axes: Axes, axis: str, values: Sequence[float]) -> None:
    """Make an axis of positive values logarithmic, with plain numbers at its ticks."""
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
    """Write the label of each point beside it, so that no label covers another one or a mark.

    The first free place is taken, nearest first and in the order of the points, so the same points always
    give the same picture. A label that is not next to its mark gets a line to it. Where nothing is free, a
    label covers marks, then other labels. The scales and the size of the axes have to be final.

    Args:
        axes: Where the marks are drawn already.
        points: The marks; the first ones get the best places.
        fontsize: Height of the letters in points.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    scale = figure.dpi / 72.0  # pixels of a point
    for limits in (axes.get_xlim, axes.get_ylim):
        limits()  # decides the limits, if nothing has yet
    centers = [_pixels(axes, point.x, point.y) for point in points]
    marks = [
        _box(x, y, 2 * scale * point.radius, 2 * scale * point.radius)
        for (x, y), point in zip(centers, points, strict=True)
    ]
    marks += [bar for point in points if (bar := _error_bar(axes, point, scale)) is not None]
    renderer = FigureCanvasAgg(figure).get_renderer()
    taken: list[Bbox] = []
    leaders: list[Line] = []
    for point, center in zip(points, centers, strict=True):
        text = axes.text(0, 0, point.label, fontsize=fontsize)
        extent = text.get_window_extent(renderer)
        text.remove()
        width, height = extent.width + 2 * PADDING * scale, extent.height + 2 * PADDING * scale
        best: tuple[float, int] | None = None
        candidates = _candidates(center, width, height, point.radius, scale)
        for index, (gap, box) in enumerate(candidates):
            own = (center, _nearest(box, center))
            cost = _cost(box, own if gap > LEADER_FROM else None, axes.bbox, marks, taken, leaders)
            if best is None or cost < best[0]:
                best = (cost, index)
            if cost == 0:
                break
        assert best is not None
        gap, box = candidates[best[1]]
        taken.append(box)
        if gap > LEADER_FROM:
            leaders.append((center, _nearest(box, center)))
        _write(axes, point, box, center, gap > LEADER_FROM, scale, fontsize)


def _pixels(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """Return a place in data coordinates in pixels."""
    across, up = axes.transData.transform((x, y))
    return float(across), float(up)


def _error_bar(axes: Axes, point: Point, scale: float) -> Bbox | None:
    if not point.spread:
        return None
    x, low = _pixels(axes, point.x, point.y - point.spread)
    _, high = _pixels(axes, point.x, point.y + point.spread)
    return Bbox([[x - 4 * scale, low], [x + 4 * scale, high]])


def _candidates(
    center: tuple[float, float], width: float, height: float, radius: float, scale: float
) -> list[tuple[float, Bbox]]:
    """Return the distance from the mark and the box of every place to try."""
    found = []
    for gap in GAPS:
        for degrees in DIRECTIONS:
            across, up = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            away = (radius + gap) * scale
            # The nearest edge or corner of the box is that far away, whichever direction it is in.
            x = center[0] + across * away + _side(across) * width / 2
            y = center[1] + up * away + _side(up) * height / 2
            found.append((gap, _box(x, y, width, height)))
    return found


def _side(share: float) -> float:
    return 0.0 if abs(share) < 0.2 else math.copysign(1.0, share)


def _box(x: float, y: float, width: float, height: float) -> Bbox:
    return Bbox([[x - width / 2, y - height / 2], [x + width / 2, y + height / 2]])


def _middle(box: Bbox) -> tuple[float, float]:
    return ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)


def _nearest(box: Bbox, place: tuple[float, float]) -> tuple[float, float]:
    """Return the point of a box that is nearest to a place."""
    return (min(max(place[0], box.x0), box.x1), min(max(place[1], box.y0), box.y1))


def _cost(
    box: Bbox, leader: Line | None, frame: Bbox, marks: list[Bbox], taken: list[Bbox], leaders: list[Line]
) -> float:
    """Return 0 for a free place; labels outside the axes or on labels cost more than labels on marks."""
    inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
    cost = 0.0 if inside else 1e4
    cost += 1e3 * sum(box.overlaps(other) for other in taken)
    cost += 10.0 * sum(box.overlaps(mark) for mark in marks)
    cost += 10.0 * sum(_crosses(line, box) for line in leaders)
    if leader is not None:
        cost += 100.0 * sum(_crosses(leader, other) for other in taken)
        cost += 1.0 * sum(_cut(leader, line) for line in leaders)
        cost += 1.0 * max(0, sum(_crosses(leader, mark) for mark in marks) - 1)  # it begins at its own mark
    return cost


def _crosses(line: Line, box: Bbox) -> bool:
    """Return whether a line goes through a box."""
    (x0, y0), (x1, y1) = line
    entry, leave = 0.0, 1.0
    for start, step, low, high in ((x0, x1 - x0, box.x0, box.x1), (y0, y1 - y0, box.y0, box.y1)):
        if step == 0:
            if not low <= start <= high:
                return False
            continue
        near, far = sorted(((low - start) / step, (high - start) / step))
        entry, leave = max(entry, near), min(leave, far)
    return entry <= leave


def _cut(one: Line, other: Line) -> bool:
    """Return whether two lines cross."""

    def turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
        return (b[0] - a[0]) * (c[1] - a[1]) > (b[1] - a[1]) * (c[0] - a[0])

    return turn(*one, other[0]) != turn(*one, other[1]) and turn(*other, one[0]) != turn(*other, one[1])


def _write(
    axes: Axes,
    point: Point,
    box: Bbox,
    center: tuple[float, float],
    leader: bool,
    scale: float,
    fontsize: float,
) -> None:
    x, y = _middle(box)
    near = _nearest(box, center)
    line = {
        "arrowstyle": "-",
        "color": point.color,
        "linewidth": 0.5,
        "alpha": 0.7,
        "shrinkA": 0.0,
        "shrinkB": point.radius,
        "patchA": None,
        "relpos": ((near[0] - box.x0) / box.width, (near[1] - box.y0) / box.height),
    }
    note = axes.annotate(
        point.label,
        (point.x, point.y),
        xytext=((x - center[0]) / scale, (y - center[1]) / scale),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=fontsize,
        color=point.color,
        arrowprops=line if leader else None,
    )
    note.set_in_layout(False)


def to_picture(figure: Figure, suffix: str) -> bytes:
    """Return the figure as PNG or SVG; the same figure gives the same bytes."""
    canvas = CANVASES[suffix](figure)
    stream = io.BytesIO()
    metadata = {"Date": None} if suffix == "svg" else {"Software": None}
    with rc_context({"svg.hashsalt": "molslice", "svg.fonttype": "none"}):
        canvas.print_figure(stream, format=suffix, dpi=DPI, metadata=metadata)
    return stream.getvalue()
