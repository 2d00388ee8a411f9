"""Cells that are limits of a value, such as `>10` and `<0.1`."""

from collections.abc import Sequence

import numpy as np

__all__ = ["RELATIONS", "side_of", "split_limits"]

RELATIONS = {
    **dict.fromkeys(("=", "==", "~", "≈"), 0),
    **dict.fromkeys((">", ">=", "=>", ">>", "≥", "≫"), 1),
    **dict.fromkeys(("<", "<=", "=<", "<<", "≤", "≪"), -1),
}  # 1 for a lower limit, -1 for an upper limit, 0 for an exact value
_FIRST = frozenset(relation[0] for relation in RELATIONS)


def side_of(cell: str) -> int | None:
    """Return what a relation means, as in `RELATIONS`; None for another text. Quotes are ignored."""
    return RELATIONS.get(cell.strip().strip("'\"").strip())


def split_limits(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Divide cells into relations and numbers.

    Args:
        texts: Cells, such as `> 10`, `~5` or `7`.

    Returns:
        The cells without relation, and what the relations mean, int8 [n]: 1 for a lower limit, -1 for an
        upper limit, 0 for an exact value.
    """
    rests, sides = list(texts), np.zeros(len(texts), np.int8)
    for place, text in enumerate(texts):
        cell = text.strip()
        if cell[:1] in _FIRST and cell:
            relation = cell[:2] if cell[:2] in RELATIONS else cell[0]
            rests[place], sides[place] = cell[len(relation) :].strip(), RELATIONS[relation]
            if not rests[place]:  # a relation without a number is no missing value
                rests[place], sides[place] = text, 0
    return rests, sides
