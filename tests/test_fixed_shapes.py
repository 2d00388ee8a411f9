"""The program that compares forms of training steps on a CPU runs and records all of them."""

import json

import torch

from molslice.chem.featurize import molecule_arrays
from molslice.data.molecules.store import MoleculeStore
from tests.inference.models import embedded_smiles
from tests.programs import load_program


def test_all_forms_of_each_model_are_recorded(tmp_path, monkeypatch):
    molecules = MoleculeStore.in_memory([molecule_arrays(text) for text in embedded_smiles(200)])
    MoleculeStore.write(tmp_path / "store", [molecules], source="test")
    threads = torch.get_num_threads()
    program = load_program("fixed_shapes")
    monkeypatch.setitem(program.FORMS, "compiled", [])  # compiling takes long
    words = ["--store", tmp_path / "store", "--models", "quickstart", "--steps", "2", "--rounds", "2"]
    try:
        path = program.main([str(word) for word in [*words, "--out", tmp_path]])
    finally:
        torch.set_num_threads(threads)
    (row,) = json.loads(path.read_text())["rows"]
    assert row["model"] == "quickstart"
    assert row["fixed"]["median"] > 0
    assert row["collated"]["median"] > 0
    assert row["compiled"]["median"] > 0
    assert row["ratio"] > 0
    assert row["ratio_compiled"] > 0
