"""Tests of writing a store in several runs."""

import json

import numpy as np
import pytest

from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.store_files import HEADER
from molslice.data.molecules.store_writer import ERRORS, StoreWriter
from molslice.types import MolsliceError
from tests.data.molecules.builders import SMILES, molecules

OPTIONS = {"target_names": ["gap"], "target_units": ["eV"]}


def parts(size=3):
    for start in range(0, len(SMILES), size):
        found = molecules(SMILES[start : start + size])
        targets = np.arange(start, start + len(found), dtype=np.float32)[:, None]
        yield MoleculeStore.in_memory(found, targets)


def write(folder, some, saved=None, finish=True):
    """Append parts to a store in `folder` and return what `save` returns."""
    folder.mkdir(exist_ok=True)
    with StoreWriter(folder, **OPTIONS, saved=saved) as writer:
        for part in some:
            writer.append(part)
        state = json.loads(json.dumps(writer.save()))
        if finish:
            writer.finish("a test", {"numpy": "2"}, {"made": "here"})
    return state


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("first", range(5))
def test_a_continued_store_equals_one_of_a_single_run(tmp_path, first):
    whole = [*parts()]
    write(tmp_path / "whole", whole)
    saved = write(tmp_path / "two", whole[:first], finish=False)
    for path in (tmp_path / "two").iterdir():  # written after the last save and lost with the process
        path.write_bytes(path.read_bytes() + b"more")
    write(tmp_path / "two", whole[first:], saved)
    assert contents(tmp_path / "two") == contents(tmp_path / "whole")
    assert len(MoleculeStore.open(tmp_path / "two")) == len(SMILES)


def test_reasons_are_in_the_header(tmp_path):
    write(tmp_path / "store", parts())
    assert json.loads((tmp_path / "store" / HEADER).read_text())["errors"] == {
        "3": "not valid SMILES: unknown symbol 'X' at position 1"
    }
    assert not (tmp_path / "store" / ERRORS).exists()
    write(tmp_path / "empty", [])
    assert len(MoleculeStore.open(tmp_path / "empty")) == 0


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("atoms.npy", "short"),
        ("atoms.npy", "flipped"),
        ("bond_offsets.npy", "short"),
        ("bond_offsets.npy", "flipped"),
        (ERRORS, "short"),  # reasons have no checksum
    ],
)
def test_a_damaged_unfinished_store_is_refused(tmp_path, name, damage):
    some = [*parts()]
    saved = write(tmp_path / "store", some[:2], finish=False)
    path = tmp_path / "store" / name
    data = path.read_bytes()
    path.write_bytes(data[:-1] if damage == "short" else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(MolsliceError, match=f"{name} .* saved"):
        write(tmp_path / "store", some[2:], saved)
