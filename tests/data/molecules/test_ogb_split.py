"""`split_dict.pt` is read without executing code from it."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from molslice.data.molecules import ogb_split
from molslice.data.molecules.ogb_split import read_split_file
from molslice.types import MolsliceError

SPLITS = {"train": list(range(300)), "valid": [300, 302], "test-dev": [301]}


def check(path, expected=SPLITS):
    splits = read_split_file(path)
    assert {name: rows.tolist() for name, rows in splits.items()} == expected
    assert all(rows.dtype == np.int64 for rows in splits.values())


def rewrite(path, change, compression=zipfile.ZIP_STORED):
    """Change the pickle of a file of `torch.save`."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, change(content) if name.endswith("/data.pkl") else content)


@pytest.mark.parametrize(
    "kind",
    [np.int64, np.int32, np.uint16, np.dtype(">i8"), torch.int16, list, torch.int64, torch.int32],
    ids=str,
)
@pytest.mark.parametrize("zipped", [True, False])
def test_what_torch_saves_is_read(tmp_path, kind, zipped):
    def convert(rows):
        if kind is list:
            return rows
        return torch.tensor(rows, dtype=kind) if isinstance(kind, torch.dtype) else np.array(rows, kind)

    content = {name: convert(rows) for name, rows in SPLITS.items()}
    torch.save(content, tmp_path / "split_dict.pt", _use_new_zipfile_serialization=zipped)
    check(tmp_path / "split_dict.pt")


def test_names_of_numpy_1_are_read(tmp_path):
    torch.save({"train": np.arange(3)}, tmp_path / "old.pt")
    rewrite(tmp_path / "old.pt", lambda text: text.replace(b"numpy._core.", b"numpy.core."))
    check(tmp_path / "old.pt", {"train": [0, 1, 2]})


@pytest.mark.parametrize("convert", [list, np.arange, torch.arange])
def test_an_empty_split(tmp_path, convert):
    empty = [] if convert is list else convert(0)
    torch.save({"train": np.arange(2), "test": empty}, tmp_path / "s.pt")
    check(tmp_path / "s.pt", {"train": [0, 1], "test": []})


def test_tensors_that_share_a_storage(tmp_path):
    whole = torch.arange(10)
    torch.save({"train": whole[:6], "valid": whole[6:]}, tmp_path / "s.pt")
    check(tmp_path / "s.pt", {"train": [0, 1, 2, 3, 4, 5], "valid": [6, 7, 8, 9]})


class Malicious:
    """Runs a command when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        (os.system, "touch {mark}"),
        (eval, "open({mark!r}, 'w')"),
        (exec, "open({mark!r}, 'w')"),
        (getattr, os, "name"),
        (__import__, "this"),
        (np.load, "{mark}"),
        (torch.load, "{mark}"),
        (io.open, "{mark}", "w"),
    ],
    ids=lambda call: call[0].__name__,
)
def test_nothing_is_executed(tmp_path, zipped, call):
    mark = tmp_path / "mark"
    arguments = [word.format(mark=str(mark)) if isinstance(word, str) else "os" for word in call[1:]]
    content = {"train": Malicious(call[0], *arguments)}
    torch.save(content, tmp_path / "bad.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(MolsliceError, match=r"cannot read .*bad.pt .* it names .* not allowed"):
        read_split_file(tmp_path / "bad.pt")
    assert not mark.exists()


def test_the_malicious_file_would_work_on_a_careless_reader(tmp_path):
    mark = tmp_path / "mark"
    torch.save({"train": Malicious(os.system, f"touch {mark}")}, tmp_path / "bad.pt")
    torch.load(tmp_path / "bad.pt", weights_only=False)
    assert mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        [1, 2],
        {},
        None,
        {"train": "abc"},
        {"train": [1.5]},
        {"train": [[1], [2]]},
        {"train": [[1], 2]},
        {"train": None},
        {"train": 2**80},
        {"train": [2**80]},
        {1: [1]},
        {"train": np.array([1.0])},
        {"train": np.array([[1]])},
        {"train": np.array(["a"])},
        {"train": np.array([None])},
        {"train": np.zeros(1, [("a", "i8")])},
        {"train": torch.zeros(2)},
        {"train": torch.arange(4).reshape(2, 2)},
    ],
    ids=repr,
)
def test_something_else_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "split_dict.pt")
    with pytest.raises(MolsliceError, match=r"split_dict.pt") as caught:
        read_split_file(tmp_path / "split_dict.pt")
    assert len(str(caught.value)) < 400


def test_a_zip_bomb_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(ogb_split, "LARGEST_CONTENT", 100_000)
    torch.save({"train": np.arange(3)}, tmp_path / "bad.pt")
    rewrite(tmp_path / "bad.pt", lambda text: text + bytes(200_000), zipfile.ZIP_DEFLATED)
    assert (tmp_path / "bad.pt").stat().st_size < 12_000
    with pytest.raises(MolsliceError, match="larger than 100000 bytes"):
        read_split_file(tmp_path / "bad.pt")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_files_that_are_not_pickles(tmp_path):
    path = tmp_path / "split_dict.pt"
    with pytest.raises(MolsliceError, match="no such file"):
        read_split_file(path)
    with pytest.raises(MolsliceError, match="cannot read"):
        read_split_file(tmp_path)
    torch.save({"train": np.arange(1000)}, tmp_path / "good.pt")
    good = (tmp_path / "good.pt").read_bytes()
    for content in (b"", b"hello", good[:200], good[200:], pickle.dumps({"train": [1]}), b"\x80\x04."):
        path.write_bytes(content)
        with pytest.raises(MolsliceError, match="cannot read"):
            read_split_file(path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_ends_early_is_refused(tmp_path, zipped):
    path = tmp_path / "split_dict.pt"
    torch.save({"train": np.arange(500)}, path, _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()
    for length in range(0, len(content) - 8, 29):
        path.write_bytes(content[:length])
        with pytest.raises(MolsliceError, match="cannot read"):
            read_split_file(path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_random_damage_is_refused_or_read(tmp_path):
    generator = np.random.default_rng(0)

    def damage(text):
        damaged = bytearray(text)
        for place in generator.integers(0, len(text), 3):
            damaged[place] = generator.integers(0, 256)
        return bytes(damaged)

    refused = 0
    for _ in range(500):
        torch.save({"train": np.arange(50)}, tmp_path / "bad.pt")
        rewrite(tmp_path / "bad.pt", damage)
        try:
            read_split_file(tmp_path / "bad.pt")
        except MolsliceError:
            refused += 1
    assert 0 < refused < 500
