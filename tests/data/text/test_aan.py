"""Tests of pairs of papers as bytes."""

import gzip

import numpy as np
import pytest

from molslice.data import build_dataset
from molslice.data.text.aan import FILES, Aan
from molslice.types import DataSpec, MolsliceError


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))


PAIRS = [
    (b"1.0", b"P01", b"P02", b'a "quoted, text', b"short"),
    (b"0", b"P03", b"P04", b"\xff\x00 no UTF-8", b"another of more than ten bytes"),
]


def write(folder, rows=PAIRS, compress=False, **others):
    folder.mkdir(exist_ok=True)
    for split, name in FILES.items():
        text = b"".join(b"\t".join(cells) + b"\n" for cells in others.get(split, rows))
        (folder / (name + ".gz" if compress else name)).write_bytes(gzip.compress(text) if compress else text)
    return folder


@pytest.mark.parametrize("compress", [False, True])
def test_pairs_are_read_as_bytes(tmp_path, compress):
    dataset = build_dataset(
        "aan", {"root": str(write(tmp_path / "tsv", compress=compress)), "max_tokens": 10}
    )
    assert dataset.spec == DataSpec(2, "ids", 257, max_tokens=10, paired=True, vocabulary="bytes")
    assert Aan.describe({"root": "nowhere", "max_tokens": 10}) == dataset.spec
    assert Aan.describe({"root": "nowhere"}).max_tokens == 4000
    assert {name: rows.tolist() for name, rows in dataset.splits.items()} == {
        "train": [0, 1],
        "valid": [2, 3],
        "test": [4, 5],
    }
    assert dataset.targets[:, 0].tolist() == [1, 0] * 3
    assert dataset.num_tokens.tolist() == [15, 20] * 3
    batch = dataset.collate([0, 1])
    assert bytes((batch.tokens[0] - 1).tolist()) == b'a "quoted,'
    assert bytes((batch.tokens[1] - 1).tolist()) == b"\xff\x00 no UTF-"
    assert batch.token_mask is None
    assert batch.pair_tokens[0].tolist() == [byte + 1 for byte in b"short"] + [0] * 5
    assert batch.pair_mask[0].tolist() == [True] * 5 + [False] * 5
    assert bytes((batch.pair_tokens[1] - 1).tolist()) == b"another of"
    assert not dataset.errors


def test_bad_rows_keep_their_place_with_a_reason(tmp_path):
    bad = [
        (b"1.0", b"P01", b"P02", b"only one text"),
        (b"2.0", b"P01", b"P02", b"a", b"b"),
        (b"1.0", b"P01", b"P02", b"", b"b"),
        (b"1.0", b"P01", b"P02", b"a", b""),
        (b"1.0", b"P01", b"P02", b"a", b"b", b"c"),
    ]
    for _ in range(2):  # read, and as it is kept
        dataset = Aan(root=write(tmp_path / "tsv", train=[*PAIRS, *bad]))
        name = FILES["train"]
        assert dataset.errors == {
            2: f"{name}, line 3: 4 cells instead of 5: label, id1, id2, text1, text2",
            3: f"{name}, line 4: invalid label '2.0'; choices: 0, 1",
            4: f"{name}, line 5: text1 is empty",
            5: f"{name}, line 6: text2 is empty",
            6: f"{name}, line 7: 6 cells instead of 5: label, id1, id2, text1, text2",
        }
        assert np.flatnonzero(dataset.num_tokens == 0).tolist() == [2, 3, 4, 5, 6]
        assert np.isnan(dataset.targets[2:7]).all()
        assert dataset.labeled_rows("train").tolist() == [0, 1]
        assert dataset.splits["valid"].tolist() == [7, 8]


def test_what_is_missing_says_how_to_get_it(tmp_path):
    with pytest.raises(MolsliceError, match=r"neither new_aan_pairs\.train\.tsv .*lra_release\.gz"):
        Aan(root=tmp_path)
    with pytest.raises(MolsliceError, match=r"no such folder: .*lra_release\.gz"):
        Aan(root=tmp_path / "nowhere")
    write(tmp_path / "ids", rows=[(b"1.0", b"P01", b"P02")])  # what the arena's repository itself holds
    with pytest.raises(
        MolsliceError, match=r"no valid pair in the files: .*line 1: 3 cells .*lra_release\.gz"
    ):
        Aan(root=tmp_path / "ids")
    with pytest.raises(MolsliceError, match="max_tokens must be at least 1, got 0"):
        Aan(root=tmp_path, max_tokens=0)
