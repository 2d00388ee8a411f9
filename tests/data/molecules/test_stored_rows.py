"""Batches that a device gathers equal those that the host collates."""

import numpy as np
import pytest
import torch

from molslice.data.base import RowNumbers
from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.stored_rows import StoredRows
from molslice.ops.path_codes import bond_codes, code_adjacency
from molslice.types import MoleculeArrays
from tests.data.molecules.builders import memory_store

CPU = torch.device("cpu")


@pytest.mark.parametrize("width", [13, 30])
def test_a_gathered_batch_is_the_collated_one(width):
    store = memory_store()
    rows = [9, 0, 2, 1, 1]
    batch = StoredRows(store, CPU).gather(RowNumbers(torch.tensor([9, 0, -1, 2, 1, 1, -1]), width))
    expected = collate(store, rows, pad_to=width - 1)
    present = torch.tensor([0, 1, 3, 4, 5])
    for name in ("atoms", "atom_mask", "targets", "rows"):
        assert torch.equal(getattr(batch, name)[present], getattr(expected, name))
    adjacency = code_adjacency(
        expected.bond_index, bond_codes(expected.bond_features), *expected.atom_mask.shape
    )
    assert torch.equal(batch.adjacency[present], adjacency)
    empty = torch.tensor([2, 6])
    assert not batch.atom_mask[empty].any()
    assert not batch.adjacency[empty].any()
    assert batch.targets[empty].isnan().all()
    listed = batch.bond_index[:, 1] >= 0
    place = torch.full((7,), -1)
    place[present] = torch.arange(len(rows))
    index = torch.cat([place[batch.bond_index[listed, :1]], batch.bond_index[listed, 1:]], 1)
    assert torch.equal(index, expected.bond_index)
    assert torch.equal(batch.bond_features[listed], expected.bond_features)
    assert (batch.bond_index[~listed, 1:] == -1).all()
    assert len(batch.bond_index) % len(batch) == 0


def test_the_arrays_of_a_prepared_store_are_not_copied_on_the_cpu(tmp_path, recwarn):
    store = MoleculeStore.write(tmp_path / "store", [memory_store()], target_names=["row"])
    assert not store.atoms.flags.writeable
    rows = StoredRows(store, CPU)
    assert not recwarn.list
    for name, tensor in rows._tensors.items():
        assert tensor.data_ptr() == getattr(store, name).ctypes.data


def test_targets_of_atoms_and_descriptors():
    store = memory_store()
    arrays = {name: getattr(store, name) for name in ("atoms", "bonds", "atom_offsets", "bond_offsets")}
    arrays |= {
        "targets": store.targets,
        "atom_targets": np.arange(2 * len(store.atoms), dtype=np.float32).reshape(-1, 2),
        "descriptors": np.arange(3 * len(store), dtype=np.float32).reshape(-1, 3),
    }
    store = MoleculeStore(arrays, {**store.header, "atom_target_names": ["a", "b"]})
    batch = StoredRows(store, CPU).gather(RowNumbers(torch.tensor([4, 0]), 9))
    expected = collate(store, [4, 0], pad_to=8)
    assert torch.equal(batch.descriptors, expected.descriptors)
    torch.testing.assert_close(batch.atom_targets, expected.atom_targets, rtol=0, atol=0, equal_nan=True)


def test_molecules_without_bonds():
    store = memory_store(["C", "O"])
    assert len(store.bonds) == 0
    batch = StoredRows(store, CPU).gather(RowNumbers(torch.tensor([1, 0]), 4))
    assert batch.adjacency.shape == (2, 3, 3)
    assert not batch.adjacency.any()
    assert isinstance(store.arrays(0), MoleculeArrays)


def test_groups_take_no_memory_of_the_device():
    store = memory_store()
    size = StoredRows.bytes_of(store)
    assert size == sum(array.nbytes for array in store.present.values())
    store.groups = np.zeros(len(store), np.uint64)
    assert StoredRows.bytes_of(store) == size
