"""Tests of reading lines of plain and compressed files, and of damaged ones."""

import gzip

import pytest

from molslice.files import lines
from molslice.files.lines import find_file, read_byte_lines, read_lines
from molslice.types import MolsliceError

TEXT = "\ufefffirst\tzwölf\r\n\nwith\rin\u2028it\nlast".encode()
LINES = ["first\tzwölf", "", "with\rin\u2028it", "last"]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_lines_come_without_their_ends(tmp_path, compress):
    path = tmp_path / "a.txt"
    path.write_bytes(compress(TEXT))
    assert list(read_lines(path)) == LINES
    assert list(read_byte_lines(path)) == [line.encode() for line in LINES]
    path.write_bytes(compress(b""))
    assert list(read_lines(path)) == []


def test_another_encoding(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("a\nzwölf\n".encode("latin-1"))
    assert list(read_lines(path, "latin-1")) == ["a", "zwölf"]
    with pytest.raises(MolsliceError, match=r"a\.txt, line 2: byte 2 is not utf-8"):
        list(read_lines(path))


def test_the_plain_file_comes_before_the_compressed_one(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"packed"))
    assert find_file(tmp_path, "a.txt").name == "a.txt.gz"
    (tmp_path / "a.txt").write_bytes(b"plain")
    assert find_file(tmp_path, "a.txt").name == "a.txt"
    with pytest.raises(MolsliceError, match=r"neither b\.txt nor b\.txt\.gz"):
        find_file(tmp_path, "b.txt")
    with pytest.raises(MolsliceError, match="no such folder: .*nowhere"):
        find_file(tmp_path / "nowhere", "a.txt")


@pytest.mark.parametrize("damage", [lambda packed: packed[:-9], lambda packed: packed[:10] + b"\x00" * 40])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(damage(gzip.compress(bytes(range(200)) * 20)))
    with pytest.raises(MolsliceError, match=r"cannot read .*a\.txt\.gz.*: damaged gzip"):
        list(read_byte_lines(path))


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_line_without_an_end_is_refused_where_it_is_too_long(tmp_path, monkeypatch, compress):
    monkeypatch.setattr(lines, "LONGEST", 9)
    path = tmp_path / "a.bin"
    path.write_bytes(compress(b"12345678\n123456789"))
    assert list(read_lines(path)) == ["12345678", "123456789"]
    path.write_bytes(compress(b"1\n1234567890"))
    with pytest.raises(MolsliceError, match=r"cannot read .*a\.bin: line 2 has more than 9 bytes"):
        list(read_lines(path))


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(MolsliceError, match="no such file: .*missing"):
        list(read_lines(tmp_path / "missing"))
    with pytest.raises(MolsliceError, match="cannot read .*: Is a directory"):
        list(read_lines(tmp_path))
