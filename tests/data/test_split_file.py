"""`split_dict.pt` is read and nothing in it is executed."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from molslice.data.split_file import LEGACY_MAGIC, read_split_file
from molslice.types import MolsliceError

SPLITS = {"train": list(range(300)), "valid": [300, 302], "test-dev": [301]}


def check(path, expected=SPLITS):
    found = read_split_file(path)
    assert {name: part.tolist() for name, part in found.items()} == expected
    assert all(part.dtype == np.int64 for part in found.values())


@pytest.mark.parametrize(
    "kind",
    [
        np.int64,
        np.int32,
        np.uint16,
        np.dtype(">i8"),
        list,
        torch.int64,
        torch.int32,
    ],
    ids=str,
)
def test_what_torch_saves_is_read(tmp_path, kind):
    def convert(part):
        if kind is list:
            return part
        return torch.tensor(part, dtype=kind) if isinstance(kind, torch.dtype) else np.array(part, kind)

    torch.save({name: convert(part) for name, part in SPLITS.items()}, tmp_path / "split_dict.pt")
    check(tmp_path / "split_dict.pt")


def test_the_format_before_zip_is_read(tmp_path):
    content = {name: np.array(part) for name, part in SPLITS.items()}
    torch.save(content, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    check(tmp_path / "old.pt")


def test_names_of_numpy_1_are_read(tmp_path):
    torch.save({"train": np.arange(3)}, tmp_path / "new.pt")
    with zipfile.ZipFile(tmp_path / "new.pt") as new, zipfile.ZipFile(tmp_path / "old.pt", "w") as old:
        text = new.read("new/data.pkl")
        assert b"numpy._core.multiarray" in text
        old.writestr("new/data.pkl", text.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    check(tmp_path / "old.pt", {"train": [0, 1, 2]})


def test_an_empty_split(tmp_path):
    torch.save({"train": np.arange(2), "test": np.arange(0)}, tmp_path / "s.pt")
    check(tmp_path / "s.pt", {"train": [0, 1], "test": []})


def test_tensors_that_share_a_storage(tmp_path):
    whole = torch.arange(10)
    torch.save({"train": whole[:6], "valid": whole[6:]}, tmp_path / "s.pt")
    check(tmp_path / "s.pt", {"train": [0, 1, 2, 3, 4, 5], "valid": [6, 7, 8, 9]})


class Malicious:
    """Runs a command when a careless reader unpickles it."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def write_zip(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, protocol=2))


def write_legacy(path, content):
    with path.open("wb") as file:
        for part in (LEGACY_MAGIC, 1001, {}, content, []):
            pickle.dump(part, file, protocol=2)


@pytest.mark.parametrize("write", [write_zip, write_legacy])
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
def test_nothing_is_executed(tmp_path, write, call):
    mark = tmp_path / "mark"
    arguments = [part.format(mark=str(mark)) if isinstance(part, str) else "os" for part in call[1:]]
    write(tmp_path / "bad.pt", {"train": Malicious(call[0], *arguments)})
    with pytest.raises(MolsliceError, match=r"bad.pt cannot be read .* it asks for"):
        read_split_file(tmp_path / "bad.pt")
    assert not mark.exists()


def test_the_malicious_file_would_work_on_a_careless_reader(tmp_path):
    mark = tmp_path / "mark"
    write_legacy(tmp_path / "bad.pt", {"train": Malicious(os.system, f"touch {mark}")})
    torch.load(tmp_path / "bad.pt", weights_only=False)
    assert mark.exists()


def test_a_file_leaves_no_trace_in_the_stand_ins(tmp_path):
    # BUILD with a slot state sets attributes of whatever is on the stack, here of the stand-in class itself
    attack = b"cnumpy.core.multiarray\n_reconstruct\n(N}X\x05\x00\x00\x00arrayK\x01stb."
    with zipfile.ZipFile(tmp_path / "bad.pt", "w") as archive:
        archive.writestr("archive/data.pkl", attack)
    with pytest.raises(MolsliceError):
        read_split_file(tmp_path / "bad.pt")
    torch.save({name: np.array(part) for name, part in SPLITS.items()}, tmp_path / "good.pt")
    check(tmp_path / "good.pt")


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
    ],
    ids=repr,
)
def test_something_else_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "split_dict.pt")
    with pytest.raises(MolsliceError, match=r"split_dict.pt"):
        read_split_file(tmp_path / "split_dict.pt")


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.0]),
        np.array([[1]]),
        np.array(["a"]),
        np.array([None]),
        np.zeros(1, [("a", "i8")]),
        torch.zeros(2),
        torch.arange(4).reshape(2, 2),
        torch.arange(9)[::2],
    ],
    ids=repr,
)
def test_other_arrays_are_refused(tmp_path, array):
    torch.save({"train": array}, tmp_path / "split_dict.pt")
    with pytest.raises(MolsliceError, match=r"split_dict.pt"):
        read_split_file(tmp_path / "split_dict.pt")


def test_files_that_are_no_pickles(tmp_path):
    path = tmp_path / "split_dict.pt"
    with pytest.raises(MolsliceError, match="no such file"):
        read_split_file(path)
    with pytest.raises(MolsliceError, match="cannot be read"):
        read_split_file(tmp_path)
    torch.save({"train": np.arange(1000)}, tmp_path / "good.pt")
    good = (tmp_path / "good.pt").read_bytes()
    for content in (b"", b"hello", good[:200], good[200:], pickle.dumps({"train": [1]}), b"\x80\x04."):
        path.write_bytes(content)
        with pytest.raises(MolsliceError, match="cannot be read"):
            read_split_file(path)


def test_random_damage_is_refused_or_read(tmp_path):
    torch.save({"train": np.arange(50)}, tmp_path / "good.pt")
    with zipfile.ZipFile(tmp_path / "good.pt") as archive:
        good = archive.read("good/data.pkl")
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(500):
        bad = bytearray(good)
        for place in generator.integers(0, len(bad), 3):
            bad[place] = generator.integers(0, 256)
        with zipfile.ZipFile(tmp_path / "bad.pt", "w") as archive:
            archive.writestr("archive/data.pkl", bytes(bad))
        try:
            read_split_file(tmp_path / "bad.pt")
        except MolsliceError:
            refused += 1
    assert 0 < refused < 500
