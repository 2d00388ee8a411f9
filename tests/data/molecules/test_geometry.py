"""Coordinates of the atoms from the table to the store and the batch."""

import json

import numpy as np
import pytest
import torch

from molslice.chem.conformers import coordinates
from molslice.cli import main
from molslice.data import build_dataset
from molslice.data.base import RowNumbers
from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.stored_rows import StoredRows
from molslice.types import DataSpec, MolsliceError

SMILES = ["CCO", "c1ccccc1C(=O)[O-].[Na+]", "C(C", "C", "CC(=O)Oc1ccccc1", "C#N", "CCCCCC", "CN", "CS", "CCl"]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("smiles,y\n" + "".join(f"{smiles},{row}\n" for row, smiles in enumerate(SMILES)))
    return path


def dataset(table, **options):
    cache = str(table.parent / "cache")
    return build_dataset("csv", {"path": str(table), "target_columns": "y", "cache_dir": cache, **options})


def test_the_store_has_the_coordinates_of_each_readable_row(table):
    store = dataset(table, geometry=True).store
    for row, smiles in enumerate(SMILES):
        atoms = slice(store.atom_offsets[row], store.atom_offsets[row + 1])
        expected = (
            coordinates(smiles, int(store.num_atoms[row])) if store.num_atoms[row] else np.empty((0, 3))
        )
        np.testing.assert_array_equal(store.coordinates[atoms], expected)
    assert store.coordinates.dtype == np.float16


def test_a_store_is_cached_with_and_without_a_geometry(table):
    with_geometry, without = dataset(table, geometry=True), dataset(table)
    assert with_geometry.store.path != without.store.path
    assert dataset(table, geometry=True).store.path == with_geometry.store.path
    assert with_geometry.spec == DataSpec(1, has_geometry=True)
    assert without.spec == DataSpec(1)
    described = type(without).describe({"target_columns": "y", "geometry": True})
    assert described == with_geometry.spec


def test_a_batch_has_the_coordinates_at_its_atoms(table):
    store = dataset(table, geometry=True).store
    batch = collate(store, [4, 0, 3], pad_to=12)
    assert batch.coordinates.shape == (3, 12, 3)
    assert batch.coordinates.isnan().any(-1).tolist() == (~batch.atom_mask).tolist()
    start = store.atom_offsets[4]
    np.testing.assert_array_equal(batch.coordinates[0, :10], store.coordinates[start : start + 10])
    gathered = StoredRows(store, torch.device("cpu")).gather(RowNumbers(torch.tensor([4, 0, -1, 3]), 13))
    torch.testing.assert_close(gathered.coordinates[[0, 1, 3]], batch.coordinates, equal_nan=True)
    assert gathered.coordinates[2].isnan().all()


def test_shuffled_atoms_keep_their_coordinates(table):
    store = dataset(table, geometry=True).store
    plain, shuffled = collate(store, [4]), collate(store, [4], atom_permutation=1)
    assert not torch.equal(plain.atoms, shuffled.atoms)
    for batch in (plain, shuffled):
        batch.coordinates.nan_to_num_()
    keys = [
        sorted(zip(batch.coordinates[0].tolist(), batch.atoms[0].tolist(), strict=True))
        for batch in (plain, shuffled)
    ]
    assert keys[0] == keys[1]


def test_a_prepared_store_has_a_geometry(table, tmp_path, capsys):
    options = ["--target", "y", "--out", str(tmp_path / "store"), "--quiet"]
    assert main(["prepare", str(table), "--geometry", *options]) == 0
    capsys.readouterr()
    opened = build_dataset("prepared", {"path": str(tmp_path / "store")})
    assert opened.spec.has_geometry
    np.testing.assert_array_equal(opened.store.coordinates, dataset(table, geometry=True).store.coordinates)
    header = json.loads((tmp_path / "store" / "header.json").read_text())
    assert header["arrays"]["coordinates"]["shape"] == [int(opened.store.num_atoms.sum()), 3]
    assert main(["data", "verify", str(tmp_path / "store")]) == 0
    # the same command without a geometry is another preparation
    assert main(["prepare", str(table), *options]) == 1


def test_stores_with_and_without_a_geometry_are_not_joined(table, tmp_path):
    stores = [dataset(table, geometry=geometry).store for geometry in (True, False)]
    for pair in (stores, stores[::-1]):
        with pytest.raises(MolsliceError, match="cannot be read as one store: only .* has coordinates$"):
            MoleculeStore.join(pair)
    joined = MoleculeStore.join([stores[0], stores[0]])
    assert joined.coordinates.shape == (2 * len(stores[0].atoms), 3)


def test_a_geometry_needs_the_canonical_order(table):
    with pytest.raises(MolsliceError, match="geometry needs atom_order canonical, got input"):
        dataset(table, geometry=True, atom_order="input")
