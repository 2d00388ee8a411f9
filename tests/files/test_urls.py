"""Tests of files named by URLs: in memory, in an archive, on a web server, and in an object store."""

import io

import fsspec
import pytest

from molslice.files import urls
from molslice.files.atomic import UnwritableError, atomic_file, atomic_path
from molslice.files.lines import read_lines
from molslice.files.urls import Url, as_file, expand_pattern, file_size, is_url
from molslice.types import MolsliceError
from tests.url_files import get, names, put, served


@pytest.fixture
def memory(tmp_path):
    """Return the URL of an empty folder in memory."""
    system = fsspec.filesystem("memory")
    folder = f"memory:/{tmp_path}"
    yield folder
    if system.exists(str(tmp_path)):
        system.rm(str(tmp_path), recursive=True)


@pytest.fixture
def web(tmp_path):
    """Serve a folder on this machine; return its path and its URL."""
    with served(tmp_path) as url:
        yield tmp_path, url


@pytest.mark.parametrize(
    "text",
    ["s3://b/k.csv", "memory://a", "simplecache::s3://b/k", "zip://a.csv::file:///b.zip", "http://h:1/x?y=1"],
)
def test_a_url_survives(text):
    assert is_url(text)
    assert as_file(text) == Url(text)
    assert str(as_file(text)) == text


@pytest.mark.parametrize("text", ["a.csv", "/a/b", "-", "a:b", "C::C.csv", "1://x", "./s3:/x"])
def test_a_path_is_no_url(text, tmp_path):
    assert not is_url(text)
    assert as_file(text) == type(tmp_path)(text)


def test_a_file_url_is_a_path(tmp_path):
    assert as_file(f"file://{tmp_path}/a.csv") == tmp_path / "a.csv"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("s3://b/k.csv", "k.csv"),
        ("s3://b/what?.csv", "what?.csv"),
        ("https://h/d/x.csv.gz?version=2#top", "x.csv.gz"),
        ("simplecache::s3://b/k.parquet", "k.parquet"),
        ("zip://in.smi::file:///b.zip", "in.smi"),
    ],
)
def test_the_name_has_the_ending_of_the_format(text, name):
    assert Url(text).name == name


def test_a_pattern_matches_files_in_order(memory):
    for name in ("b.csv", "a.csv", "c.txt", "deep/d.csv"):
        put(f"{memory}/{name}", b"x")
    found = expand_pattern(as_file(f"{memory}/*.csv"))
    assert found == [Url(f"{memory}/a.csv"), Url(f"{memory}/b.csv")]
    assert Url(f"{memory}/deep/d.csv") in expand_pattern(as_file(f"{memory}/**/*.csv"))
    with pytest.raises(MolsliceError, match=r"^no file matches memory:.*\*\.sdf$"):
        expand_pattern(as_file(f"{memory}/*.sdf"))


def test_a_name_with_the_signs_of_a_pattern_is_a_file(memory):
    put(f"{memory}/a[1].csv", b"x")
    assert expand_pattern(as_file(f"{memory}/a[1].csv")) == [Url(f"{memory}/a[1].csv")]


def test_two_readers_of_one_file_do_not_disturb_each_other(memory):
    put(f"{memory}/a", b"0123456789" * 20_000)
    with Url(f"{memory}/a").open() as first, Url(f"{memory}/a").open() as second:
        assert first.read(3) == b"012"
        assert second.read(100_001) == (b"0123456789" * 20_000)[:100_001]
        assert first.read(70_000) == (b"0123456789" * 20_000)[3:70_003]


def test_a_web_server_is_read_in_pieces(web):
    folder, url = web
    folder.joinpath("a.smi").write_bytes(b"C\nCC\n" * 50_000)
    assert file_size(Url(f"{url}/a.smi")) == 250_000
    assert list(read_lines(Url(f"{url}/a.smi"))) == ["C", "CC"] * 50_000
    with pytest.raises(MolsliceError, match=rf"^no such file: {url}/b.smi$"):
        Url(f"{url}/b.smi").open()


def test_a_web_server_cannot_be_written(web):
    _, url = web
    with (
        pytest.raises(UnwritableError, match=rf"^cannot write {url}/a.csv: files of this protocol can only"),
        atomic_file(Url(f"{url}/a.csv")),
    ):
        raise AssertionError("the error comes before the block")


