"""`split_dict.pt` is read without executing code from it."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from molslice.data.molecules import ogb_split
from molslice.data.molecules.ogb_split import LEGACY_MAGIC, read_split_file
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
        torch.int16,
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
    """Runs a command when it is unpickled."""

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
    with pytest.raises(MolsliceError, match=r"cannot read .*bad.pt .* it names"):
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


def unicode(text):
    return b"X" + len(text).to_bytes(4, "little") + text.encode()


def write_program(path, program, storages=(), compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", program)
        for number, content in enumerate(storages):
            archive.writestr(f"archive/data/{number}", content)


SHARED = b"]q\x00" + b"".join(b"](" + b"h%c" % i * 9 + b"eq%c" % (i + 1) for i in range(40))
PAIRS = [(i, i + 1) for i in range(60)]
BOMBS = {
    "nested lists": b"\x80\x02}" + unicode("train") + SHARED + b"s.",
    "text of nested lists": b"\x80\x02c_codecs\nencode\n" + SHARED + unicode("latin1") + b"\x86R.",
    "persistent id of nested lists": b"\x80\x02(" + SHARED + b"NK\x00NNtQ.",
    "type of nested lists": b"\x80\x02cnumpy\ndtype\n" + SHARED + b"\x85R.",
    "tuples used twice": b"\x80\x02})q\x00"
    + b"".join(b"h%c\x86q%c" % (i, i + 1) for i in range(60))
    + b"Ns.",
    "deep tuples": b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns.",
    "deep lists": b"\x80\x02}" + unicode("train") + b"]" * 1_000_000 + b"a" * 999_999 + b"s.",
    "a frozen set": b"\x80\x04(K\x01\x91.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_few_bytes_do_not_take_all_time_and_memory(tmp_path, name):
    """Without the checks, these files hang, end the process, or need tens of gigabytes."""
    write_program(tmp_path / "bad.pt", BOMBS[name])
    with pytest.raises(MolsliceError, match=r"bad\.pt") as caught:
        read_split_file(tmp_path / "bad.pt")
    assert len(str(caught.value)) < 300


def test_a_memo_of_high_numbers_is_refused_before_it_takes_memory(tmp_path):
    """Without the check, the memo needs gigabytes or raises a MemoryError."""
    write_program(tmp_path / "bad.pt", b"\x80\x02}r\xff\xff\xff\xff.")
    with pytest.raises(MolsliceError, match="memo index 4294967295 after 2 opcodes"):
        read_split_file(tmp_path / "bad.pt")


def storage_id(key, kind="storage"):
    """Return the persistent id of an int64 storage, as torch writes it. `key` may be opcodes."""
    name = key if isinstance(key, bytes) else unicode(key)
    parts = unicode(kind), b"ctorch\nLongStorage\n", name, unicode("cpu"), b"K\x03"
    return b"(" + b"".join(parts) + b"tQ"


def tensor_program(identity, size=3, offset=0):
    begin = b"J" + offset.to_bytes(4, "little", signed=True)
    shape = begin + b"K%c\x85K\x01\x85\x89ccollections\nOrderedDict\n)R" % size
    return (
        b"\x80\x02}" + unicode("train") + b"ctorch._utils\n_rebuild_tensor_v2\n(" + identity + shape + b"tRs."
    )


@pytest.mark.parametrize(
    ("identity", "size", "offset", "words"),
    [
        (storage_id("0", "module"), 3, 0, "other than a tensor storage"),
        (storage_id(b"C\x010"), 3, 0, "other than a tensor storage"),  # bytes in place of text
        (b"NQ", 3, 0, "cannot read"),
        (storage_id("../secret"), 3, 0, "cannot read"),
        (storage_id("1"), 3, 0, "cannot read"),
        (storage_id("0"), 4, 0, "not contiguous and one-dimensional"),
        (storage_id("0"), 3, 1, "not contiguous and one-dimensional"),
        (storage_id("0"), 3, -3, "not contiguous and one-dimensional"),
        (unicode("abc"), 3, 0, "not contiguous and one-dimensional"),
    ],
)
def test_a_foreign_persistent_id_or_a_short_storage_is_refused(tmp_path, identity, size, offset, words):
    storage = np.arange(3).tobytes()
    write_program(tmp_path / "good.pt", tensor_program(storage_id("0")), [storage])
    check(tmp_path / "good.pt", {"train": [0, 1, 2]})
    write_program(tmp_path / "bad.pt", tensor_program(identity, size, offset), [storage])
    with pytest.raises(MolsliceError, match=words):
        read_split_file(tmp_path / "bad.pt")


@pytest.mark.parametrize(
    ("shape", "dtype", "data"),
    [
        (b"K\x02\x85", b"cnumpy\ndtype\n" + unicode("i1") + b"\x85R", b"]"),  # a list in place of bytes
        # a storage in place of bytes
        (b"K\x18\x85", b"cnumpy\ndtype\n" + unicode("i1") + b"\x85R", storage_id("0")),
        (b"K\x02\x85", b"N", b"c_codecs\nencode\n" + unicode("ab") + unicode("latin1") + b"\x86R"),
        (b"K\x03\x85", b"cnumpy\ndtype\n" + unicode("i1") + b"\x85R", b"C\x02ab"),  # longer than its bytes
        (b"K\x02\x85", b"cnumpy\ndtype\n" + unicode("O8") + b"\x85R", b"C\x02ab"),
    ],
)
def test_a_foreign_state_of_an_array_is_refused(tmp_path, shape, dtype, data):
    def program(*parts):
        array = b"cnumpy.core.multiarray\n_reconstruct\n)R"
        return (
            b"\x80\x03}"
            + unicode("train")
            + array
            + b"(K\x01"
            + b"\x89".join([b"".join(parts[:2]), parts[2]])
            + b"tbs."
        )

    good = b"K\x02\x85", b"cnumpy\ndtype\n" + unicode("i1") + b"\x85R", b"C\x02ab"
    write_program(tmp_path / "good.pt", program(*good))
    check(tmp_path / "good.pt", {"train": [97, 98]})
    write_program(tmp_path / "bad.pt", program(shape, dtype, data), [bytes(24)])
    with pytest.raises(MolsliceError, match=r"cannot read .*bad\.pt"):
        read_split_file(tmp_path / "bad.pt")


@pytest.mark.parametrize("place", ["pickle", "storage", "storages together", "rows together"])
def test_a_zip_bomb_is_not_unpacked(tmp_path, monkeypatch, place):
    monkeypatch.setattr(ogb_split, "LARGEST_MEMBER", 100_000)
    monkeypatch.setattr(ogb_split, "MOST_ROWS", 1000)
    program, storages, words = tensor_program(storage_id("0")), [bytes(24)], "larger than 100000 bytes"
    if place == "pickle":
        program = b"\x80\x02" + unicode("a" * 200_000) + b"."
    elif place == "storage":
        storages = [bytes(200_000)]
    elif place == "storages together":
        storages = [bytes(80_000), bytes(80_000)]
        program = b"\x80\x02(" + storage_id("0") + storage_id("1") + b"t."
    else:
        words = "more than 1000 rows"
        torch.save({str(name): np.arange(600) for name in range(2)}, tmp_path / "bad.pt")
    if place != "rows together":
        write_program(tmp_path / "bad.pt", program, storages, zipfile.ZIP_DEFLATED)
    assert (tmp_path / "bad.pt").stat().st_size < 12_000
    with pytest.raises(MolsliceError, match=words):
        read_split_file(tmp_path / "bad.pt")


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
