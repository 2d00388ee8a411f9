"""What the values of targets say about them."""

import numpy as np
import pytest

from molslice.data.target_values import find_kind

ONLY_TWO = "of classes, only two can be learned, written as 0 and 1"
ALONE = "but is learned as numbers, like the others; learn it alone for classes"
RNG = np.random.default_rng(0)


def column(*values, rows=40):
    return np.resize(np.array(values, np.float64), rows)


@pytest.mark.parametrize(
    ("columns", "kind", "notices"),
    [
        ([column(0, 1)], "classification", []),
        ([column(0, 1, np.nan), column(1, 1, 0)], "classification", []),
        ([column(0, 0, np.nan)], "classification", []),
        ([RNG.normal(size=40)], "regression", []),
        ([column(np.nan)], "regression", []),
        (
            [column(0, 1, 2)],
            "regression",
            [f"y0: has only 0, 1 and 2, but is learned as numbers; {ONLY_TWO}"],
        ),
        (
            [column(-1, 0, 1)],
            "regression",
            [f"y0: has only -1, 0 and 1, but is learned as numbers; {ONLY_TWO}"],
        ),
        (
            [RNG.normal(size=40), column(1, 2)],
            "regression",
            ["y1: has only 1 and 2, but is learned as numbers; write classes as 0 and 1"],
        ),
        (
            [RNG.normal(size=40), column(0, 1)],
            "regression",
            [f"y1: has only 0 and 1, {ALONE}"],
        ),
        ([column(1, 2, 3, 4, 5, 6)], "regression", []),  # a count
        ([column(1, 2, 3, rows=9)], "regression", []),  # too few rows to say so
    ],
)
@pytest.mark.parametrize("kind_of_array", [np.float64, np.float32])
def test_targets_are_classes_if_all_are_0_and_1(columns, kind, notices, kind_of_array, monkeypatch):
    targets = np.stack(columns, axis=1).astype(kind_of_array)
    names = [f"y{index}" for index in range(len(columns))]
    assert find_kind(targets, names) == (kind, notices)
    monkeypatch.setattr("molslice.data.target_values.ROWS_AT_ONCE", 7)
    assert find_kind(targets, names) == (kind, notices)
