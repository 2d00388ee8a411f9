"""The rule that puts a molecule into one of three places by its similarity to the training molecules.

The rule is chosen on held-out rows: how much larger are the errors of molecules that are less similar to the
training molecules of the models that predict them, and how often do the intervals hold the measured value?
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from molslice.uncertainty.conformal import quantile_rank, required_rows

LIKE, EDGE, OUTSIDE = PLACES = ("like the training molecules", "at the edge", "outside")

FEWEST_ROWS = 60  # held-out rows by which the rule is chosen
MOST_COMPARED = 2_000  # held-out rows whose nearest training molecule is searched
SMALLEST_GROUP, GROWTH = 15, 1.3  # rows of the least similar group, and of each next one relative to it
LARGER_ERROR, MUCH_LARGER_ERROR = 1.25, 2.0  # relative to the mean error of all rows
LEVEL = 0.9  # of the intervals
MISSES = 2.0  # standard errors of the coverage below the level
FEWEST_BELOW, SHARE_BELOW = 5, 0.01  # rows that are less similar than a molecule which is not outside
USUAL_SIMILARITY = 0.4  # of molecules that are like the training molecules, without held-out rows


@dataclass(frozen=True, slots=True)
class Group:
    """Held-out rows of about one similarity.

    Attributes:
        low: Smallest similarity.
        high: Largest similarity.
        rows: Number of rows, where rows of one molecule count as one.
        error: Mean error relative to all rows: 1 is the mean of all.
        coverage: Share of the rows in their 90% interval; None without intervals.
    """

    low: float
    high: float
    rows: int
    error: float
    coverage: float | None = None


@dataclass(frozen=True, slots=True)
class SimilarityRule:
    """The similarities at which the places of molecules begin.

    Attributes:
        edge: Smallest similarity of a molecule that is not outside.
        like: Smallest similarity of a molecule that is like the training molecules, at least `edge`.
        groups: The held-out rows by which the rule was chosen, from the least similar ones; empty if there
            were too few, and the usual similarities hold.
    """

    edge: float
    like: float
    groups: tuple[Group, ...] = ()

    @classmethod
    def usual(cls, threshold: float) -> Self:
        """Return the rule without enough held-out rows.

        `threshold` is the similarity that 95% of the training molecules have with their nearest other one.
        """
        edge = round(threshold, 2)
        return cls(edge, max(edge, USUAL_SIMILARITY))

    @classmethod
    def choose(
        cls,
        similarities: np.ndarray,
        errors: np.ndarray,
        covered: np.ndarray | None = None,
        *,
        threshold: float,
        molecules: np.ndarray | None = None,
    ) -> Self:
        """Choose the rule by held-out rows.

        Args:
            similarities: Similarity of each row to the nearest molecule that the models which predict it were
                trained on, float [n].
            errors: Mean error of each row relative to the mean error of each target, float [n]; NaN for a row
                without any.
            covered: Share of the targets of each row whose interval holds the measured value, float [n], NaN
                for a row without intervals; None without intervals.
            threshold: See `usual`.
            molecules: Number or name of the molecule of each row, [n], whose rows count as one; None if each
                row has its own molecule.
        """
        if molecules is not None:
            similarities, errors = _means(similarities, molecules), _means(errors, molecules)
            covered = None if covered is None else _means(covered, molecules)
        known = np.flatnonzero(np.isfinite(errors))
        if len(known) < FEWEST_ROWS or not np.any(errors[known] > 0):
            return cls.usual(threshold)
        order = known[np.argsort(similarities[known], kind="stable")]
        nearest, sizes = similarities[order], errors[order] / errors[order].mean()
        held = None if covered is None else covered[order]
        groups = tuple(
            _group(nearest[rows], sizes[rows], None if held is None else held[rows])
            for rows in np.split(np.arange(len(order)), _ends(len(order)))
        )
        rows = np.array([group.rows for group in groups])
        expected, _ = _decreasing(np.array([group.error for group in groups]), rows)
        shares = np.array([LEVEL if group.coverage is None else group.coverage for group in groups])
        missed, pooled = _decreasing(1.0 - shares, rows)
        chance = MISSES * np.sqrt(LEVEL * (1.0 - LEVEL) / pooled)
        tested = nearest[max(FEWEST_BELOW, int(SHARE_BELOW * len(order))) - 1]
        edge = max(float(tested), _end(groups, expected > MUCH_LARGER_ERROR))
        like = max(edge, _end(groups, (expected > LARGER_ERROR) | (missed > 1.0 - LEVEL + chance)))
        return cls(round(edge, 2), round(like, 2), groups)

    def place(self, similarity: float) -> str:
        """Return the place of a molecule with this similarity to its nearest training molecule."""
        return LIKE if similarity >= self.like else EDGE if similarity >= self.edge else OUTSIDE

    def to_mapping(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        groups = [{name: getattr(group, name) for name in Group.__slots__} for group in self.groups]
        return {"edge": self.edge, "like": self.like, "groups": groups}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild a rule.

        Raises:
            ValueError: The similarities are no rule.
        """
        edge, like = float(mapping["edge"]), float(mapping["like"])
        if not 0 <= edge <= like <= 1:
            raise ValueError(f"edge {edge} and like {like}")
        groups = tuple(
            Group(
                float(group["low"]),
                float(group["high"]),
                int(group["rows"]),
                float(group["error"]),
                None if group["coverage"] is None else float(group["coverage"]),
            )
            for group in mapping["groups"]
        )
        return cls(edge, like, groups)


