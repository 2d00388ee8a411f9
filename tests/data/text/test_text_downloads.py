"""Tests of text downloads with replaced libraries: requests and written files."""

import sys
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest

from molslice.data.text.imdb import Imdb
from molslice.data.text.newsgroups20 import Newsgroups20
from molslice.data.text.r8 import R8
from molslice.types import MolsliceError


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))


class Table(list):
    """The used part of the library's return value."""

    def to_parquet(self, path):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(self)), path)


@pytest.fixture
def hub(monkeypatch):
    """Replace the `datasets` library by one with reviews and news."""
    asked = []
    rows = {
        "stanfordnlp/imdb": [{"text": f"film {n}", "label": n % 2} for n in range(20)],
        "yangwang825/reuters-21578": [{"text": f"news\n{n}", "label": n % 8} for n in range(40)],
    }

    def load_dataset(name, *, split):
        asked.append((name, split))
        return Table(rows[name])

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return asked


@pytest.mark.parametrize(("member", "count"), [(Imdb, 40), (R8, 80)])
def test_from_the_hub_once(tmp_path, hub, member, count):
    options = {"root": tmp_path / "new" / "folder", "tokens": "bytes"}
    member.download(options)
    assert [split for _, split in hub] == ["train", "test"]
    data = member(**options)
    assert len(data) == count
    assert len(set(data.labels[:, 0])) == len(data.class_names)
    member.download(options)
    assert len(hub) == 2  # it was there
    assert {path.name for path in options["root"].iterdir()} == {
        f"{s}.{'parquet' if member is Imdb else 'tsv'}" for s in ("train", "test")
    }


@pytest.mark.parametrize(
    ("member", "file"),
    [
        (Imdb, "{}/pos/0.txt"),
        (Imdb, "{}.jsonl.gz"),
        (Imdb, "plain_text/{}-00000-of-00001.parquet"),
        (R8, "{}.tsv.gz"),
        (R8, "r8-{}-stemmed.txt"),
    ],
)
def test_what_is_read_is_not_fetched(tmp_path, hub, member, file):
    for split in ("train", "test"):
        assert not hub
        path = tmp_path / file.format(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    member.download({"root": tmp_path})
    assert not hub
    path.unlink()
    if path.parent.name == "pos":
        path.parent.rmdir()
        (tmp_path / "test").rmdir()
    member.download({"root": tmp_path})
    assert len(hub) == 2


def test_newsgroups_come_through_scikit_learn(tmp_path, monkeypatch):
    asked = []

    def fetch(*, data_home, subset, shuffle):
        asked.append((subset, shuffle))
        names = list(Newsgroups20.class_names)
        return {
            "data": [f"Subject: {name}\n" for name in names] * 5,
            "target": list(range(20)) * 5,
            "target_names": names,
        }

    monkeypatch.setattr("sklearn.datasets.fetch_20newsgroups", fetch)
    for _ in range(2):
        Newsgroups20.download({"root": tmp_path / "ng"})
    assert asked == [("train", False), ("test", False)]
    data = Newsgroups20(root=tmp_path / "ng")
    assert data.labels[:20, 0].tolist() == list(range(20))
    assert len(data) == 200
    assert len(list((tmp_path / "ng").iterdir())) == 2


def test_a_failed_download_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MolsliceError, match=r"molslice\[text\]"):
        Imdb.download({"root": tmp_path})
    with pytest.raises(MolsliceError, match=r"needs data\.root"):
        R8.download({})

    def fail(name, *, split):
        raise RuntimeError("no route\nto host")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=fail))
    with pytest.raises(MolsliceError, match="cannot download yangwang825/reuters-21578 .*: no route to host"):
        R8.download({"root": tmp_path})
    (tmp_path / "file").write_text("x")
    with pytest.raises(MolsliceError, match="cannot create the folder"):
        R8.download({"root": tmp_path / "file"})
