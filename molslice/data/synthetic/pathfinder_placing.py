"""Place the contours of Pathfinder pictures by rejection sampling."""

import cmath
import math
import random
from collections.abc import Iterable, Iterator, Sequence

from molslice.data.synthetic.pathfinder_rule import (
    CLEARANCE,
    Dash,
    PathfinderRule,
    Picture,
    distance,
    is_connected,
    to_piece,
)
from molslice.types import MolsliceError

BORDER = 1.0  # minimum distance of dashes from the edge, in pixels
TURNS = 12  # maximum directions tried for a dash
STARTS = 60  # maximum starts tried for a short contour, which is then left out
STEPS = 20  # maximum draws per dash of a pair of long contours from the same starts
BACK = 4  # maximum number of dashes removed when a contour is stuck
ATTEMPTS = 1_000  # maximum starts tried for a pair of long contours


def pictures(rule: PathfinderRule, rows: Iterable[int], seed: int) -> Iterator[Picture]:
    """Generate the picture of each row, determined by rule, seed and row.

    Two long contours and the short ones are placed first. Then two coin flips choose the long contour whose
    start is marked, and whether the end of the same or of the other contour is marked. Therefore only the
    markers depend on the label.

    Args:
        rule: The difficulty.
        rows: Row numbers.
        seed: Seed of all pictures.

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
        if (
            is_connected(picture) != label
        ):  # impossible with these distances; an error is better than a wrong label
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
            own, foreign = contours[turn], contours[1 - turn]
            dash = self.next_dash(own, foreign, [starts[1 - turn]], starts[turn])
            if dash is not None:
                own.append(dash)
            if len(own) == len(foreign) == self.rule.contour_length and self.are_ends_free(*contours):
                return contours
            if dash is None or len(own) == len(foreign) == self.rule.contour_length:
                del own[-self.draw.randint(1, BACK) :]
        return None

    def are_ends_free(self, one: list[Dash], two: list[Dash]) -> bool:
        """Return whether markers at the ends would touch neither the other contour nor its markers."""
        ends = [(contour[0][0], contour[-1][1]) for contour in (one, two)]
        if any(abs(p - q) < self.marks_clearance for p in ends[0] for q in ends[1]):
            return False
        return all(
            distance(dash, (end, end)) >= self.mark_clearance
            for foreign, own in ((one, ends[1]), (two, ends[0]))
            for end in own
            for dash in foreign
        )

    def short_contours(self, contours: Sequence[list[Dash]]) -> list[list[Dash]]:
        """Place up to `num_distractors` short contours."""
        marks = [end for contour in contours for end in (contour[0][0], contour[-1][1])]
        placed = [dash for contour in contours for dash in contour]
        found: list[list[Dash]] = []
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
                    found.append(contour)
                    placed += contour
                    break
        return found

    def next_dash(
        self, own: list[Dash], foreign: list[Dash], marks: list[complex], start: complex
    ) -> Dash | None:
        """Find a free position for the next dash, for the first one at `start`; None if there is none."""
        half = self.gap / 2
        for _ in range(TURNS):
            if own:
                before = own[-1][1] - own[-1][0]
                before /= abs(before)
                ahead = before * cmath.rect(1.0, self.turn())
                begin = own[-1][1] + half * (before + ahead)
            else:
                ahead, begin = cmath.rect(1.0, self.angle()), start
            dash = (begin, begin + self.rule.dash_length * ahead)
            if self.is_free(dash, foreign, marks) and self.is_free(dash, own[:-1], []):
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
