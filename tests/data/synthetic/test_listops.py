"""Tests of ListOps: generated, or read from the files of the arena and of Nangia and Bowman."""

import gzip

import numpy as np
import pytest

from molslice.data import build_dataset
from molslice.data.synthetic.listops import FILES, Listops
from molslice.data.synthetic.listops_rule import NUMBERS, SYMBOLS, evaluate
from molslice.types import DataSpec, MolsliceError
from tests.real_data import shared

SMALL = {"min_length": 8, "max_length": 40, "max_depth": 4, "counts": (60, 20, 10)}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))


def text_of(dataset, row):
    return " ".join(SYMBOLS[number - 1] for number in dataset.sequences[row])


def write_arena(folder, compress=False):
    """Write a file in the format of the arena, with parentheses around every argument."""
    rows = ["( ( ( [MAX 3 ) 1 ) ] )\t3", "( ( ( [SM 9 ) ( ( ( [MED 1 ) 4 ) ] ) ) ] )\t1"]
    for name in FILES.values():
        text = "\r\n".join(["Source\tTarget", *rows, "5\t5", ""])
        path = folder / (name + ".gz" if compress else name)
        path.write_bytes(gzip.compress(text.encode()) if compress else text.encode())
    return folder


def test_what_is_made():
    dataset = build_dataset("listops", dict(SMALL))
    assert (
        dataset.spec
        == Listops.describe(SMALL)
        == DataSpec(10, "ids", len(SYMBOLS) + 1, max_tokens=40, vocabulary="listops-1")
    )
    assert {name: len(rows) for name, rows in dataset.splits.items()} == {
        "train": 60,
        "valid": 20,
        "test": 10,
    }
    assert np.concatenate(list(dataset.splits.values())).tolist() == list(range(90))
    assert len({text_of(dataset, row) for row in range(90)}) == 90
    for row in range(90):
        assert dataset.targets[row, 0] == evaluate(dataset.sequences[row].tolist())
        assert 8 < dataset.num_tokens[row] < 40
    assert dataset.errors == {}
    batch = dataset.collate([3, 4])
    assert batch.tokens.max() <= len(SYMBOLS)
    assert batch.tokens[0, : dataset.num_tokens[3]].tolist() == dataset.sequences[3].tolist()


def test_it_is_kept_and_the_options_decide(tmp_path):
    first, again = Listops(**SMALL), Listops(**SMALL)
    assert isinstance(again.sequences.values, np.memmap)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    np.testing.assert_array_equal(first.sequences.values, again.sequences.values)
    other = Listops(**SMALL, seed=1)
    assert text_of(other, 0) != text_of(first, 0)
    longer = Listops(**{**SMALL, "counts": (80, 20, 10)})
    assert text_of(longer, 79) == text_of(first, 79)


def test_it_can_be_cut():
    dataset = Listops(**SMALL, max_tokens=12)
    assert dataset.num_tokens.max() == 12 == dataset.spec.max_tokens
    whole = Listops(**SMALL)
    assert dataset.sequences[5].tolist() == whole.sequences[5].tolist()[:12]
    assert dataset.targets[5] == whole.targets[5]


@pytest.mark.parametrize("compress", [False, True])
def test_files_of_the_arena(tmp_path, compress):
    dataset = build_dataset("listops", {"root": str(write_arena(tmp_path, compress))})
    assert [text_of(dataset, row) for row in range(3)] == ["[MAX 3 1 ]", "[SM 9 [MED 1 4 ] ]", "5"]
    assert dataset.targets[:, 0].tolist() == [3, 1, 5] * 3
    assert {name: rows.tolist() for name, rows in dataset.splits.items()} == {
        "train": [0, 1, 2],
        "valid": [3, 4, 5],
        "test": [6, 7, 8],
    }
    assert dataset.spec.max_tokens == 7
    assert Listops.describe({"root": str(tmp_path)}) is None
    assert Listops.describe({"root": str(tmp_path), "max_tokens": 5}).max_tokens == 5
    assert not dataset.errors


