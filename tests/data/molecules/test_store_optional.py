"""Arrays that a store may have besides: targets of atoms and groups of rows."""

import json
import pickle

import numpy as np
import pytest
import torch

from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.store_files import write_header
from molslice.types import MolsliceError
from tests.data.molecules.builders import SMILES, molecules


def parts(**names):
    """Three parts, the second with the row that failed; targets of atoms count on through the store."""
    found, first = molecules(), 0
    stores = []
    for start, stop in ((0, 3), (3, 4), (4, len(SMILES))):
        atoms = sum(len(one.atoms) for one in found[start:stop] if not isinstance(one, str))
        numbers = np.arange(first, first + atoms, dtype=np.float32)
        first += atoms
        groups = np.arange(start, stop, dtype=np.uint64) + np.uint64(2**63)
        optional = {"atom_targets": np.stack([numbers, -numbers], 1), "groups": groups}
        stores.append(MoleculeStore.in_memory(found[start:stop], **optional, **names))
    return stores


@pytest.fixture
def store(tmp_path):
    about = {"descriptors": {"version": 1}}
    return MoleculeStore.write(
        tmp_path / "store", parts(), atom_target_names=["charge", "other"], grouped=True, about=about
    )


def test_what_is_written_is_read(store):
    opened = MoleculeStore.open(store.path)
    assert opened.atom_target_names == ("charge", "other")
    assert opened.header["about"] == {"descriptors": {"version": 1}}
    assert opened.atom_targets is not None
    assert opened.groups is not None
    np.testing.assert_array_equal(opened.atom_targets[:, 0], np.arange(len(opened.atoms)))
    np.testing.assert_array_equal(opened.groups - np.uint64(2**63), np.arange(len(SMILES)))
    in_memory = MoleculeStore.join(parts(atom_target_names=["charge", "other"]))
    for copy in (pickle.loads(pickle.dumps(opened)), in_memory, pickle.loads(pickle.dumps(in_memory))):
        np.testing.assert_array_equal(copy.atom_targets, opened.atom_targets)
        np.testing.assert_array_equal(copy.groups, opened.groups)
        assert copy.atom_target_names == opened.atom_target_names


def test_a_store_without_them_has_none(tmp_path):
    plain = MoleculeStore.write(tmp_path / "plain", [MoleculeStore.in_memory(molecules())])
    for found in (plain, MoleculeStore.in_memory(molecules())):
        assert found.atom_targets is None
        assert found.groups is None
        assert found.atom_target_names == ()
        assert collate(found, [0, 1]).atom_targets is None
    header = json.loads((tmp_path / "plain" / "header.json").read_text())
    assert not {"atom_target_names", "about"} & header.keys()
    assert "groups" not in header["arrays"]


def test_arrays_of_a_later_version_are_ignored(store):
    header = json.loads((store.path / "header.json").read_text())
    header["arrays"]["unknown"] = {"shape": [3], "sha256": ""}
    write_header(store.path, header)
    assert len(MoleculeStore.open(store.path)) == len(SMILES)


@pytest.mark.parametrize("seed", [None, 3])
def test_a_batch_has_the_targets_of_its_atoms(store, seed):
    plain = collate(store, [4, 0, 6])
    batch = collate(store, [4, 0, 6], pad_to=14, atom_permutation=seed)
    values = batch.atom_targets
    assert values is not None
    assert values.shape == (3, 14, 2)
    assert torch.isnan(values[~batch.atom_mask]).all()
    for place, row in enumerate([4, 0, 6]):
        size = int(store.num_atoms[row])
        numbers = values[place, :size, 0].long() - int(store.atom_offsets[row])
        assert sorted(numbers.tolist()) == list(range(size))
        assert torch.equal(batch.atoms[place, :size], plain.atoms[place, numbers])
        assert torch.equal(values[place, :size, 1], -values[place, :size, 0])


@pytest.mark.parametrize("name", ["atom_targets", "groups"])
def test_damage_shows(store, name):
    file = store.path / f"{name}.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(MolsliceError, match=rf"{name}.npy does not match its checksum"):
        MoleculeStore.open(store.path)
    file.unlink()
    with pytest.raises(MolsliceError, match=rf"{name}.npy"):
        MoleculeStore.open(store.path, verify=False)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["charge"], r"atom_targets.npy has the shape \[45, 2\], but header.json implies \[45, 1\]"),
        ([], "header.json names 0 targets of atoms"),
        ("charge", "invalid atom_target_names"),
    ],
)
def test_names_that_do_not_fit_show(store, names, message):
    header = json.loads((store.path / "header.json").read_text())
    write_header(store.path, {**header, "atom_target_names": names})
    with pytest.raises(MolsliceError, match=message):
        MoleculeStore.open(store.path)


def test_groups_of_another_length_show(store):
    np.save(store.path / "groups.npy", np.zeros(3, np.uint64))
    header = json.loads((store.path / "header.json").read_text())
    header["arrays"]["groups"]["shape"] = [3]
    (store.path / "header.json").write_text(json.dumps(header))
    with pytest.raises(MolsliceError, match=r"groups.npy has the shape \[3\], but header.json implies"):
        MoleculeStore.open(store.path, verify=False)
