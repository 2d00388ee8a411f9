"""Tests of splits of rows."""

import numpy as np
import pytest

from molslice.data.splits import checked_choice, column_split, random_split, scaffold_split
from molslice.types import MolsliceError

THIRDS = {"train": 0.8, "valid": 0.1, "test": 0.1}


def check_partition(splits, rows):
    assert all(part.dtype == np.int64 for part in splits.values())
    assert sorted(np.concatenate([*splits.values()]).tolist()) == sorted(rows)


def test_random_is_a_function_of_the_seed():
    rows = np.arange(100, 1100)
    splits = random_split(rows, THIRDS, 3)
    check_partition(splits, rows)
    assert [len(part) for part in splits.values()] == [800, 100, 100]
    again, other = random_split(rows, THIRDS, 3), random_split(rows, THIRDS, 4)
    assert all(np.array_equal(splits[name], again[name]) for name in splits)
    assert not np.array_equal(splits["test"], other["test"])


def test_a_share_of_nothing_is_left_out():
    assert list(random_split(np.arange(10), {"train": 0.5, "valid": 0.5, "test": 0.0}, 0)) == [
        "train",
        "valid",
    ]


def test_scaffolds_stay_together():
    scaffolds = ["a"] * 50 + ["b"] * 30 + ["c"] * 9 + ["d"] * 8 + ["e", "f", "g"]
    rows = np.random.default_rng(0).permutation(100)
    splits = scaffold_split(rows, [scaffolds[row] for row in rows], THIRDS)
    check_partition(splits, range(100))
    assert {name: {scaffolds[row] for row in part} for name, part in splits.items()} == {
        "train": {"a", "b"},
        "valid": {"c", "e"},
        "test": {"d", "f", "g"},
    }


def test_columns_name_splits():
    words = ["train", " Train ", "val", "validation", "valid", "test", "TEST"]
    splits = column_split(words, "set", "row {}".format)
    assert {name: part.tolist() for name, part in splits.items()} == {
        "train": [0, 1],
        "valid": [2, 3, 4],
        "test": [5, 6],
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "tset"], "row 1, column 'set': 'tset' is not one of train, valid, test"),
        (["train", ""], "row 1, column 'set': '' is not one"),
        (["test"], "no row to train"),
    ],
)
def test_other_words_are_refused(words, message):
    with pytest.raises(MolsliceError, match=message):
        column_split(words, "set", "row {}".format)


@pytest.mark.parametrize("fractions", [(0.8, 0.1, 0.2), (1.2, -0.1, -0.1), (0.0, 0.5, 0.5), ("a", 0.1, 0.1)])
def test_fractions_are_checked(fractions):
    with pytest.raises(MolsliceError, match="split fractions"):
        random_split(np.arange(100), dict(zip(THIRDS, fractions, strict=True)), 0)


def test_a_split_that_would_be_empty():
    with pytest.raises(MolsliceError, match="0.1 of 3 rows leaves the split 'test' empty"):
        random_split(np.arange(3), THIRDS, 0)
    with pytest.raises(MolsliceError, match="leaves the split 'valid' empty"):
        scaffold_split(np.arange(9), ["a"] * 9, THIRDS)


def test_choices_and_their_defaults():
    choice = checked_choice(None, {"train"})
    assert (choice.kind, choice.fractions, choice.seed) == ("random", THIRDS, 0)
    assert checked_choice("scaffold", {"train"}).kind == "scaffold"
    assert checked_choice({"fractions": [0.6, 0.2, 0.2], "seed": 7}, {"train"}).seed == 7
    assert checked_choice({"fractions": {"train": 1}}, {"train"}).fractions == {
        "train": 1,
        "valid": 0,
        "test": 0,
    }
    assert checked_choice({"kind": "column", "column": "set"}, {"train"}).column == "set"
    assert checked_choice(None, {"train", "valid", "test"}).kind == "files"
    shares = checked_choice(None, {"train", "test"}).fractions
    assert shares == pytest.approx({"train": 8 / 9, "valid": 1 / 9})


@pytest.mark.parametrize(
    ("split", "files", "message"),
    [
        ("randon", (), "did you mean 'random'"),
        ({"kind": "random", "frac": [1]}, (), "no option 'frac'.*choices: fractions, seed"),
        ({"kind": "scaffold", "seed": 1}, (), "no option 'seed'"),
        ({"kind": "column"}, (), "needs the option column"),
        ({"kind": "column", "column": "set"}, ("test",), "cannot be combined with test_path"),
        ("random", ("valid",), "split cannot be used with valid_path"),
        ({"fractions": [0.5, 0.5]}, (), "given for train, valid, test"),
        ({"fractions": [0.8, 0.1, 0.1]}, ("test",), "given for train, valid, got"),
        ({"fractions": 0.5}, (), "given for train"),
        ({"seed": -1}, (), "seed"),
        ({"seed": "a"}, (), "seed"),
    ],
)
def test_choices_are_checked(split, files, message):
    with pytest.raises(MolsliceError, match=message):
        checked_choice(split, {"train", *files})
