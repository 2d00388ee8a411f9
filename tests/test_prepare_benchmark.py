"""The program that measures the preparation of files, on a few molecules."""

import json

import pytest
from rdkit import Chem

from molslice.data.molecules.store import MoleculeStore
from tests.inference.models import embedded_smiles
from tests.programs import load_program


@pytest.fixture
def program(monkeypatch):
    found = load_program("prepare")
    monkeypatch.setattr(found, "in_new_process", lambda function, *arguments: function(*arguments))
    return found


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "molecules.smi"
    path.write_text("\n".join([*embedded_smiles(30), "XX"]) + "\n")
    return path


def test_rates_and_memory(program, table, tmp_path):
    program.main([str(table), "--rows", "20", "--rounds", "1", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "prepare.json").read_text())
    assert found["rows"] == 20
    assert [one["workers"] for one in found["results"]] == [1, 2]
    assert all(one["rows_per_second"] > 0 for one in found["results"])
    assert found["results"][0]["worker_microseconds"] == 0
    assert found["results"][1]["worker_microseconds"] > 0
    assert len(found["ratio_of_rates"]["rounds"]) == 1
    assert [one["rows"] for one in found["memory"]] == [5, 10, 20]
    assert all(one["parent_mib"] > 10 for one in found["memory"])


def test_a_large_store_repeats_the_rows_and_is_continued(program, table, tmp_path, monkeypatch):
    monkeypatch.setattr(program, "PART_ROWS", 20)
    words = [str(table), "--large", str(tmp_path / "large"), "--rows", "70", "--out", str(tmp_path)]
    program.main(words)
    found = json.loads((tmp_path / "prepare_large.json").read_text())
    assert (found["rows"], found["molecules"], found["failed"]) == (70, 68, 2)
    store = MoleculeStore.open(tmp_path / "large" / "store")
    assert store.errors.keys() == {30, 61}
    for row in (0, 7):  # canonical order: the same molecule has the same arrays in each spelling
        assert store.arrays(row).atoms.tobytes() == store.arrays(row + 31).atoms.tobytes()
    parts = sorted((tmp_path / "large" / "parts").iterdir())
    assert [len(part.read_text().splitlines()) for part in parts] == [21, 21, 21, 11]
    lines = [line for part in parts for line in part.read_text().splitlines()[1:]]
    first, second = lines[5].split(",")[0], lines[36].split(",")[0]
    assert first != second
    assert Chem.CanonSmiles(first) == Chem.CanonSmiles(second)
    assert found["bytes"] == sum(path.stat().st_size for path in (tmp_path / "large" / "store").iterdir())
    assert found["epoch"]["rows"] == 68
    assert 0 <= found["epoch"]["padding_share"] < 1
    assert len(found["runs"]) == 1

    before = {part: part.read_bytes() for part in parts}
    parts[1].unlink()
    program.main(words)
    assert before == {part: part.read_bytes() for part in parts}
    assert len(json.loads((tmp_path / "large" / "runs.json").read_text())) == 2