def test_one_file_is_divided(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{n % 10}\t( ( ( [MAX {n % 10} ) 0 ) ] )\n" for n in range(40)))
    dataset = Listops(path=path)
    assert [len(dataset.splits[name]) for name in FILES] == [32, 4, 4]
    assert sorted(np.concatenate(list(dataset.splits.values())).tolist()) == list(range(40))
    other = tmp_path / "test.tsv"
    other.write_text("7\t7\n")
    with_test = Listops(path=path, test_path=other)
    assert [len(with_test.splits[name]) for name in FILES] == [36, 4, 1]
    assert with_test.splits["test"].tolist() == [40]
    assert with_test.targets[40, 0] == 7


def test_bad_rows_keep_their_place_with_a_reason(tmp_path):
    path = tmp_path / "mixed.tsv"
    path.write_text(
        "3\t[MAX 3 1 ]\n4\t[MAX 3 1 ]\n3\t[MAX 3 x ]\n3\n\n3\t[MAX 3 1\nthree\t[MAX 3 1 ]\n10\t10\n5\t5\n" * 5
    )
    dataset = Listops(path=path)
    assert len(dataset) == 45
    assert np.flatnonzero(dataset.num_tokens).tolist() == [row for row in range(45) if row % 9 in (0, 8)]
    assert np.isnan(dataset.targets[1, 0])
    assert dataset.errors[1] == "mixed.tsv, line 2: the expression evaluates to 3, but the label is 4"
    assert "invalid symbol 'x'; choices: 0 1 2" in dataset.errors[2]
    assert "separated by a tab, got '3'" in dataset.errors[3]
    assert "separated by a tab, got ''" in dataset.errors[4]
    assert "1 lists are not closed" in dataset.errors[5]
    assert "separated by a tab, got 'three" in dataset.errors[6]
    assert "separated by a tab" in dataset.errors[7]
    assert dataset.errors == Listops(path=path).errors  # as they are kept
    assert np.isfinite(dataset.targets[dataset.labeled_rows("train")]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"counts": (1, 2)}, "counts must be the number of rows of train, valid, test"),
        ({"counts": (1, 0, 2)}, "counts must be"),
        ({"seed": -1}, "seed must be a non-negative integer"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"max_depth": 2}, "longest expression has 12 symbols"),
        ({"root": "a", "path": "b"}, "cannot be combined"),
        ({"test_path": "b"}, "needs path"),
        ({"root": "/nowhere"}, "no such folder: /nowhere"),
        ({"path": "/nowhere.tsv"}, "no such file: /nowhere.tsv"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(MolsliceError, match=message):
        Listops(**options)


def test_files_without_listops_are_named(tmp_path):
    with pytest.raises(MolsliceError, match=r"neither basic_train\.tsv nor basic_train\.tsv\.gz"):
        Listops(root=tmp_path)
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(
        MolsliceError, match=r"no row of .*other\.csv is ListOps: other\.csv, line 1: expected"
    ):
        Listops(path=path)
    path.write_text("")
    with pytest.raises(MolsliceError, match="is ListOps: it is empty"):
        Listops(path=path)


def test_another_seed_draws_other_rows_of_a_file(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("1\t1\n" * 100)
    one, other = (Listops(path=path, seed=seed).splits["test"].tolist() for seed in (0, 1))
    assert one != other


@pytest.mark.parametrize(
    "name", ["test", "test_d5c", "test_d8", "test_d14", "test_d20", "test_d20a", "test_d20s"]
)
def test_every_label_of_nangia_and_bowman_is_what_the_expression_comes_to(name):
    dataset = Listops(path=shared("listops", f"{name}.tsv.gz"))
    assert dataset.errors == {}
    assert len(dataset) == (500 if name == "test" else 10_000)
    assert dataset.num_tokens.min() >= 1
    assert set(np.unique(dataset.targets)) == set(range(10))
    assert dataset.sequences.values.max() <= NUMBERS["]"]
