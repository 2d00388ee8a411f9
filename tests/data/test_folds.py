"""Tests of stratified splits and folds: every row once, equal class fractions, reproducible by seed."""

import numpy as np
import pytest

from molslice.data.folds import OFFICIAL_TEST, Division
from molslice.types import MolsliceError

CLASSES = np.repeat([0.0, 1.0, 2.0], [70, 23, 7]).astype(np.float32)
ALL = {"train": np.arange(100)}
BOTH = {"train": np.arange(80), "test": np.arange(80, 100)}


def together(splits):
    return np.sort(np.concatenate(list(splits.values())))


@pytest.mark.parametrize("over", ["all", "train"])
def test_every_row_is_tested_by_one_fold(over):
    strata = np.random.default_rng(3).permutation(CLASSES)
    tested = []
    for fold in range(5):
        splits = Division(folds=5, fold=fold, fold_over=over).divide(BOTH, strata)
        np.testing.assert_array_equal(together(splits), np.arange(100))
        tested.append(splits["test"])
        if over == "train":
            np.testing.assert_array_equal(splits[OFFICIAL_TEST], BOTH["test"])
        else:
            assert set(splits) == {"train", "valid", "test"}
    pool = np.arange(100 if over == "all" else 80)
    np.testing.assert_array_equal(np.sort(np.concatenate(tested)), pool)
    assert {len(part) for part in tested} == {len(pool) // 5}
    for number in range(3):
        counts = [int((strata[part] == number).sum()) for part in tested]
        assert max(counts) - min(counts) <= 1


def test_shares_are_those_of_every_class():
    splits = Division(valid_fraction=0.2, test_fraction=0.3).divide(ALL, CLASSES)
    np.testing.assert_array_equal(together(splits), np.arange(100))
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 56, "valid": 14, "test": 30}
    for number, share in ((0, 21), (1, 6.9), (2, 2.1)):
        assert abs((CLASSES[splits["test"]] == number).sum() - share) <= 1


def test_what_the_source_names_stays():
    parts = {"train": np.arange(50), "valid": np.arange(50, 60), "test": np.arange(60, 100)}
    splits = Division().divide(parts, CLASSES)
    assert list(splits) == ["train", "valid", "test"]
    for name, rows in parts.items():
        np.testing.assert_array_equal(splits[name], rows)
    carved = Division(valid_fraction=0.25).divide(BOTH, CLASSES)
    np.testing.assert_array_equal(carved["test"], BOTH["test"])
    assert len(carved["valid"]) == 20
    assert carved["valid"].max() < 80


def test_valid_rows_of_the_source_take_part_in_folds():
    parts = {"train": np.arange(50), "valid": np.arange(50, 60), "test": np.arange(60, 100)}
    splits = Division(folds=2, fold=0, fold_over="train").divide(parts, CLASSES)
    np.testing.assert_array_equal(splits[OFFICIAL_TEST], parts["test"])
    assert len(splits["test"]) == 30


def test_the_seed_decides():
    one, same, other = (Division(seed=seed).divide(ALL, CLASSES)["test"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert one.tolist() != other.tolist()


def test_rows_without_a_class_are_divided_too():
    strata = np.where(np.arange(100) % 2, np.nan, CLASSES)
    splits = Division(folds=4, fold=1).divide(ALL, strata)
    np.testing.assert_array_equal(together(splits), np.arange(100))
    assert abs(np.isnan(strata[splits["test"]]).sum() - 12.5) <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valid_fraction": 0}, "valid_fraction must be between 0 and 1, got 0"),
        ({"test_fraction": 1.0}, "test_fraction must be between 0 and 1"),
        ({"seed": -1}, "seed of the data"),
        ({"folds": 5}, "must be given together, got folds=5, fold=None"),
        ({"folds": 1, "fold": 0}, "folds must be at least 2"),
        ({"folds": 5, "fold": 5}, "between 0 and 4, got 5"),
        ({"folds": 5, "fold": 0, "test_fraction": 0.1}, "test_fraction cannot be used with folds"),
        ({"fold_over": "test"}, "choices: all, train"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(MolsliceError, match=message):
        Division(**options)


def test_rows_that_cannot_be_divided():
    with pytest.raises(MolsliceError, match="the source has its own test split"):
        Division(test_fraction=0.2).divide(BOTH, CLASSES)
    with pytest.raises(MolsliceError, match="0.1 of 3 rows for 'test'"):
        Division().divide({"train": np.arange(3)}, CLASSES)
    with pytest.raises(MolsliceError, match="3 rows cannot be divided into 4 folds"):
        Division(folds=4, fold=0).divide({"train": np.arange(3)}, CLASSES)
