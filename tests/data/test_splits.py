"""Tests of splits: every row once, by fraction, class, group or fold, reproducible by seed."""

import numpy as np
import pytest

from molslice.data.split_choice import checked_choice
from molslice.data.splits import OFFICIAL_TEST, Division, column_split
from molslice.types import MolsliceError

TENTHS = {"valid": 0.1, "test": 0.1}
CLASSES = np.repeat([0.0, 1.0, 2.0], [70, 23, 7]).astype(np.float32)
ALL = {"train": np.arange(100)}
BOTH = {"train": np.arange(80), "test": np.arange(80, 100)}
EACH = {"train": np.arange(50), "valid": np.arange(50, 60), "test": np.arange(60, 100)}


def stratified(parts=ALL, strata: np.ndarray | None = CLASSES, fractions=TENTHS, **options):
    return Division(fractions, **options).divide(parts, "rows.csv", strata=strata)


def sizes(splits):
    return {name: len(rows) for name, rows in splits.items()}


def together(splits):
    assert all(part.dtype == np.int64 for part in splits.values())
    return np.sort(np.concatenate(list(splits.values())))


def test_random_is_a_function_of_the_seed():
    rows = np.arange(100, 1100)
    splits, again, other = (Division(TENTHS, n).divide({"train": rows}, "") for n in (3, 3, 4))
    np.testing.assert_array_equal(together(splits), rows)
    assert sizes(splits) == {"train": 800, "valid": 100, "test": 100}
    assert all(np.array_equal(splits[name], again[name]) for name in splits)
    assert not np.array_equal(splits["test"], other["test"])


def test_without_a_fraction_nothing_is_drawn():
    rows = np.array([5, 3, 4])
    assert Division().divide({"train": rows}, "")["train"].tolist() == [5, 3, 4]
    assert sizes(Division({"valid": 0.5}).divide({"train": np.arange(10)}, "")) == {"train": 5, "valid": 5}


@pytest.mark.parametrize("strata", [None, CLASSES])
def test_what_the_source_names_stays(strata):
    splits = stratified(EACH, strata)
    assert list(splits) == ["train", "valid", "test"]
    for name, rows in EACH.items():
        np.testing.assert_array_equal(splits[name], rows)
    drawn = stratified(BOTH, strata, {"valid": 0.25, "test": 0.5})
    np.testing.assert_array_equal(drawn["test"], BOTH["test"])
    np.testing.assert_array_equal(together(drawn), np.arange(100))
    assert len(drawn["valid"]) == 20
    hidden = {"test": BOTH["test"], "hidden": np.arange(9), "train": BOTH["train"]}
    assert list(stratified(hidden, strata)) == ["train", "valid", "test", "hidden"]


def test_groups_stay_together():
    groups = np.array([*"a" * 50, *"b" * 30, *"c" * 9, *"d" * 8, "e", "f", "g"])
    rows = np.random.default_rng(0).permutation(100)
    splits = Division(TENTHS).divide({"train": rows}, "", groups=groups.tolist())
    np.testing.assert_array_equal(together(splits), np.arange(100))
    # of the groups of equal size the one with the last row comes first; rows 97 to 99 are e, f and g
    assert {name: set(groups[part].tolist()) for name, part in splits.items()} == {
        "train": {"a", "b"},
        "valid": {"c", "g"},
        "test": {"d", "e", "f"},
    }


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_divided_as_scaffolds_of_moleculenet(seed):
    draw = np.random.default_rng(seed)
    groups = [f"group {number}" for number in draw.geometric(0.05, size=draw.integers(60, 400))]
    found = Division(TENTHS).divide({"train": np.arange(len(groups))}, "", groups=groups)
    members = {name: [row for row, other in enumerate(groups) if other == name] for name in set(groups)}
    train, valid, test = [], [], []
    while members:
        size = max(map(len, members.values()))
        rows = members.pop(max((name for name in members if len(members[name]) == size), key=groups.index))
        if len(train) + len(rows) <= 0.8 * len(groups) + 1e-6:
            train += rows
        elif len(train) + len(valid) + len(rows) <= 0.9 * len(groups) + 1e-6:
            valid += rows
        else:
            test += rows
    for name, rows in (("train", train), ("valid", valid), ("test", test)):
        assert found[name].tolist() == sorted(rows)


def test_a_group_that_is_larger_than_the_training_rows_is_trained_on():
    groups = [*"a" * 85, *"bcdefghijklmnop"]
    found = Division(TENTHS).divide({"train": np.arange(100)}, "", groups=groups)
    assert set(range(85)) <= set(found["train"].tolist())


