"""Generate pictures of Pathfinder: two long contours of dashes among short ones, and two marked ends.

Points are complex numbers, in pixels to the right and down; a pixel spans one integer to the next.
"""

import cmath
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from jaxtyping import Float, UInt8

from molslice.types import MolsliceError

Dash = tuple[complex, complex]
CLEARANCE = 1.2  # dashes that do not follow each other are at least this many gaps apart
BORDER = 1.0  # minimum distance of dashes from the edge, in pixels
TURNS = 12  # maximum directions tried for a dash
STARTS = 60  # maximum starts tried for a short contour, which is then left out
STEPS = 20  # maximum draws per dash of a pair of long contours from the same starts
BACK = 4  # maximum number of dashes removed when a contour is stuck
ATTEMPTS = 1_000  # maximum starts tried for a pair of long contours


@dataclass(frozen=True, slots=True)
class PathfinderRule:
    """Difficulty of the pictures. Lengths are in pixels.

    Attributes:
        size: Side of a picture.
        contour_length: Number of dashes of each of the two long contours.
        distractor_length: Number of dashes of a short contour.
        num_distractors: Number of short contours; a picture without space for all has fewer.
        dash_length: Length of a dash.
        dash_gaps: Gaps between consecutive dashes; each picture has one of them.
        dash_width: Width of a dash.
        continuity: The angle t between consecutive dashes has the density cos(continuity t)^2 and is at most
            90 degrees / continuity.
        marker_radius: Radius of a marker, a white disk.
        start_distance: Distance between the starts of the two long contours.
        contrast: Factor of the brightness of dashes; the product is clipped to white.
    """

    size: int
    contour_length: int
    distractor_length: int
    num_distractors: int
    dash_length: float
    dash_gaps: tuple[float, ...]
    dash_width: float
    continuity: float
    marker_radius: float
    start_distance: float
    contrast: float

    def __post_init__(self) -> None:
        lengths = (self.dash_length, self.dash_width, *self.dash_gaps, self.marker_radius, self.contrast)
        if not self.dash_gaps or not all(length > 0 for length in lengths):
            raise MolsliceError(f"lengths, gaps and contrast must be positive, got {self}")
        if self.contour_length < 2 or self.distractor_length < 1 or self.num_distractors < 0:
            raise MolsliceError(
                "contour_length must be at least 2, distractor_length 1 and num_distractors 0, got "
                f"{self.contour_length}, {self.distractor_length} and {self.num_distractors}"
            )
        if self.continuity < 0.75:
            raise MolsliceError(
                f"continuity must be at least 0.75 (turns of 120 degrees), got {self.continuity}"
            )