def test_an_object_exists_when_it_is_complete(memory):
    url = Url(f"{memory}/a.csv")
    with atomic_file(url) as stream:
        stream.write(b"one")
        assert not url.exists()
        stream.write(b"two")
    assert get(str(url)) == b"onetwo"
    assert url.size() == 6


def test_an_object_is_removed(memory):
    url = Url(f"{memory}/a.csv")
    with atomic_file(url) as stream:
        stream.write(b"one")
    url.unlink()
    assert not url.exists()
    with pytest.raises(MolsliceError, match=f"no such file: {memory}/a.csv"):
        url.unlink()


def test_an_error_leaves_the_former_object(memory):
    url = Url(f"{memory}/a.csv")
    put(str(url), b"former")
    with pytest.raises(ZeroDivisionError), atomic_file(url) as stream:
        stream.write(b"partial" * (1 // stream.write(b"")))
    assert get(str(url)) == b"former"
    assert names(memory) == ["a.csv"]


def test_a_library_that_takes_a_path_writes_an_object(memory):
    with atomic_path(Url(f"{memory}/a.npy")) as partial:
        partial.write_bytes(b"content")
    assert get(f"{memory}/a.npy") == b"content"
    with pytest.raises(FileNotFoundError), atomic_path(Url(f"{memory}/b.npy")) as partial:
        partial.rename(partial.with_name("elsewhere"))
    assert names(memory) == ["a.npy"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("memry://a.csv", r"unknown protocol 'memry'; did you mean 'memory'\?"),
        ("simplecache::memry://a.csv", "unknown protocol 'memry'"),
    ],
)
def test_an_unknown_protocol_is_named(text, reason):
    with pytest.raises(MolsliceError, match=f"^cannot read {text}: {reason}"):
        Url(text).open()
    with pytest.raises(MolsliceError, match=f"^cannot write {text}: {reason}"), atomic_file(Url(text)):
        pass


@pytest.mark.parametrize(("protocol", "extra"), [("s3", "s3"), ("gs", "gcs")])
def test_a_missing_package_names_the_extra(protocol, extra, monkeypatch):
    def refuse(*_, **__):
        raise ImportError("Install it")

    monkeypatch.setattr(fsspec, "url_to_fs", refuse)
    wanted = (
        rf"{protocol}://b/a.csv: {protocol}:// needs the extra {extra}: pip install 'molslice\[{extra}\]'$"
    )
    with pytest.raises(MolsliceError, match=f"^cannot read {wanted}"):
        Url(f"{protocol}://b/a.csv").open()
    with (
        pytest.raises(MolsliceError, match=f"^cannot write {wanted}"),
        atomic_file(Url(f"{protocol}://b/a.csv")),
    ):
        pass


def test_an_error_in_the_middle_of_a_file_names_the_file(memory, monkeypatch):
    """The errors of a store are no OSErrors."""

    class Broken(io.BytesIO):
        def read(self, size=-1):
            raise LookupError("the token has expired")

    put(f"{memory}/a.smi", b"C")
    monkeypatch.setattr(fsspec.filesystem("memory"), "open", lambda *_: Broken(b"C"))
    with pytest.raises(MolsliceError, match="^cannot read memory:.*a.smi: the token has expired$"):
        list(read_lines(Url(f"{memory}/a.smi")))


def test_an_error_of_the_store_while_writing_names_the_file(memory, monkeypatch):
    from fsspec.implementations.memory import MemoryFile

    def refuse(*_):
        raise LookupError("the quota is used up")

    monkeypatch.setattr(MemoryFile, "commit", refuse)
    with (
        pytest.raises(UnwritableError, match="^cannot write memory:.*a.csv: the quota is used up$"),
        atomic_file(Url(f"{memory}/a.csv")) as stream,
    ):
        stream.write(b"x")
    assert not Url(f"{memory}/a.csv").exists()


def test_a_local_path_needs_no_fsspec(tmp_path, monkeypatch):
    monkeypatch.setattr(urls.Url, "_located", lambda *_: 1 / 0)
    (tmp_path / "a.smi").write_text("C\n")
    assert list(read_lines(as_file(str(tmp_path / "a.smi")))) == ["C"]