def test_rows_without_a_group_do_not_count():
    groups = [f"group {row}" if row % 2 == 0 else None for row in range(100)]
    found = Division(TENTHS).divide({"train": np.arange(100)}, "", groups=groups)
    named = Division(TENTHS).divide({"train": np.arange(50)}, "", groups=groups[::2])
    for name in ("valid", "test"):
        assert (2 * named[name]).tolist() == found[name].tolist()
    assert [len(part) for part in found.values()] == [90, 5, 5]


@pytest.mark.parametrize("over", ["all", "train"])
def test_every_row_is_tested_by_one_fold(over):
    strata = np.random.default_rng(3).permutation(CLASSES)
    tested = []
    for fold in range(5):
        splits = stratified(BOTH, strata, {"valid": 0.1}, folds=5, fold=fold, fold_over=over)
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


def test_fractions_are_those_of_every_class():
    splits = stratified(fractions={"valid": 0.2, "test": 0.3})
    np.testing.assert_array_equal(together(splits), np.arange(100))
    assert sizes(splits) == {"train": 56, "valid": 14, "test": 30}
    for number, share in ((0, 21), (1, 6.9), (2, 2.1)):
        assert abs((CLASSES[splits["test"]] == number).sum() - share) <= 1


def test_valid_rows_of_the_source_take_part_in_folds():
    splits = stratified(EACH, folds=2, fold=0, fold_over="train")
    np.testing.assert_array_equal(splits[OFFICIAL_TEST], EACH["test"])
    assert len(splits["test"]) == 30


def test_folds_without_classes():
    folds = [stratified(strata=None, folds=4, fold=fold) for fold in range(4)]
    assert all(len(splits["test"]) == 25 for splits in folds)
    np.testing.assert_array_equal(together({str(k): s["test"] for k, s in enumerate(folds)}), np.arange(100))


def test_rows_without_a_class_are_divided_too():
    strata = np.where(np.arange(100) % 2, np.nan, CLASSES)
    splits = stratified(strata=strata, folds=4, fold=1)
    np.testing.assert_array_equal(together(splits), np.arange(100))
    assert abs(np.isnan(strata[splits["test"]]).sum() - 12.5) <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fractions": {"valid": 0}}, "valid_fraction must be between 0 and 1, got 0"),
        ({"fractions": {"test": 1.0}}, "test_fraction must be between 0 and 1"),
        ({"fractions": {"valid": "x"}}, "valid_fraction must be between 0 and 1, got 'x'"),
        ({"fractions": {"valid": True}}, "valid_fraction must be between 0 and 1, got True"),
        ({"seed": -1}, "split seed must be a non-negative integer, got -1"),
        ({"folds": 5}, "must be given together, got folds=5, fold=None"),
        ({"folds": 1, "fold": 0}, "folds must be at least 2"),
        ({"folds": 5, "fold": 5}, "between 0 and 4, got 5"),
        ({"fold_over": "test"}, "choices: all, train"),
    ],
)
def test_divisions_are_checked(options, message):
    with pytest.raises(MolsliceError, match=message):
        Division(**options)


@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({}, 3, "a.csv: a fraction 0.1 of 3 rows leaves the split 'test' empty"),
        ({"strata": CLASSES}, 3, "a.csv: a fraction 0.1 of 3 rows leaves the split 'test' empty"),
        ({"groups": ["a"] * 9}, 9, "a.csv: a fraction 0.1 of 9 rows leaves the split 'valid' empty"),
        ({"fractions": {"valid": 0.9}}, 3, "a.csv: a fraction 0.1 of 3 rows leaves the split 'train' empty"),
        ({"fractions": {"valid": 0.6, "test": 0.5}}, 9, "split fractions leave no training rows"),
        ({"fractions": {"train": 0.8, "valid": 0.3}}, 9, "split fractions must be in .* sum to 1"),
        ({"folds": 4, "fold": 0}, 3, "3 rows of a.csv cannot be divided into 4 folds"),
        ({"groups": ["a"] * 9, "strata": CLASSES}, 9, "groups of rows cannot be combined with strata"),
        ({"groups": ["a"] * 9, "folds": 3, "fold": 0}, 9, "cannot be combined with strata or folds"),
    ],
)
def test_rows_that_cannot_be_divided(options, rows, message):
    division = {"fractions": TENTHS} | options
    how = {name: division.pop(name) for name in ("strata", "groups") if name in division}
    with pytest.raises(MolsliceError, match=message):
        Division(**division).divide({"train": np.arange(rows)}, "a.csv", **how)


def test_without_training_rows():
    with pytest.raises(MolsliceError, match=r"a.csv has no split 'train', only valid, test"):
        Division().divide({"valid": np.arange(3), "test": np.arange(3)}, "a.csv")


