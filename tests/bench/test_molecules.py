"""Tests of the molecules that are measured."""

from types import SimpleNamespace

import numpy as np
import pytest

from molslice.bench.molecules import Molecules, StoredMolecules, featurize, open_store
from molslice.config.settings import DataConfig
from molslice.data.molecules.store import MoleculeStore
from molslice.types import MolsliceError
from tests.bench.training_jobs import store

LABELED = np.array([[1.0, np.nan], [2.0, np.nan], [np.nan, np.nan]], np.float32)


def test_rows_of_a_store_with_targets(tmp_path):
    found = StoredMolecules(store(tmp_path / "store", [2, 0, 3], LABELED, ["gap", "unknown"]))
    assert found.target_names == ("gap",)
    assert found.labeled_rows("train").tolist() == [0]
    assert found.collate([0]).targets.tolist() == [[1.0]]


def test_rows_of_a_store_without_targets_predict_the_number_of_atoms(tmp_path):
    found = StoredMolecules(store(tmp_path / "store", [2, 0, 3]))
    assert found.labeled_rows("train").tolist() == [0, 2]
    assert found.collate([2, 0]).targets.tolist() == [[3.0], [2.0]]
    with pytest.raises(MolsliceError, match="no SMILES"):
        found.smiles()


def test_coordinates_of_a_store_are_kept(tmp_path):
    molecules = ["bad", *_all(featurize(["CC"]))]
    positions = np.array([[0, 0, 0], [1.5, 0, 0]], np.float16)
    dataset = StoredMolecules(MoleculeStore.in_memory(molecules, coordinates=positions))
    assert dataset.spec.has_geometry
    np.testing.assert_array_equal(dataset.collate([1]).coordinates, positions[None])
    assert not StoredMolecules(MoleculeStore.in_memory(molecules)).spec.has_geometry


def test_a_store_without_molecules_is_refused(tmp_path):
    with pytest.raises(MolsliceError, match="no molecules"):
        StoredMolecules(store(tmp_path / "store", [0]))


def test_a_store_is_used_in_place(tmp_path):
    path = store(tmp_path / "store", [2]).path
    with open_store(Molecules(store=path)) as found:
        assert found.path == path
    assert path.is_dir()
    (tmp_path / "empty").mkdir()
    with (
        pytest.raises(MolsliceError, match="is not a store"),
        open_store(Molecules(store=tmp_path / "empty")),
    ):
        pass


@pytest.mark.parametrize("workers", [0, 2])
def test_files_become_a_temporary_store(tmp_path, workers):
    for name, smiles in (("a.smi", "CCO\nfrog\n"), ("b.smi", "c1ccccc1\n")):
        (tmp_path / name).write_text(smiles)
    with open_store(Molecules(files=[tmp_path / "a.smi", tmp_path / "b.smi"]), workers) as found:
        assert found.num_atoms.tolist() == [3, 0, 6]
    assert not found.path.exists()


def test_data_without_a_folder_become_a_temporary_store(tmp_path, monkeypatch):
    positions = np.zeros((2, 3), np.float16)
    made = MoleculeStore.in_memory(["bad", *_all(featurize(["CC"]))], coordinates=positions)
    monkeypatch.setattr("molslice.bench.molecules._dataset", lambda data: SimpleNamespace(store=made))
    with open_store(Molecules()) as found:
        assert found.num_atoms.tolist() == [0, 2]
        assert found.errors == {0: "bad"}
        np.testing.assert_array_equal(found.coordinates, positions)


def _all(parts):
    store = MoleculeStore.join([*parts])
    return [store.arrays(row) for row in range(len(store))]


def test_other_data_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(MolsliceError, match="gap_xtb.*Give molecules with --store or --input"),
        open_store(Molecules()),
    ):
        pass
    listops = DataConfig("listops", {"train_rows": 2, "valid_rows": 2, "test_rows": 2, "cache_dir": tmp_path})
    with pytest.raises(MolsliceError), open_store(Molecules(data=listops)):
        pass
