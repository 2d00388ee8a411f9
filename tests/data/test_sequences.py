"""Tests of concatenated sequences, their batches, and the cache of arrays."""

import errno

import numpy as np
import pytest
import torch

from molslice.data import sequences
from molslice.data.sequences import SequenceDataset, Sequences, keep_arrays, smallest_type
from molslice.types import DataSpec, MolsliceError


class Words(SequenceDataset):
    source, kind, target_names, target_units = "words", "multiclass", ("label",), ("",)
    class_names = ("a", "b")

    def __init__(self, rows, pairs=None):
        self.sequences = Sequences.pack(rows, np.uint8)
        self.pairs = None if pairs is None else Sequences.pack(pairs, np.uint8)
        self.labels = np.arange(len(rows), dtype=np.float32)[:, None] % 2
        self.splits = {"train": np.arange(len(rows))}

    @property
    def spec(self):
        return DataSpec(2, "ids", vocabulary_size=256, max_tokens=9, paired=self.pairs is not None)


ROWS = [[3, 1, 4], [], [1, 5, 9, 2], [6]]


def test_a_row_comes_back_as_it_was():
    packed = Sequences.pack(ROWS, np.uint8)
    assert [row.tolist() for row in (packed[r] for r in range(4))] == ROWS
    assert packed.lengths.tolist() == [3, 0, 4, 1]
    assert packed.values.dtype == np.uint8
    values = Sequences.pack([np.ones((2, 3)), np.zeros((1, 3))], np.float32)
    assert values[0].shape == (2, 3)
    assert len(Sequences.pack([], np.uint8)) == 0


def test_long_rows_are_cut():
    packed = Sequences.pack(ROWS, np.uint8)
    assert [row.tolist() for row in (packed.cut(2)[r] for r in range(4))] == [[3, 1], [], [1, 5], [6]]
    assert packed.cut(4) is packed


@pytest.mark.parametrize("number", [256, -1])
def test_a_number_that_does_not_fit_is_refused(number):
    with pytest.raises(MolsliceError, match="do not fit into uint8"):
        Sequences.pack([[number]], np.uint8)


def test_the_smallest_type_holds_the_vocabulary():
    assert [smallest_type(n) for n in (1, 256, 257, 65_536, 65_537)] == [
        np.uint8,
        np.uint8,
        np.uint16,
        np.uint16,
        np.uint32,
    ]


def test_a_batch_holds_its_rows_in_order():
    batch = Words(ROWS).collate([2, 0])
    assert batch.tokens.tolist() == [[1, 5, 9, 2], [3, 1, 4, 0]]
    assert batch.token_mask is not None
    assert batch.token_mask.tolist() == [[True] * 4, [True] * 3 + [False]]
    assert batch.targets is not None
    assert batch.targets.tolist() == [[0.0], [0.0]]
    assert batch.rows is not None
    assert batch.rows.tolist() == [2, 0]
    assert len(batch) == 2


def test_without_padding_there_is_no_mask():
    assert Words(ROWS).collate([0]).token_mask is None
    moved = Words(ROWS).collate([0, 3]).to("cpu")
    assert isinstance(moved.token_mask, torch.Tensor)


def test_two_sequences_a_row():
    data = Words(ROWS, [[1], [2], [], [7, 8]])
    assert data.num_tokens.tolist() == [4, 0, 0, 3]
    batch = data.collate([3, 0])
    assert batch.pair_tokens is not None
    assert batch.pair_tokens.tolist() == [[7, 8], [1, 0]]
    assert data.labeled_rows("train").tolist() == [0, 3]


@pytest.mark.parametrize(
    ("rows", "message"),
    [([], "at least one row"), ([4], "has 4 rows"), ([0, 1], r"could not be read.*\[1\]")],
)
def test_bad_rows_are_named(rows, message):
    with pytest.raises(MolsliceError, match=message):
        Words(ROWS).collate(rows)


def test_kept_arrays_are_made_once_for_each_identity(tmp_path):
    made = []

    def build(number):
        made.append(number)
        return {"values": np.full(3, number)}

    for identity in (1, 1, 2):
        found = keep_arrays([tmp_path / "cache"], {"of": identity}, lambda i=identity: build(i))
        assert found["values"].tolist() == [identity] * 3
    assert made == [1, 2]
    assert not list((tmp_path / "cache").glob(".*"))


def test_arrays_that_were_just_written_are_not_read_again(tmp_path, monkeypatch):
    read = []
    original = sequences.array_checksum
    monkeypatch.setattr(sequences, "array_checksum", lambda array: read.append(array) or original(array))
    for times in (1, 2):
        found = keep_arrays([tmp_path], {}, lambda: {"values": np.arange(3)})
        assert isinstance(found["values"], np.memmap)
        assert len(read) == times


def flip_last_byte(file):
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


DAMAGES = {
    "cut": ("values.npy", lambda file: file.write_bytes(file.read_bytes()[:20])),
    "empty": ("values.npy", lambda file: file.write_bytes(b"")),
    "a changed value": ("values.npy", flip_last_byte),
    "another shape": ("values.npy", lambda file: np.save(file, np.zeros((3, 1), np.int64))),
    "another type": ("values.npy", lambda file: np.save(file, np.zeros(3, np.float32))),
    "a header without arrays": ("header.json", lambda file: file.write_text('{"arrays": []}')),
    "a deep header": ("header.json", lambda file: file.write_text("[" * 100_000)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_arrays_are_made_again(damage, tmp_path):
    name, do = DAMAGES[damage]
    for number in range(2):
        found = keep_arrays([tmp_path], {}, lambda: {"values": np.arange(3)})
        assert found["values"].tolist() == [0, 1, 2]
        if number == 0:
            (file,) = tmp_path.glob(f"*/{name}")
            do(file)


def test_where_nothing_can_be_written_they_stay_in_memory(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    found = keep_arrays([blocked], {}, lambda: {"values": np.arange(2)})
    assert found["values"].tolist() == [0, 1]
    assert f"cannot write the cache in {blocked}" in caplog.text


def test_an_interrupted_writing_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(path, array):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        keep_arrays([tmp_path], {}, lambda: {"values": np.arange(2)})
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_an_error_that_names_it(tmp_path, monkeypatch):
    def fail(path, array):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(MolsliceError, match=rf"{tmp_path}.*: No space left on device; .*cache_dir"):
        keep_arrays([tmp_path], {}, lambda: {"values": np.arange(2)})
    assert not list(tmp_path.iterdir())
