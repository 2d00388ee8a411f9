"""Columns whose cells are the names of classes."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np

from molslice.errors import MolsliceError
from molslice.files.tables.cells import CLASS_WORDS, DEFAULT_FORMAT, TRUTH, NumberFormat, is_missing

KNOWN_CLASSES = {**CLASS_WORDS, **TRUTH}
_WORD = re.compile(r"[^\W\d_].*|[+-]+(/-)?")  # not a number, a limit, a date, or a text such as `10 nM`


def class_key(text: str) -> str:
    """Return what spellings of one class have in common: `Low` and `low`, or `1` and `1.0`."""
    word = text.strip().lower()
    try:
        return f"{float(word):.15g}"
    except ValueError:
        return " ".join(word.split())


def has_words(texts: Sequence[str], how: NumberFormat = DEFAULT_FORMAT) -> bool:
    """Return whether there are cells that are not missing, and all of these are words."""
    words = {text.strip() for text in texts if not _is_missing(text, how)}
    return bool(words) and all(map(_WORD.fullmatch, words))


def count_classes(
    texts: Sequence[str], how: NumberFormat = DEFAULT_FORMAT, named: Collection[str] = ()
) -> dict[str, int]:
    """Count the cells of each class, by its most frequent spelling, of equally frequent ones the first.

    The keys in `named` are classes, also if they are words for a missing value, such as `none`.
    """
    spellings: dict[str, Counter[str]] = {}
    for text, count in Counter(text.strip() for text in texts).items():
        if class_key(text) in named or not _is_missing(text, how):
            spellings.setdefault(class_key(text), Counter())[text] += count
    return {counts.most_common(1)[0][0]: counts.total() for counts in spellings.values()}


def class_numbers(
    texts: Sequence[str],
    column: str,
    where: Callable[[int], str],
    classes: Sequence[str],
    how: NumberFormat = DEFAULT_FORMAT,
) -> np.ndarray:
    """Convert the cells of a column to indices of classes, without regard to upper case.

    The arguments are as in `numbers`, with the names of the classes.

    Returns:
        Index of the class of each cell, NaN where missing, float64 [len(texts)].

    Raises:
        MolsliceError: A cell has another text. The message names its row, its column and its text.
    """
    numbers = {class_key(name): float(index) for index, name in enumerate(classes)}
    result = np.full(len(texts), np.nan)
    for place, text in enumerate(texts):
        if (number := numbers.get(class_key(text))) is not None:
            result[place] = number
        elif not _is_missing(text, how):
            raise MolsliceError(
                f"{where(place)}, column {column!r}: {text!r} is not a class; choices: {', '.join(classes)} "
                "(leave unknown values empty, or name the word with --missing-value)"
            )
    return result


def known_numbers(texts: Sequence[str], how: NumberFormat = DEFAULT_FORMAT) -> np.ndarray:
    """Convert cells that are `KNOWN_CLASSES` to 0 and 1, NaN where missing, float64 [len(texts)]."""
    return np.array([np.nan if _is_missing(text, how) else KNOWN_CLASSES[class_key(text)] for text in texts])


def _is_missing(text: str, how: NumberFormat) -> bool:
    if is_missing(text) or text.strip().lower() in how.missing_texts:
        return True
    if not how.missing:
        return False
    return class_key(text) in {class_key(str(value)) for value in how.missing}
