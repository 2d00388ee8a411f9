"""Draw Pathfinder pictures as gray pixels."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8

from molslice.data.synthetic.pathfinder_rule import Picture


def draw_pictures(
    chosen: Sequence[Picture], *, scale: int = 1, widen: float = 0.0
) -> UInt8[np.ndarray, "P S S"]:
    """Draw pictures of one rule as gray pixels, white on black.

    The level of a pixel is the fraction of its width that a dash or disk covers.

    Args:
        chosen: The pictures, at least one.
        scale: Factor of the size.
        widen: Pixels added to each side of dashes and disks, before scaling.

    Returns:
        One image for each picture, S the scaled size.
    """
    rule = chosen[0].rule
    size = rule.size * scale
    canvas = np.zeros((len(chosen), size, size), np.float32)
    owner = np.repeat(np.arange(len(chosen)), [len(picture.dashes) for picture in chosen])
    dashes = np.array([dash for picture in chosen for dash in picture.dashes]) * scale
    marks = np.array([mark for picture in chosen for mark in picture.marks]) * scale
    half = (rule.dash_width / 2 + widen) * scale
    _draw_pieces(canvas, owner, dashes, half, rule.contrast)
    radius = (rule.marker_radius + widen) * scale
    _draw_pieces(canvas, np.repeat(np.arange(len(chosen)), 2), np.stack([marks, marks], 1), radius, 1.0)
    return np.rint(np.minimum(canvas, 1.0) * 255).astype(np.uint8)


def _draw_pieces(
    canvas: Float[np.ndarray, "P S S"], owner: np.ndarray, pieces: np.ndarray, half: float, contrast: float
) -> None:
    """Draw line segments, complex [n, 2], of width 2 `half`, each into the picture `owner`."""
    begin, way = pieces[:, :1], pieces[:, 1:] - pieces[:, :1]
    square = np.maximum(np.abs(way) ** 2, 1e-12)
    span = math.ceil(np.abs(way).max(initial=0.0) / 2 + half + 1)
    around = np.arange(-span, span + 1)
    middle = begin + way / 2
    column = np.floor(middle.real).astype(int) + np.tile(around, len(around))
    row = np.floor(middle.imag).astype(int) + np.repeat(around, len(around))
    offset = (column + 0.5) + 1j * (row + 0.5) - begin
    share = np.clip((offset * way.conj()).real / square, 0.0, 1.0)
    far = np.abs(offset - share * way)
    covered = np.clip(np.minimum(half, far + 0.5) - np.maximum(-half, far - 0.5), 0.0, 1.0)
    size = canvas.shape[1]
    seen = (covered > 0) & (row >= 0) & (row < size) & (column >= 0) & (column < size)
    place = (np.broadcast_to(owner[:, None], row.shape), row, column)
    np.maximum.at(canvas, tuple(index[seen] for index in place), (contrast * covered[seen]).astype("f4"))
