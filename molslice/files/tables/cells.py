"""Convert the cells of a column to numbers or labels; messages name row, column and text."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from molslice.errors import MolsliceError

if TYPE_CHECKING:
    import pandas as pd

MISSING = ("", "nan", "na", "n/a", "<na>", "null", "none")
TRUTH = {"true": 1.0, "false": 0.0}
CLASS_WORDS = {
    **dict.fromkeys(("yes", "active", "positive", "toxic"), 1.0),
    **dict.fromkeys(("no", "inactive", "negative", "nontoxic", "non-toxic"), 0.0),
}
OF_CLASSES = "and write classes as 0 and 1, or as a pair such as active and inactive; "
ADVICE = {
    r"[<>≤≥].*": " (a limit is no value: leave the cell empty, or use molslice fit, which learns limits)",
    r"[~≈].*": " (write the number alone)",
    r"#.*": " (leave unknown values empty)",
    r"[\u2010-\u2015\u2212]\s*[\d.,]+.*": " (its minus sign is another character: write a hyphen, -)",
    r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)+(\.\d*)?": " (write a decimal point, and no separator of "
    "thousands; or name the decimal mark: --decimal , or data.decimal)",
    r"[+-]?\d{1,3}(\.\d{3}){2,}": " (if a point separates thousands, give --decimal , or data.decimal)",
    r"[+-]?\d{1,3}([\s'\u2019]\d{3})+([.,]\d*)?": " (write no separator of thousands)",
    r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}(\D.*)?": " (it is a date: give a column of numbers)",
    r"[\d.]+\s*[-\u2010-\u2015]\s*[\d.]+": " (a range is no value: leave the cell empty)",
    r"[+-]?\d+(\.\d*)?\s*[^\W\d_].*|[+-]?\d+(\.\d*)?\s*[%±°].*": " (write the number alone)",
    r"\D*": f" (leave unknown values empty, {OF_CLASSES}or name the word with --missing-value or "
    "data.missing_values)",
}
DECIMALS = (".", ",")
_WITH_COMMA = r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d*)?([eE][+-]?\d+)?"


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How the numbers of a table are written.

    Attributes:
        decimal: The decimal mark, `.` or `,`. With `,`, a point separates thousands. None means `.` where
            nothing speaks against it.
        missing: Cells that are missing values: numbers by value, texts without regard to upper case.
        classes: Whether all values are classes: 0, 1 or a word of `CLASS_WORDS`.

    Raises:
        MolsliceError: The mark is another one, or a missing value is infinite, or no number and no text.
    """

    decimal: str | None = None
    missing: tuple[float | str, ...] = ()
    classes: bool = False

    def __post_init__(self) -> None:
        if self.decimal not in (None, *DECIMALS):
            raise MolsliceError(f"the decimal mark must be . or , but got {self.decimal!r}")
        for value in self.missing:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise MolsliceError(f"a missing value must be a number or a text, got {value!r}")

    def is_missing(self, words: "pd.Series", values: np.ndarray) -> np.ndarray:
        """Return which cells have a missing value, by their text in lower case and their number, bool [n]."""
        if not self.missing:
            return np.zeros(len(values), bool)
        floats = list[float]()
        for value in self.missing:
            with suppress(ValueError):
                floats.append(float(value))
        return words.isin(self.missing_texts).to_numpy() | np.isin(values, floats)

    @property
    def missing_texts(self) -> set[str]:
        """The missing values as texts in lower case."""
        return {str(value).strip().lower() for value in self.missing}


DEFAULT_FORMAT = NumberFormat()


def is_missing(cell: str) -> bool:
    """Return whether a cell is empty or a usual word for a missing value."""
    return cell.strip().lower() in MISSING


def numbers(
    texts: Sequence[str],
    column: str,
    where: Callable[[int], str],
    how: NumberFormat = DEFAULT_FORMAT,
    *,
    of_target: bool = True,
) -> np.ndarray:
    """Convert cells to numbers. `true` is 1 and `false` is 0 if no cell is another number.

    An empty cell and `nan`, `na`, `n/a`, `<na>`, `null` or `none` are NaN.

    Args:
        texts: The cells.
        column: Name of their column, for messages.
        where: Describes the row of a cell by its index, for messages.
        how: How the numbers are written.
        of_target: Whether the column is a target, which may have classes, for messages.

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
    plain = text.where(~missing, None)
    if how.decimal == ",":
        written = plain.str.fullmatch(_WITH_COMMA, na=False)
        plain = (
            plain.where(written, None).str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
        )
    wide = np.array(pd.to_numeric(plain, errors="coerce"), dtype=np.float64)
    marked = how.is_missing(words, wide)
    missing, wide = missing | marked, np.where(marked, np.nan, wide)
    if how.classes or np.isin(wide[~np.isnan(wide)], (0.0, 1.0)).all():
        for word, value in {**TRUTH, **(CLASS_WORDS if how.classes else {})}.items():
            wide[(words == word).to_numpy() & ~missing] = value
    for wrong, complaint in (
        (np.isnan(wide) & ~missing, "is not a number"),
        (np.isinf(wide), "is infinite; leave the cell empty where the target is unknown"),
        (np.abs(wide) > np.finfo(np.float32).max, "is too large for 32-bit floating point"),
        (~np.isin(wide, (0.0, 1.0)) & ~missing if how.classes else missing[:0], "is neither 0 nor 1"),
    ):
        if wrong.any():
            place = int(wrong.argmax())
            if np.isnan(wide[place]):
                advice = _advice(text[place], how)
                complaint += advice if of_target else advice.replace(OF_CLASSES, "")
            raise MolsliceError(f"{where(place)}, column {column!r}: {texts[place]!r} {complaint}")
    return wide


def class_words(
    columns: Mapping[str, Sequence[str]], how: NumberFormat = DEFAULT_FORMAT
) -> dict[str, list[str]]:
    """Find columns of classes that are written as words, such as active and inactive; see `CLASS_WORDS`.

    Args:
        columns: The first cells of each target.
        how: How their numbers are written.

    Returns:
        What each word means, such as `active is 1`, by column. Empty if no column has such a word, or a cell
        of any column is neither a class nor a missing value.
    """
    meanings: dict[str, list[str]] = {}
    for name, cells in columns.items():
        words = {cell.strip().lower() for cell in cells if not is_missing(cell)} - how.missing_texts
        if not words <= {"0", "1", "0.0", "1.0", *TRUTH, *CLASS_WORDS}:
            return {}
        if named := sorted(words & CLASS_WORDS.keys()):
            meanings[name] = [f"{word} is {CLASS_WORDS[word]:.0f}" for word in named]
    return meanings


def labels(
    texts: Sequence[str], column: str, where: Callable[[int], str], how: NumberFormat = DEFAULT_FORMAT
) -> np.ndarray:
    """Convert cells to 0 and 1, float32 [len(texts)], as `numbers` does with `classes`."""
    return numbers(texts, column, where, replace(how, classes=True)).astype(np.float32)


def _advice(text: str, how: NumberFormat) -> str:
    """Say what to write instead of a text that is not a number; nothing if that is not known."""
    if how.decimal == "," and re.fullmatch(r"[+-]?[\d.,]+", text):
        return " with a decimal comma (a point separates thousands, as in 1.234,5)"
    return next((advice for pattern, advice in ADVICE.items() if re.fullmatch(pattern, text)), "")
