"""The rule of Pathfinder: two long contours of dashes among short ones, and two marked ends.

Points are complex numbers, in pixels to the right and down; a pixel spans one integer to the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from molslice.types import MolsliceError

Dash = tuple[complex, complex]
CLEARANCE = 1.2  # dashes that do not follow each other are at least this many gaps apart


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

    Raises:
        MolsliceError: A value is out of range.
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
        here = border.pop()
        if distance(here, (goal, goal)) < touch:
            return True
        near = [
            dash for dash in left if abs(here[0] - dash[0]) < far and distance(here, dash) < picture.reach
        ]
        border += [dash for dash in near if dash != here]
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
