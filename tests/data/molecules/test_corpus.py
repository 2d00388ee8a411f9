"""The data set of a pretraining corpus."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from molslice.data import build_dataset
from molslice.data.checksums import changed_parts, data_identity
from molslice.data.molecules.corpus import Corpus, _divide
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.store_files import read_header, write_header
from molslice.tasks import TargetInfo
from molslice.types import DataSpec, MolsliceError
from tests.data.molecules.builders import molecules
from tests.data.molecules.corpora import DESCRIPTORS, make_corpus

SHARES: dict[str, Any] = {"valid_fraction": 0.2, "test_fraction": 0.1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


def test_targets_are_those_of_the_header(folder):
    corpus = build_dataset("corpus", {"path": str(folder), **SHARES})
    assert corpus.spec == DataSpec(5, num_atom_outputs=1)
    info = TargetInfo.from_mapping(corpus.stated_targets)
    assert info.names == (*DESCRIPTORS, "gap", "dipole")
    assert info.units == ("", "", "", "eV", "D")
    assert info.families == ("descriptors",) * 3 + ("quantum",) * 2
    assert info.mean[0] == pytest.approx(np.asarray(corpus.targets)[:, 0].mean())
    assert info.atoms is not None
    assert (info.atoms.names, info.atoms.units) == (("charge",), ("e",))
    again = TargetInfo.from_mapping(json.loads(json.dumps(info.to_mapping())))
    assert again == info


def test_a_batch_has_targets_of_molecules_and_atoms(folder):
    corpus = Corpus(path=folder, **SHARES)
    batch = corpus.collate([3, 4])
    assert batch.targets is not None
    assert batch.atom_targets is not None
    assert not torch.isnan(batch.targets[0]).any()
    assert torch.isnan(batch.targets[1]).tolist() == [False, False, False, True, True]
    size = int(corpus.store.num_atoms[3])
    expected = 0.05 * (batch.atoms[0, :size, 0].float() - 5)
    torch.testing.assert_close(batch.atom_targets[0, :size, 0], expected)


@pytest.mark.parametrize("name", ["atom_targets", "descriptors"])
def test_targets_of_atoms_and_descriptors_are_part_of_the_identity(folder, tmp_path, name):
    stored = Corpus(path=folder, **SHARES)
    numbers = np.arange(len(stored) * 2, dtype=np.float32).reshape(-1, 2)
    molecules = [stored.store.arrays(row) for row in range(len(stored))]
    whole = {"atom_targets": np.asarray(stored.store.atom_targets), "descriptors": numbers}
    found = []
    for place, number in enumerate((0.0, 0.0, 1.0)):
        array = whole[name].copy()
        array[0, 0] += number
        more: dict[str, Any] = {"atom_target_names": ["charge"]}
        part = MoleculeStore.in_memory(molecules, **more, **{**whole, name: array})
        written = MoleculeStore.write(tmp_path / str(place), [part], num_descriptors=2, **more)
        for store in (written, part):
            stored.store = store
            found.append(data_identity(stored))
    assert found[0] == found[1] == found[2] == found[3]
    assert found[4] == found[5]
    assert changed_parts(found[0], found[4]) == ["the inputs"]


def test_every_row_is_in_one_split_by_its_group(folder):
    corpus = Corpus(path=folder, **SHARES)
    together = np.concatenate(list(corpus.splits.values()))
    assert sorted(together) == list(range(len(corpus)))
    assert list(corpus.splits) == ["train", "valid", "test"]
    assert 0.1 < len(corpus.splits["valid"]) / len(corpus) < 0.3
    for split in corpus.splits:
        np.testing.assert_array_equal(corpus.labeled_rows(split), corpus.splits[split])
    others = Corpus(path=folder, seed=1, **SHARES).splits["valid"]
    assert set(others) != set(corpus.splits["valid"])


def test_a_group_keeps_its_split_if_the_corpus_grows():
    groups = np.random.default_rng(0).integers(0, 2**64, 3_000, dtype=np.uint64)
    larger = np.concatenate([groups[:500], groups[::-1]])
    split = {
        int(groups[row]): name for name, rows in _divide(groups[:1000], 0.1, 0.2, 0).items() for row in rows
    }
    for name, rows in _divide(larger, 0.1, 0.2, 0).items():
        assert {split.get(int(larger[row]), name) for row in rows} == {name}
        assert len(rows) / len(larger) == pytest.approx(
            {"train": 0.7, "valid": 0.1, "test": 0.2}[name], abs=0.03
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valid_fraction": 0}, "valid_fraction must be a number between 0 and 0.5, got 0"),
        ({"test_fraction": 0.5}, "test_fraction must be"),
        ({"valid_fraction": 1e-9}, "the split 'valid' of 120 molecules is empty"),
        ({"seed": -1}, "seed must be a non-negative integer"),
    ],
)
def test_invalid_options_are_refused(folder, options, message):
    with pytest.raises(MolsliceError, match=message):
        Corpus(path=folder, **{**SHARES, **options})


def test_a_folder_without_a_corpus_is_refused(tmp_path):
    with pytest.raises(MolsliceError, match=r"no such file.*make_corpus.py"):
        build_dataset("corpus", {"path": str(tmp_path / "missing")})
    MoleculeStore.write(tmp_path / "store", [MoleculeStore.in_memory(molecules())])
    with pytest.raises(MolsliceError, match="not of a corpus"):
        Corpus(path=tmp_path)


@pytest.mark.parametrize("part", ["families", "scaling", "charge_scaling"])
def test_a_header_without_targets_is_refused(tmp_path, part):
    folder = make_corpus(tmp_path, rows=20)
    header = read_header(folder / "store")
    header["about"][part] = {"mean": [1.0], "descriptors": []}
    write_header(folder / "store", header)
    with pytest.raises(MolsliceError, match="cannot read the targets of the corpus"):
        Corpus(path=folder, **SHARES)


@pytest.mark.parametrize("part", ["featurizer_version", "descriptors_version"])
def test_features_of_another_version_are_refused(tmp_path, part):
    folder = make_corpus(tmp_path, rows=20)
    header = read_header(folder / "store")
    header["about"][part] = 0
    write_header(folder / "store", header)
    with pytest.raises(MolsliceError, match=f"has {part} 0, not [13]; make it again"):
        Corpus(path=folder, **SHARES)


def test_it_has_no_smiles(folder):
    with pytest.raises(MolsliceError, match="not their SMILES"):
        Corpus(path=folder, **SHARES).smiles()
    assert Corpus.describe({"path": str(folder)}) is None
