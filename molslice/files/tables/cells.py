"""Convert the cells of a column to numbers or labels; messages name row, column and text."""

import re
from collections.abc import Callable, Sequence

import numpy as np

from molslice.types import MolsliceError

__all__ = ["labels", "numbers"]

MISSING = ("", "nan", "na", "n/a", "<na>", "null", "none")
TRUTH = {"true": 1.0, "false": 0.0}
ADVICE = {
    r"[<>≤≥].*": " (a limit is no value: leave the cell empty)",
    r"#.*": " (leave unknown values empty)",
    r"[\u2010-\u2015\u2212]\s*[\d.,]+.*": " (its minus sign is another character: write a hyphen, -)",
    r"[+-]?\d+(,\d+)+(\.\d*)?": " (write a decimal point, and no separator of thousands)",
    r"[+-]?\d+(\.\d*)?\s*[^\W\d_].*|[+-]?\d+(\.\d*)?\s*[%±°].*": " (write the number alone)",
    r"\D*": " (leave unknown values empty, and write classes as 0 and 1)",
}


def numbers(texts: Sequence[str], column: str, where: Callable[[int], str]) -> np.ndarray:
    """Convert cells to numbers. `true` is 1 and `false` is 0.

    An empty cell and `nan`, `na`, `n/a`, `<na>`, `null` or `none` are NaN.

    Args:
        texts: The cells.
        column: Name of their column, for messages.
        where: Describes the row of a cell by its index, for messages.

    Returns:
        The numbers, float64 [len(texts)].

    Raises:
        MolsliceError: A cell is not a number, is infinite, or exceeds the range of float32. The message names
            its row, its column and its text.
    """
    import pandas as pd  # takes longer to import than a prediction takes

    text = pd.Series(texts, dtype=object).str.strip()
    words = text.str.lower()
    missing = words.isin(MISSING).to_numpy()
    wide = np.array(pd.to_numeric(text.where(~missing, None), errors="coerce"), dtype=np.float64)
    for word, value in TRUTH.items():
        wide[(words == word).to_numpy()] = value
    for wrong, complaint in (
        (np.isnan(wide) & ~missing, "is not a number"),
        (np.isinf(wide), "is infinite; leave the cell empty where the target is unknown"),
        (np.abs(wide) > np.finfo(np.float32).max, "is too large for 32-bit floating point"),
    ):
        if wrong.any():
            place = int(wrong.argmax())
            if np.isnan(wide[place]):
                complaint += _advice(text[place])
            raise _complaint(where(place), column, texts[place], complaint)
    return wide


def labels(texts: Sequence[str], column: str, where: Callable[[int], str]) -> np.ndarray:
    """Convert cells to 0 and 1, as `numbers` does.

    Args:
        texts: The cells.
        column: Name of their column, for messages.
        where: Describes the row of a cell by its index, for messages.

    Returns:
        The labels, float32 [len(texts)].

    Raises:
        MolsliceError: A cell has any other text. The message names its row, its column and its text.
    """
    values = numbers(texts, column, where)
    wrong = ~np.isin(values, (0.0, 1.0)) & ~np.isnan(values)
    if wrong.any():
        place = int(wrong.argmax())
        raise _complaint(where(place), column, texts[place], "is neither 0 nor 1")
    return values.astype(np.float32)


def _advice(text: str) -> str:
    """Say what to write instead of a text that is not a number; nothing if that is not known."""
    return next((advice for pattern, advice in ADVICE.items() if re.fullmatch(pattern, text)), "")


def _complaint(place: str, column: str, text: str, complaint: str) -> MolsliceError:
    return MolsliceError(f"{place}, column {column!r}: {text!r} {complaint}")
