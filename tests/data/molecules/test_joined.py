"""Tests of several stores that are read as one."""

import json
import pickle
import tracemalloc

import numpy as np
import pytest
import torch

from molslice.data.batching import TokenBudgetBatches
from molslice.data.checksums import data_identity
from molslice.data.molecules.collate import collate
from molslice.data.molecules.joined import JoinedArray, find_shards
from molslice.data.molecules.prepared import Prepared
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.store_files import write_header
from molslice.files.cache import array_checksum
from molslice.types import MolsliceError
from tests.data.molecules.builders import SMILES, molecules

NAMES = {"target_names": ["gap", "dipole"], "target_units": ["eV", "D"], "atom_target_names": ["charge"]}
CUTS = [(0, 3), (3, 4), (4, 4), (4, len(SMILES))]  # the second part has only the row that failed
OPTIONAL = ("atom_targets", "groups", "descriptors")


def part(start, stop, **names):
    """Return rows with all optional arrays; their values depend on the row only."""
    found, rows = molecules()[start:stop], np.arange(start, stop, dtype=np.float32)
    sizes = [0 if isinstance(one, str) else len(one.atoms) for one in found]
    charges = np.concatenate(
        [100 * row + np.arange(size) for row, size in zip(rows, sizes, strict=True)] or [[]]
    )
    return MoleculeStore.in_memory(
        found,
        np.stack([rows, -rows], 1),
        atom_targets=charges.astype(np.float32)[:, None],
        groups=rows.astype(np.uint64) + np.uint64(2**63),
        descriptors=np.stack([rows, rows, rows], 1) / 2,
        **names,
    )


def write(path, start, stop, **changes):
    options = {**NAMES, "grouped": True, "num_descriptors": 3, "source": f"rows {start}"} | changes
    return MoleculeStore.write(path, [part(start, stop)], **options)


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    return write(tmp_path_factory.mktemp("single") / "store", 0, len(SMILES))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """A folder of stores whose names sort differently as text, written in another order."""
    folder = tmp_path_factory.mktemp("shards")
    for number, cut in reversed([*zip((1, 2, 9, 10), CUTS, strict=True)]):
        write(folder / f"part-{number}", *cut)
    return folder


@pytest.fixture(params=["folder", "list", "memory", "pickled"])
def joined(request, shards):
    paths = find_shards(shards)
    if request.param == "folder":
        return MoleculeStore.open(shards)
    if request.param == "list":
        return MoleculeStore.open(paths)
    if request.param == "pickled":
        text = pickle.dumps(MoleculeStore.open(shards))
        assert len(text) < 2000
        return pickle.loads(text)
    in_memory = [part(*cut, **NAMES) for cut in CUTS]
    return pickle.loads(pickle.dumps(MoleculeStore.join(in_memory)))


def test_rows_are_those_of_one_store(joined, single):
    assert len(joined) == len(single) == len(SMILES)
    assert joined.errors == single.errors == {3: "not valid SMILES: unknown symbol 'X' at position 1"}
    assert joined.target_names == single.target_names
    assert joined.target_units == single.target_units
    assert joined.atom_target_names == single.atom_target_names
    np.testing.assert_array_equal(joined.num_atoms, single.num_atoms)
    for name in ("atoms", "bonds", "atom_offsets", "bond_offsets", "targets", *OPTIONAL):
        one, other = getattr(joined, name), getattr(single, name)
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one), other)
        assert array_checksum(one) == array_checksum(other)
    for row in range(len(SMILES)):
        np.testing.assert_array_equal(joined.arrays(row).atoms, single.arrays(row).atoms)
        np.testing.assert_array_equal(joined.arrays(row).bonds, single.arrays(row).bonds)


@pytest.mark.parametrize("seed", [None, 5])
def test_batches_are_those_of_one_store(joined, single, seed):
    rows = [9, 0, 4, 2, 5, 8, 0]
    one, other = (collate(store, rows, atom_permutation=seed) for store in (joined, single))
    for name in ("atoms", "atom_mask", "bond_index", "bond_features", "targets", "rows", "descriptors"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert torch.equal(one.atom_targets.nan_to_num(-1), other.atom_targets.nan_to_num(-1))


def test_arrays_of_files_stay_there(shards):
    store = MoleculeStore.open(shards)
    assert all(
        isinstance(getattr(store, name), JoinedArray) for name in ("atoms", "bonds", "targets", *OPTIONAL)
    )
    assert np.shares_memory(store.arrays(5).atoms, store.parts[3].atoms)


def test_the_epochs_of_training_are_those_of_one_store(shards, single):
    store = MoleculeStore.open(shards)
    rows = np.flatnonzero(store.num_atoms)
    options = {"token_budget": 40, "batch_size": 3, "shuffle": True, "seed": 1}
    one, other = (TokenBudgetBatches(each.num_atoms, rows, **options).epoch(0) for each in (store, single))
    assert [batch.tolist() for batch in one] == [batch.tolist() for batch in other]


def test_a_header_names_all(shards):
    header = MoleculeStore.open(shards).header
    assert header["rows"] == len(SMILES)
    assert header["source"] == "rows 0 and 3 others"
    assert header["arrays"]["atoms"]["shape"] == list(MoleculeStore.open(shards).atoms.shape)
    assert header["arrays"]["atom_offsets"]["shape"] == [len(SMILES) + 1]
    sums = [
        MoleculeStore.open(paths).header["arrays"]["bonds"]["sha256"]
        for paths in (shards, find_shards(shards))
    ]
    assert sums[0] == sums[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"target_names": ["gap", "mu"]},
            r"other and .*first cannot be read as one store: they differ in target names",
        ),
        ({"target_units": ["eV", ""]}, r"target units: \['eV', ''\] and \['eV', 'D'\]"),
        ({"grouped": False}, r"cannot be read as one store: only .*first has groups$"),
        ({"num_descriptors": 0}, r"only .*first has descriptors$"),
        ({"atom_target_names": ["spin"]}, r"names of targets of atoms: \['spin'\] and \['charge'\]"),
        (
            {"about": {"prepared": {"atom_order": "input", "rows": 9}}},
            r"order of the atoms: input and canonical",
        ),
        ({"versions": {"featurizer": "0"}}, r"version of the featurizer: 0 and 1"),
    ],
)
def test_stores_that_differ_are_refused(tmp_path, changes, message):
    common = {"versions": {"featurizer": "1"}, "about": {"prepared": {"atom_order": "canonical", "rows": 3}}}
    write(tmp_path / "first", 0, 3, **common)
    write(tmp_path / "other", 3, 5, **common | changes)
    with pytest.raises(MolsliceError, match=message):
        MoleculeStore.open([tmp_path / "first", tmp_path / "other"])