def are_covered(scores: np.ndarray) -> np.ndarray:
    """Return whether the 90% interval of each row holds its value.

    Args:
        scores: Errors of held-out rows relative to their scales, float [n]; NaN where there is none.

    Returns:
        1 or 0, float64 [n]; NaN without an error, or for all rows if they are too few for an interval.
    """
    known = np.sort(scores[np.isfinite(scores)])
    if len(known) < required_rows(LEVEL):
        return np.full(len(scores), np.nan)
    return np.where(np.isfinite(scores), scores <= known[quantile_rank(len(known), LEVEL) - 1], np.nan)


def mean_of_rows(values: np.ndarray) -> np.ndarray:
    """Return the mean of the known values of each row, float64 [n]; NaN without any."""
    known = np.isfinite(values)
    sums = np.where(known, values, 0.0).sum(1)
    return np.divide(sums, known.sum(1), out=np.full(len(values), np.nan), where=known.any(1))


def _means(values: np.ndarray, molecules: np.ndarray) -> np.ndarray:
    """Return the mean of the known values of each molecule, float64 [molecules]; NaN without any."""
    known = np.isfinite(values)
    numbers = np.unique(molecules, return_inverse=True)[1]
    sums, counts = (np.bincount(numbers, weights) for weights in (np.where(known, values, 0.0), known))
    return np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)


def _ends(rows: int) -> list[int]:
    """Return where groups of so many rows end, without the end of the last one."""
    ends, end, size = list[int](), SMALLEST_GROUP, float(SMALLEST_GROUP)
    while end + size <= rows:
        ends.append(end)
        size *= GROWTH
        end += int(size)
    return ends


def _group(similarities: np.ndarray, errors: np.ndarray, covered: np.ndarray | None) -> Group:
    held = np.zeros(0) if covered is None else covered[np.isfinite(covered)]
    share = float(held.mean()) if len(held) else None
    return Group(float(similarities[0]), float(similarities[-1]), len(errors), float(errors.mean()), share)


def _decreasing(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest values that do not increase, by pooling neighbors, and the weight of each pool, [n].

    Source: Barlow, Bartholomew, Bremner and Brunk 1972, "Statistical Inference under Order Restrictions".
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight and number of values
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, total, count = value, weight, 1
        while pools and pools[-1][0] < mean:
            before, of_before, others = pools.pop()
            mean = (before * of_before + mean * total) / (of_before + total)
            total, count = total + of_before, count + others
        pools.append((mean, total, count))
    means, totals, counts = zip(*pools, strict=True)
    return np.repeat(means, counts), np.repeat(totals, counts)


def _end(groups: tuple[Group, ...], is_beyond: np.ndarray) -> float:
    """Return the smallest similarity above the groups that are beyond a limit; 0 if none is."""
    beyond = np.flatnonzero(is_beyond)
    return groups[min(beyond[-1] + 1, len(groups) - 1)].low if len(beyond) else 0.0
