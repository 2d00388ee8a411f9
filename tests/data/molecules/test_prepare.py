"""Tests of preparing a store: full disk, interruption, location."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from molslice.data.molecules import prepare
from molslice.files import cache
from molslice.files.npy import ArrayFile
from molslice.types import MolsliceError
from tests.data.molecules.builders import SMILES


def prepared(places, chunks=None, workers=None):
    def read():
        for start in range(0, len(SMILES), 3):
            part = SMILES[start : start + 3]
            yield part, np.zeros((len(part), 1), np.float32)

    return prepare.prepare_store(
        chunks or read,
        prepare.Featurizing(workers=workers),
        places,
        source="a test",
        rows=len(SMILES),
        target_names=("gap",),
        target_units=("eV",),
        identity={"sha256": "1"},
    )


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, monkeypatch, code):
    def full(self, values):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(ArrayFile, "append", full)
    with pytest.raises(MolsliceError) as caught:
        prepared([tmp_path / "cache"])
    message = str(caught.value)
    assert os.strerror(code) in message
    assert str(tmp_path / "cache") in message
    assert "MOLSLICE_CACHE" in message
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interruption_leaves_nothing(tmp_path, workers):
    def interrupted():
        yield ["C"], np.zeros((1, 1), np.float32)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepared([tmp_path], interrupted, workers)
    assert files(tmp_path) == []


def test_one_chunk_at_a_time_is_computed(tmp_path):
    drawn = []

    def watched():
        for number in range(40):
            drawn.append(number)
            yield ["CC"] * 10, np.zeros((10, 1), np.float32)

    parts = prepare._featurized(watched(), 400, prepare.Featurizing(workers=2))
    next(parts)
    assert len(drawn) <= 5
    assert sum(len(part) for part in parts) == 390


def test_nowhere_to_write_means_memory():
    store = prepared([Path("/proc/nowhere")])
    assert store.path is None
    assert store.errors == {3: "not valid SMILES: unknown symbol 'X' at position 1"}
    assert len(prepared([])) == len(SMILES)


def test_without_rdkit_a_prepared_store_is_found(tmp_path, monkeypatch):
    made = prepared([tmp_path])
    renamed = tmp_path / made.path.name.replace("-rdkit", "-rdkit1999.1-")
    made.path.rename(renamed)
    assert prepare._find(made.path.name.rsplit("-rdkit")[0], [tmp_path]) is None
    monkeypatch.setattr(prepare.importlib.util, "find_spec", lambda name: None)
    assert prepared([tmp_path]).path == renamed


def test_where_stores_are_kept(monkeypatch, tmp_path):
    monkeypatch.delenv("MOLSLICE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache.cache_folders(None) == [Path("/xdg/molslice")]
    assert cache.cache_folders(None, tmp_path) == [tmp_path, Path("/xdg/molslice")]
    assert cache.cache_folders("asked", tmp_path) == [Path("asked")]
    monkeypatch.setenv("MOLSLICE_CACHE", "/mine")
    assert cache.cache_folders(None, tmp_path) == [tmp_path, Path("/mine")]


def test_another_process_was_quicker(tmp_path, monkeypatch):
    made = prepared([tmp_path])
    monkeypatch.setattr(prepare, "_find", lambda stem, places: None)  # it came after the search
    assert prepared([tmp_path]).path == made.path


def test_no_bar_without_a_terminal(tmp_path, capfd):
    prepared([tmp_path])
    assert capfd.readouterr() == ("", "")


def test_a_read_only_folder_leaves_the_store_to_the_next(tmp_path, monkeypatch):
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "read-only" not in str(path) and allowed(path, mode))
    places = [tmp_path / "read-only", tmp_path / "cache"]
    assert prepared(places).path.parent == places[1]
    assert prepared(places[:1]).path is None
