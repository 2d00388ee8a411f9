"""Parts that figures of studies share: molecules with colored atoms, matrices, line styles."""

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from molslice.chem.layout import Depiction

__all__ = ["add_scale", "draw_matrix", "draw_molecule", "line_style"]

MARKERS = "os^Dv<>pPX*h"
COLORS = "viridis"
PARALLEL = 0.12  # half the distance of the lines of a double bond, the bond being 1.5 long


def line_style(index: int) -> dict[str, Any]:
    """Return color, marker and dashes of line `index`, counted from 0.

    The styles differ for more lines than there are colors.
    """
    palette = colormaps["tab10"].colors  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "color": palette[index % 10],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": ("-", "--", ":", "-.")[index // 10 % 4],
        "markersize": 4,
        "linewidth": 1.2,
    }


def draw_matrix(figure: Figure, axes: Axes, matrix: np.ndarray, title: str) -> None:
    """Draw a matrix as an image with row i at height i, and its scale beside it.

    Entries of a square matrix are square.

    Args:
        figure: The figure of `axes`.
        axes: Where to draw.
        matrix: The values [rows, columns].
        title: Caption of the image.
    """
    aspect = "equal" if matrix.shape[0] == matrix.shape[1] else "auto"
    shown = axes.imshow(matrix, cmap=COLORS, interpolation="nearest", aspect=aspect)
    axes.set_title(title, fontsize="small")
    axes.tick_params(labelsize="xx-small")
    add_scale(figure, axes, shown)


def draw_molecule(figure: Figure, axes: Axes, depiction: Depiction, values: np.ndarray, title: str) -> None:
    """Draw a structure with a disk at each atom, colored by its value, and the scale beside it.

    Args:
        figure: The figure of `axes`.
        axes: Where to draw.
        depiction: The structure of n atoms.
        values: Value of each atom [n].
        title: Caption of the structure.
    """
    positions = depiction.positions
    for (begin, end), order in zip(depiction.bonds, depiction.orders, strict=True):
        _draw_bond(axes, positions[begin], positions[end], float(order))
    low, high = float(np.min(values)), float(np.max(values))
    norm = Normalize(low, high if high > low else low + 1e-9)
    across, up = positions.T
    shown = axes.scatter(across, up, c=values, cmap=COLORS, norm=norm, s=170, zorder=2, edgecolors="0.3")
    for x, y, label, value in zip(across, up, depiction.labels, values, strict=True):
        ink = "white" if norm(float(value)) < 0.6 else "black"
        axes.text(x, y, label, ha="center", va="center", fontsize="x-small", color=ink, zorder=3)
    axes.set_aspect("equal")
    axes.margins(0.15)
    axes.axis("off")
    axes.set_title(title, fontsize="small")
    add_scale(figure, axes, shown)


def add_scale(figure: Figure, axes: Axes, shown: Any) -> None:  # noqa: ANN401
    """Draw the scale of an image or of points beside its axes."""
    bar = figure.colorbar(shown, ax=axes, shrink=0.8, pad=0.02)
    bar.ax.tick_params(labelsize="xx-small")


def _draw_bond(axes: Axes, begin: np.ndarray, end: np.ndarray, order: float) -> None:
    along = end - begin
    across = np.array([-along[1], along[0]]) / max(float(np.hypot(*along)), 1e-9) * PARALLEL
    offsets = {1.0: (0.0,), 1.5: (-1.0, 1.0), 2.0: (-1.0, 1.0), 3.0: (-1.5, 0.0, 1.5)}[order]
    for number, offset in enumerate(offsets):
        style = "--" if order == 1.5 and number else "-"
        line = np.stack([begin + offset * across, end + offset * across])
        axes.plot(*line.T, style, color="0.35", linewidth=1.2, zorder=1)
