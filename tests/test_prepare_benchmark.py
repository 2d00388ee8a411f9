"""The program that measures the preparation of files, on a few molecules."""

import json

import pytest

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
