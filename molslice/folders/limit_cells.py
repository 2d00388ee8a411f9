"""Limits, such as `>10`, in the table `rows.csv` of a fit: names of their columns, and cells."""

import math
from collections.abc import Sequence

from molslice.files.tables import free_name


def limit_columns(columns: Sequence[str], others: Sequence[str]) -> list[str]:
    """Name the columns of limits, given the columns of the targets and all columns before."""
    names = list[str]()
    for column in columns:
        names.append(free_name(f"{column}_limit", {*others, *names}))
    return names


def limit_text(lower: float, upper: float) -> str:
    """Write a limit as in a table: `>10`, `<0.1`, or `>1 <5` for both."""
    sides = ((">", float(lower)), ("<", float(upper)))
    return " ".join(f"{relation}{bound!r}" for relation, bound in sides if math.isfinite(bound))


def read_limit(cell: str) -> tuple[float, float]:
    """Return the least and the largest possible value of a limit, such as `>1.0 <5.0`; NaN without one."""
    sides = {text[0]: float(text[1:]) for text in cell.split()}
    return (sides.get(">", -math.inf), sides.get("<", math.inf)) if sides else (math.nan, math.nan)
