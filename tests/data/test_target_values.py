"""What the values of targets say about them."""

import numpy as np
import pytest

from molslice.data.target_values import check_outliers, find_kind, find_outliers
from molslice.types import MolsliceError

SEVERAL = "if they are classes, give molslice fit --kind multiclass"
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
            [f"y0: has only 0, 1 and 2, but is learned as numbers; {SEVERAL}"],
        ),
        (
            [column(-1, 0, 1)],
            "regression",
            [f"y0: has only -1, 0 and 1, but is learned as numbers; {SEVERAL}"],
        ),
        (
            [RNG.normal(size=40), column(1, 2)],
            "regression",
            ["y1: has only 1 and 2, but is learned as numbers; if they are classes, write them as 0 and 1"],
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


NORMAL = RNG.normal(-3, 2, 200)
POTENCY = np.exp(RNG.normal(7, 3, 200))  # in nM


def mixed(values, *odd):
    """Return values with others in their first rows."""
    return np.concatenate([odd, values[len(odd) :]])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (NORMAL, {}),
        (POTENCY, {}),
        (np.round(POTENCY), {}),
        (-POTENCY, {}),
        (column(0, 1), {}),
        (column(-1, 0, 1), {}),
        (RNG.poisson(3, 200).astype(float), {}),
        (np.where(RNG.random(200) < 0.8, 0.0, POTENCY), {}),  # mostly zero
        (mixed(POTENCY, *[150_000.0] * 20), {}),  # the upper limit of an assay
        (mixed(POTENCY, 0, 0, 0), {}),
        (mixed(POTENCY, -0.5), {}),  # one noisy value
        (mixed(NORMAL, 12.0), {}),
        (100 - np.minimum(99.0, 10.0 ** RNG.normal(0.5, 0.7, 500)), {}),  # bound to plasma, in percent
        (mixed(NORMAL, *[-999] * 15), {-999: 15}),
        (mixed(NORMAL, -99, -99), {-99: 2}),
        (mixed(NORMAL, -999, 9999, -999, 9999, 1e10), {-999: 2, 9999: 2, 1e10: 1}),
        (mixed(NORMAL, 1e12), {1e12: 1}),
        (mixed(np.round(RNG.normal(6, 1, 200), 2), 57.0), {57: 1}),  # without its decimal point
        (mixed(POTENCY, -1, -1, -1), {-1: 3}),
        (mixed(POTENCY, -999, -999), {-999: 2}),
        (mixed(POTENCY, 1e30), {1e30: 1}),
        (mixed(np.minimum(POTENCY, 1e5), 1e8), {1e8: 1}),  # in another unit, above the limit of an assay
        (mixed(np.minimum(POTENCY, 1e5), 1e7), {}),
        (mixed(np.minimum(POTENCY, 1e5)[:90], 1e8), {}),  # too few others
        (mixed(column(0, 1), -999, -999, np.nan), {-999: 2}),
        (mixed(NORMAL[:19], 1e12), {}),  # too few rows to know
        (column(298, 300, 310, 400), {}),  # levels of an experiment
        (mixed(column(288, 298, 318), -999, -999, 9999), {-999: 2, 9999: 1}),
        (mixed(column(288, 288), -999), {-999: 1}),
        (mixed(column(288, 298, 318), -100), {}),
        (mixed(column(990, 1000, 1010), 999), {}),  # pressures
        (mixed(column(500, 750), 999), {}),
    ],
)
@pytest.mark.parametrize("kind_of_array", [np.float64, np.float32])
def test_values_far_outside_are_found(values, expected, kind_of_array):
    values = values.astype(kind_of_array)
    found = find_outliers(values)
    counts = {f"{value:.4g}": len(rows) for value, rows in found.items()}
    assert counts == {f"{value:.4g}": count for value, count in expected.items()}
    for value, rows in found.items():
        assert rows.tolist() == np.flatnonzero(values == value).tolist()
    if not set(values.tolist()) & {0.0, 1.0}:
        assert {-value for value in find_outliers(-values)} == set(found)  # the sign has no meaning


def test_values_far_outside_are_refused_or_named():
    targets = np.stack([NORMAL, mixed(NORMAL, 1.5, *[-999] * 7)], axis=1)
    arguments = targets, ["a", "b"], "t.csv", "t.csv, row {}".format
    with pytest.raises(MolsliceError) as caught:
        check_outliers(*arguments, "refuse")
    low, high = targets[8:, 1].min(), targets[:, 1].max()
    said = "-999 in 7 rows (row 1, row 2, row 3, row 4, row 5 and 2 others): far outside the other values, "
    said += f"{low:.6g} to {high:.6g}"
    assert str(caught.value) == (
        f"t.csv, column 'b': {said}. If -999 stands for a missing value, give "
        "--missing-value=-999; if it is right, give --outliers keep"
    )
    assert check_outliers(*arguments, "keep") == [f"b: {said}"]
    assert check_outliers(targets[:, :1], ["a"], *arguments[2:], "refuse") == []
    with pytest.raises(MolsliceError, match="invalid outliers 'drop'; choices: keep, refuse"):
        check_outliers(*arguments, "drop")
