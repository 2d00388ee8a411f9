"""Values of a table that are limits, such as `>10` in a cell, or `10` beside `>` in a column of relations."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from molslice.errors import MolsliceError
from molslice.files.tables import DEFAULT_FORMAT, NumberFormat, is_missing, numbers

RELATIONS = {
    **dict.fromkeys(("=", "==", "~", "≈"), 0),
    **dict.fromkeys((">", ">=", "=>", ">>", "≥", "≫"), 1),
    **dict.fromkeys(("<", "<=", "=<", "<<", "≤", "≪"), -1),
}  # 1 for a lower limit, -1 for an upper limit, 0 for an exact value
_FIRST = frozenset(relation[0] for relation in RELATIONS)


class ReadValues(NamedTuple):
    """The cells of a target.

    Attributes:
        values: The numbers, float64 [n], NaN where missing.
        of_cells: What the relation in the cell means, as in `RELATIONS`, int8 [n]; 0 without one.
        of_column: The same for the column of relations, int8 [n].
    """

    values: np.ndarray
    of_cells: np.ndarray
    of_column: np.ndarray

    @property
    def sides(self) -> np.ndarray:
        """Whether a value is a lower limit (1), an upper limit (-1) or exact (0), int8 [n]."""
        return np.where(np.isnan(self.values), 0, np.where(self.of_cells != 0, self.of_cells, self.of_column))

    @property
    def bounds(self) -> np.ndarray:
        """The least and the largest possible value, float64 [2, n], NaN where missing."""
        lower, upper = (np.where(self.sides == side, side * np.inf, self.values) for side in (-1, 1))
        return np.stack([lower, upper])


def plain_cell(cell: str) -> str:
    """Return a cell without blanks and quotes around it; empty for a missing value."""
    text = cell.strip().strip("'\"").strip()
    return "" if is_missing(text) else text


def split_limits(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Divide cells such as `> 10`, `~5` or `7` into relations and numbers.

    Returns:
        The cells without relation, and what the relations mean, as in `RELATIONS`, int8 [n].
    """
    rests, sides = list(texts), np.zeros(len(texts), np.int8)
    for place, text in enumerate(texts):
        cell = text.strip()
        relation = cell[:2] if cell[:2] in RELATIONS else cell[:1]
        rest = cell[len(relation) :].strip()
        # a relation without a number is no missing value, but <NA> is one
        if cell[:1] in _FIRST and rest and not is_missing(cell):
            rests[place], sides[place] = rest, RELATIONS[relation]
    return rests, sides


def read_limits(
    texts: Sequence[str],
    name: str,
    where: Callable[[int], str],
    relations: tuple[str, Sequence[str]] | None = None,
    how: NumberFormat = DEFAULT_FORMAT,
) -> ReadValues:
    """Read a target whose cells may have relations, with a column of relations and its cells if there is one.

    Raises:
        MolsliceError: A cell is not a number, or a relation is unknown or contradicts the cell.
    """
    cells, of_cells = split_limits(texts)
    values, of_column = numbers(cells, name, where, how), np.zeros(len(texts), np.int8)
    column, words = relations or ("", ())
    for row in np.flatnonzero(~np.isnan(values)).tolist() if words else ():
        relation = plain_cell(words[row])
        side = RELATIONS.get(relation or "=")
        if side is None:
            raise MolsliceError(
                f"{where(row)}, column {column!r}: {relation!r} is not a relation; choices: =, <, "
                ">, <=, >=, ~, or an empty cell; molslice fit --relation '' does not use the column"
            )
        if side * of_cells[row] < 0:
            raise MolsliceError(
                f"{where(row)}: {texts[row]!r} in column {name!r} contradicts {relation!r} "
                f"in column {column!r}"
            )
        of_column[row] = side
    return ReadValues(values, of_cells, of_column)