def test_a_joined_header_keeps_what_is_common(tmp_path):
    for name, rows in (("a", 1), ("b", 2)):
        write(tmp_path / name, 0, 3, about={"prepared": {"atom_order": "input", "rows": rows}, "other": name})
    assert MoleculeStore.open(tmp_path).header["about"] == {"prepared": {"atom_order": "input"}}


def test_training_reads_shards(tmp_path):
    for name, (start, stop) in (("a", (0, 3)), ("b", (3, len(SMILES)))):
        values = np.arange(start, stop, dtype=np.float32)[:, None]
        stored = MoleculeStore.in_memory(molecules()[start:stop], values)
        MoleculeStore.write(tmp_path / name, [stored], target_names=["row"])
    dataset = Prepared(path=tmp_path, split={"kind": "random", "fractions": [0.5, 0.3, 0.2], "seed": 0})
    batch = dataset.collate(dataset.labeled_rows("train"))
    assert batch.targets[:, 0].tolist() == batch.rows.tolist()
    assert dataset.count_targets(batch.rows.numpy()) == len(batch)
    assert data_identity(dataset)["rows"] == str(len(SMILES))


def test_versions_of_libraries_may_differ(tmp_path):
    write(tmp_path / "a", 0, 3, versions={"rdkit": "1", "numpy": "2"})
    write(tmp_path / "b", 3, 5, versions={"rdkit": "2", "numpy": "2"})
    assert MoleculeStore.open(tmp_path).header["versions"] == {"rdkit": "1, 2", "numpy": "2"}


def test_a_damaged_shard_is_named(tmp_path):
    write(tmp_path / "a", 0, 3)
    (tmp_path / "b").mkdir()
    with pytest.raises(MolsliceError, match=r"b is not a store of molecules"):
        MoleculeStore.open(tmp_path)
    write(tmp_path / "c", 0, 3)
    (tmp_path / "b").rmdir()
    header = json.loads((tmp_path / "c" / "header.json").read_text())
    write_header(tmp_path / "c", {**header, "source": "other"})
    with pytest.raises(MolsliceError, match="no store"):
        MoleculeStore.open([])
    assert MoleculeStore.open(tmp_path).header["source"] == "rows 0 and 1 other"


@pytest.mark.parametrize("name", [".b.1-2.partial", "b.partial"])
def test_a_shard_that_is_being_written_is_refused(tmp_path, name):
    write(tmp_path / "a", 0, 3)
    (tmp_path / name).mkdir()
    with pytest.raises(MolsliceError, match=f"is not complete: {name} is being written"):
        MoleculeStore.open(tmp_path)


@pytest.mark.parametrize(("numbers", "missing"), [((0, 2), 1), ((1, 2), 3), ((0, 1), 2)])
def test_a_missing_shard_is_named(tmp_path, numbers, missing):
    for number in numbers:
        write(tmp_path / f"part-{number:05d}-of-00003", 0, 3)
    with pytest.raises(MolsliceError, match=f"is not complete: part-0000{missing}-of-00003 is missing"):
        MoleculeStore.open(tmp_path)
    write(tmp_path / f"part-{missing:05d}-of-00003", 0, 3)
    assert len(MoleculeStore.open(tmp_path)) == 9


def test_a_joined_array_is_indexed_like_an_array():
    generator = np.random.default_rng(0)
    whole = generator.integers(0, 9, (50, 2))
    joined = JoinedArray([whole[:7], whole[7:7], whole[7:8], whole[8:]])
    assert (len(joined), joined.shape, joined.ndim, joined.nbytes) == (50, (50, 2), 2, whole.nbytes)
    chosen = generator.integers(-50, 50, 200)
    indices = [0, -1, 7, 49, np.int64(8), slice(None), slice(3, 20), slice(8, 9), slice(7, 7), slice(30, 10)]
    indices += [
        slice(None, None, 3),
        slice(-5, None),
        slice(40, 2, -7),
        slice(48, 99),
        chosen,
        chosen.tolist(),
    ]
    indices += [np.empty(0, np.int64), whole[:, 0] > 4, np.zeros(50, bool), (slice(2, 9), 1), (chosen, 0)]
    for index in indices:
        np.testing.assert_array_equal(joined[index], whole[index], err_msg=str(index))
    for index in (50, -51, [0, 50], [-51]):
        with pytest.raises(IndexError):
            joined[index]


def test_a_slice_over_several_arrays_takes_only_its_own_memory():
    joined = JoinedArray([np.ones(50_000, np.uint8)] * 4)
    tracemalloc.start()
    values = joined[1:-1]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(values) == values.sum() == 199_998
    assert peak < 1.5 * values.nbytes