def test_columns_name_splits():
    words = ["train", " Train ", "val", "validation", "valid", "test", "TEST"]
    splits = column_split(words, "set", "a.csv", "row {}".format)
    assert {name: part.tolist() for name, part in splits.items()} == {
        "train": [0, 1],
        "valid": [2, 3, 4],
        "test": [5, 6],
    }


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ("train", "train Training TRAIN_SET train_val train+valid trainval train-validation train/val"),
        ("valid", "valid val validation Validation_Set dev val-set"),
        ("test", "test testing test_set holdout hold-out Hold_Out external external_set held_out"),
    ],
)
def test_the_usual_words_of_a_column_are_known(split, words):
    column = ["train", *words.split(), "hold out" if split == "test" else split]
    found = column_split(column, "set", "a.csv", "row {}".format)
    first = 0 if split == "train" else 1
    assert found[split].tolist() == list(range(first, len(column)))


@pytest.mark.parametrize("words", [["0", "1", "2"], ["0.0", " 1.0 ", "2.0"]])
def test_a_column_of_numbers_names_splits(words):
    splits = column_split(words, "set", "a.csv", "row {}".format)
    assert {name: rows.tolist() for name, rows in splits.items()} == {"train": [0], "valid": [1], "test": [2]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["train", "fold1", "test", "fold2", "fold1"],
            r"row 1, column 'set': 'fold1' is not one of train, valid, test "
            r"\(or trainval, val, dev, holdout, external\); nor is 'fold2'$",
        ),
        (["train", "traintest"], "'traintest' is not one"),
        (["train", "set"], "'set' is not one"),
        (["train", "tset"], "row 1, column 'set': 'tset' is not one of train, valid, test"),
        (["train", ""], "row 1, column 'set': '' is not one"),
        (["test"], "a.csv, column 'set' assigns no row to train$"),
        (["0", "1", "0"], "row 0, column 'set': '0' is not .*; 0, 1 and 2 are train, valid and test only if"),
        (["train", "2"], "row 1, column 'set': '2' is not one of train, valid, test; 0, 1 and 2 are"),
    ],
)
def test_other_words_are_refused(words, message):
    with pytest.raises(MolsliceError, match=message):
        column_split(words, "set", "a.csv", "row {}".format)


def test_choices_and_their_defaults():
    choice = checked_choice(None, {"train"})
    assert (choice.kind, choice.division) == ("random", Division(TENTHS))
    assert checked_choice("scaffold", {"train"}).kind == "scaffold"
    given = checked_choice({"fractions": [0.6, 0.2, 0.2], "seed": 7}, {"train"}).division
    assert given == Division({"train": 0.6, "valid": 0.2, "test": 0.2}, 7)
    assert checked_choice({"fractions": {"train": 1}}, {"train"}).division == Division({"train": 1})
    assert checked_choice({"kind": "column", "column": "set"}, {"train"}).column == "set"
    assert checked_choice(None, {"train", "valid", "test"}).kind == "files"
    fractions = checked_choice(None, {"train", "test"}).division.fractions
    assert fractions == pytest.approx({"valid": 1 / 9})


@pytest.mark.parametrize(
    ("split", "files", "message"),
    [
        ("randon", (), "did you mean 'random'"),
        ({"kind": ["random"]}, (), r"invalid split \['random'\]; did you mean 'random'"),
        ({"kind": "random", 1: 2}, (), "no option 1"),
        ({"kind": "random", "frac": [1]}, (), "no option 'frac'.*choices: fractions, seed"),
        ({"kind": "scaffold", "seed": 1}, (), "no option 'seed'"),
        ({"kind": "column"}, (), "needs the option column"),
        (
            {"kind": "column", "column": "a", "valid_fraction": 1},
            (),
            "valid_fraction must be between 0 and 1",
        ),
        ({"kind": "column", "column": "a", "fractions": 1}, (), "no option 'fractions'.*valid_fraction"),
        ({"kind": "column", "column": "set"}, ("test",), "cannot be combined with test_path"),
        ("random", ("valid",), "split cannot be used with valid_path"),
        ({"fractions": [0.5, 0.5]}, (), "given for train, valid, test"),
        ({"fractions": [0.8, 0.1, 0.1]}, ("test",), "given for train, valid, got"),
        ({"fractions": 0.5}, (), "given for train"),
        *(
            ({"fractions": fractions}, (), "split fractions")
            for fractions in ([0.8, 0.1, 0.2], [1.2, -0.1, -0.1], [0.0, 0.5, 0.5], ["a", 0.1, 0.1])
        ),
        ({"seed": -1}, (), "seed"),
        ({"seed": "a"}, (), "seed"),
    ],
)
def test_choices_are_checked(split, files, message):
    with pytest.raises(MolsliceError, match=message):
        checked_choice(split, {"train", *files})
