"""Columns whose cells are the names of classes."""

import numpy as np
import pytest

from molslice.files.tables import NumberFormat
from molslice.files.tables.classes import class_numbers, count_classes, has_words, known_numbers
from molslice.types import MolsliceError


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["blocker", "", "non-blocker", "NA"], True),
        (["+", "-", "+++", "+/-"], True),
        (["class 1", "Class 2"], True),
        (["blocker", "0"], False),
        (["1", "2.5"], False),
        ([">10", "<5"], False),
        (["10 nM"], False),
        (["2020-01-01"], False),
        (["", "none"], False),
        ([], False),
    ],
)
def test_words_are_not_numbers_limits_or_dates(texts, expected):
    assert has_words(texts) is expected


def test_missing_words_are_no_classes():
    how = NumberFormat(missing=("unclear", -1))
    assert has_words(["low", "unclear"], how)
    assert count_classes(["low", "Unclear", "-1.0", "", "high"], how) == {"low": 1, "high": 1}
    numbers = class_numbers(["high", "UNCLEAR", "low", "-1"], "y", str, ("low", "high"), how)
    np.testing.assert_array_equal(numbers, [1, np.nan, 0, np.nan])
    np.testing.assert_array_equal(known_numbers(["active", "unclear", "No", "true"], how), [1, np.nan, 0, 1])


def test_spellings_of_one_class_are_counted_together_by_the_most_frequent():
    texts = ["low", " Low ", "LOW", "Low", "very  high", "very high", "1", "1.0"]
    assert count_classes(texts) == {"Low": 4, "very  high": 2, "1": 2}


def test_another_word_is_refused_with_its_row():
    with pytest.raises(MolsliceError, match=r"row 1, column 'y': 'hgih' is not a class; choices: low, high"):
        class_numbers(["low", "hgih"], "y", lambda row: f"row {row}", ("low", "high"))