_HARD = PathfinderRule(
    size=32,
    contour_length=14,
    distractor_length=4,
    num_distractors=5,
    dash_length=2.0,
    dash_gaps=(2.0,),
    dash_width=0.5,
    continuity=1.0,
    marker_radius=1.5,
    start_distance=7.0,
    contrast=1.5,
)
_LARGER = replace(_HARD, dash_length=5.0, continuity=1.8)
# the values of the arena's data (its data/pathfinder.py; a gap there is two margins), except size 16 (ours)
RULES: Mapping[int, PathfinderRule] = MappingProxyType(
    {
        16: replace(
            _HARD,
            size=16,
            contour_length=5,
            distractor_length=2,
            num_distractors=2,
            dash_gaps=(1.0,),
            marker_radius=1.0,
            start_distance=5.0,
        ),
        32: _HARD,
        64: replace(_LARGER, size=64, dash_width=1.0, marker_radius=2.5, start_distance=12.0, contrast=0.8),
        128: replace(
            _LARGER,
            size=128,
            num_distractors=8,
            dash_gaps=(4.0, 6.0),
            dash_width=1.5,
            marker_radius=3.0,
            start_distance=20.0,
            contrast=0.9,
        ),
        256: replace(
            _LARGER,
            size=256,
            num_distractors=7,
            dash_gaps=(6.0,),
            dash_width=2.0,
            marker_radius=5.0,
            start_distance=27.0,
            contrast=1.0,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of two long contours, short ones, and two marked ends.

    Attributes:
        rule: The difficulty.
        gap: The gap between consecutive dashes, in pixels.
        dashes: The dashes of all contours, in random order.
        marks: The two marked ends.
        label: Whether the marked ends belong to one contour.
    """

    rule: PathfinderRule
    gap: float
    dashes: tuple[Dash, ...]
    marks: tuple[complex, complex]
    label: bool

    @property
    def reach(self) -> float:
        """Distance in pixels below which dashes belong to one contour; more than a gap."""
        return self.gap * (1 + CLEARANCE) / 2


def is_connected(picture: Picture) -> bool:
    """Return whether neighboring dashes connect the two marks, without knowledge of the contours."""
    start, goal = picture.marks
    touch, far = picture.rule.dash_width / 2, picture.reach + 2 * picture.rule.dash_length
    left = list(picture.dashes)
    border = [dash for dash in left if distance(dash, (start, start)) < touch]
    while border:
        current = border.pop()
        if distance(current, (goal, goal)) < touch:
            return True
        near = [
            dash
            for dash in left
            if abs(current[0] - dash[0]) < far and distance(current, dash) < picture.reach
        ]
        border += [dash for dash in near if dash != current]
        left = [dash for dash in left if dash not in near]
    return False


def distance(one: Dash, other: Dash) -> float:
    """Compute the minimum distance of two line segments, each of which may be a point, in pixels."""
    (a, b), (c, d) = one, other
    along, across = b - a, d - c
    turned = _cross(along, across)
    if turned:
        s, t = _cross(c - a, across) / turned, _cross(c - a, along) / turned
        if 0 <= s <= 1 and 0 <= t <= 1:
            return 0.0
    return min(to_piece(a, c, d), to_piece(b, c, d), to_piece(c, a, b), to_piece(d, a, b))


def _cross(u: complex, v: complex) -> float:
    return u.real * v.imag - u.imag * v.real


def to_piece(point: complex, a: complex, b: complex) -> float:
    """Compute the minimum distance of a point from the line segment from `a` to `b`, in pixels."""
    way = b - a
    if not way:
        return abs(point - a)
    share = ((point - a) / way).real
    return abs(point - (a if share <= 0.0 else b if share >= 1.0 else a + share * way))


def pictures(rule: PathfinderRule, rows: Iterable[int], seed: int) -> Iterator[Picture]:
    """Generate the picture of each row, determined by rule, seed and row.

    Two long contours and the short ones are placed first. Then two coin flips choose the long contour whose
    start is marked, and whether the end of the same or of the other contour is marked. Therefore only the
    markers, and with them their distance, depend on the label: ends of one contour may be closer than ends of
    two.

    Raises:
        MolsliceError: No picture with these options could be generated.

    Source: the task of Houtkamp and Roelfsema 2010 as drawn by Linsley et al. 2018 (arXiv 1805.08315) and Kim
    et al. 2020 (arXiv 1906.01558), with their density of turns. They separate contours on a grid of pixels.
    Here contours have a minimum distance, so that following the dashes is never ambiguous.
    """
    for row in rows:
        draw = random.Random(f"{seed}/{row}")
        gap = draw.choice(rule.dash_gaps)
        placing = _Placing(rule, gap, draw)
        contours = placing.long_contours()
        dashes = [dash for contour in (*contours, *placing.short_contours(contours)) for dash in contour]
        draw.shuffle(dashes)
        first, label = draw.random() < 0.5, draw.random() < 0.5
        marks = (contours[first][0][0], contours[first if label else not first][-1][1])
        picture = Picture(rule, gap, tuple(dashes), marks, label)
        if is_connected(picture) != label:  # impossible; an error is better than a wrong label
            raise RuntimeError(f"the label of row {row} of seed {seed} contradicts the dashes")
        yield picture


class _Placing:
    """Places the contours of one picture."""

    def __init__(self, rule: PathfinderRule, gap: float, draw: random.Random) -> None:
        self.rule, self.gap, self.draw = rule, gap, draw
        self.clearance = CLEARANCE * gap
        # minimum distances from a marked end to the middle of a dash, and to another marked end
        self.mark_clearance = self.clearance + rule.marker_radius - rule.dash_width / 2
        self.marks_clearance = self.clearance + 2 * rule.marker_radius - rule.dash_width

    def long_contours(self) -> Sequence[list[Dash]]:
        """Grow two contours alternately from two starts. After a failure, try two other starts."""
        for _ in range(ATTEMPTS):
            start = self.anywhere()
            other = start + cmath.rect(self.rule.start_distance, self.angle())
            pair = self.grown_pair((start, other)) if self.is_inside(other) else None
            if pair is not None:
                return pair
        raise MolsliceError(
            f"{ATTEMPTS} attempts to place two contours of {self.rule.contour_length} dashes of "
            f"{self.rule.dash_length:g} pixels, {self.gap:g} apart, in {self.rule.size} x {self.rule.size} "
            "pixels all failed; ask for shorter contours, dashes or gaps, or a larger size"
        )

    def grown_pair(self, starts: tuple[complex, complex]) -> Sequence[list[Dash]] | None:
        """Extend the shorter contour until both are complete. A stuck contour loses a few dashes."""
        contours: tuple[list[Dash], list[Dash]] = [], []
        for _ in range(STEPS * self.rule.contour_length):
            turn = int(len(contours[0]) > len(contours[1]))
            contour, other = contours[turn], contours[1 - turn]
            dash = self.next_dash(contour, other, [starts[1 - turn]], starts[turn])
            if dash is not None:
                contour.append(dash)
            if len(contour) == len(other) == self.rule.contour_length and self.are_ends_free(*contours):
                return contours
            if dash is None or len(contour) == len(other) == self.rule.contour_length:
                del contour[-self.draw.randint(1, BACK) :]
        return None

    def are_ends_free(self, one: list[Dash], two: list[Dash]) -> bool:
        """Return whether markers at the ends would touch neither the other contour nor its markers."""
        ends = [(contour[0][0], contour[-1][1]) for contour in (one, two)]
        if any(abs(p - q) < self.marks_clearance for p in ends[0] for q in ends[1]):
            return False
        return all(
            distance(dash, (end, end)) >= self.mark_clearance
            for contour, others in ((one, ends[1]), (two, ends[0]))
            for end in others
            for dash in contour
        )

    def short_contours(self, contours: Sequence[list[Dash]]) -> list[list[Dash]]:
        """Place up to `num_distractors` short contours."""
        marks = [end for contour in contours for end in (contour[0][0], contour[-1][1])]
        placed = [dash for contour in contours for dash in contour]
        distractors: list[list[Dash]] = []
        for _ in range(self.rule.num_distractors):
            for _ in range(STARTS):
                contour: list[Dash] = []
                start = self.anywhere()
                if not self.is_free((start, start), placed, marks):
                    continue
                while len(contour) < self.rule.distractor_length:
                    dash = self.next_dash(contour, placed, marks, start)
                    if dash is None:
                        break
                    contour.append(dash)
                else:
                    distractors.append(contour)
                    placed += contour
                    break
        return distractors

    def next_dash(
        self, contour: list[Dash], others: list[Dash], marks: list[complex], start: complex
    ) -> Dash | None:
        """Find a free position for the next dash, for the first one at `start`; None if there is none."""
        half = self.gap / 2
        for _ in range(TURNS):
            if contour:
                before = contour[-1][1] - contour[-1][0]
                before /= abs(before)
                ahead = before * cmath.rect(1.0, self.turn())
                begin = contour[-1][1] + half * (before + ahead)
            else:
                ahead, begin = cmath.rect(1.0, self.angle()), start
            dash = (begin, begin + self.rule.dash_length * ahead)
            if self.is_free(dash, others, marks) and self.is_free(dash, contour[:-1], []):
                return dash
        return None

    def is_free(self, dash: Dash, dashes: list[Dash], marks: list[complex]) -> bool:
        a, b = dash
        if not (self.is_inside(a) and self.is_inside(b)):
            return False
        for mark in marks:
            if to_piece(mark, a, b) < self.mark_clearance:
                return False
        # the distance of the centers is sufficient to accept most dashes
        near, far = 2 * self.clearance, 2 * (self.clearance + self.rule.dash_length)
        for other in dashes:
            apart = abs(a + b - other[0] - other[1])
            if apart < near or (apart < far and distance(dash, other) < self.clearance):
                return False
        return True

    def is_inside(self, point: complex) -> bool:
        low, high = BORDER, self.rule.size - BORDER
        return low <= point.real <= high and low <= point.imag <= high

    def anywhere(self) -> complex:
        low, high = BORDER, self.rule.size - BORDER
        return complex(self.draw.uniform(low, high), self.draw.uniform(low, high))

    def angle(self) -> float:
        return 2 * math.pi * self.draw.random()

    def turn(self) -> float:
        while True:
            wide = math.pi * (self.draw.random() - 0.5)
            if self.draw.random() < math.cos(wide) ** 2:
                return wide / self.rule.continuity


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
