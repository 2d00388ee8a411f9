"""Tests of OGB's folder layout: versions 1 and 2, the embedded data, invalid folders."""

import gzip
import shutil

import numpy as np
import pytest
import torch

from molslice.data import build_dataset
from molslice.data.molecules import prepare
from molslice.data.molecules.pcqm4m import Pcqm4m
from molslice.types import MolsliceError
from tests.data.molecules.builders import SMILES, gap_folder
from tests.real_data import GAP_XTB, embedded_smiles, shared

V2 = {"train": [0, 1, 2, 3], "valid": [4, 5], "test-dev": [6, 7], "test-challenge": [8, 9]}


def test_version_1(tmp_path):
    gaps = [*(0.5 * row for row in range(8)), "", "nan"]
    dataset = build_dataset("pcqm4m", {"root": str(gap_folder(tmp_path, gaps=gaps))})
    assert (dataset.version, dataset.kind) == ("v1", "regression")
    assert (dataset.target_names, dataset.target_units) == (("homolumogap",), ("eV",))
    np.testing.assert_array_equal(
        dataset.store.targets[:, 0], [*(0.5 * row for row in range(8)), np.nan, np.nan]
    )
    assert {name: rows.tolist() for name, rows in dataset.splits.items()} == {
        "train": [0, 1, 2, 3, 4, 5],
        "valid": [6, 7],
        "test": [8, 9],
    }
    assert dataset.smiles() == SMILES
    with pytest.raises(MolsliceError, match="no molecule with a known target"):
        dataset.labeled_rows("test")


def test_version_2_keeps_the_row_that_fails(tmp_path):
    dataset = Pcqm4m(root=gap_folder(tmp_path, splits=V2))
    assert dataset.version == "v2"
    assert list(dataset.splits) == ["train", "valid", "test-dev", "test-challenge"]
    assert dataset.store.errors == {3: "not valid SMILES: unknown symbol 'X' at position 1"}
    assert dataset.rows("train").tolist() == [0, 1, 2, 3]
    assert dataset.labeled_rows("train").tolist() == [0, 1, 2]
    assert dataset.store.targets[3, 0] == 4.5


@pytest.mark.parametrize("name", ["pcqm4m_kddcup2021", "pcqm4m-v2"])
def test_the_parent_of_ogbs_folder(tmp_path, name):
    gap_folder(tmp_path / name)
    assert Pcqm4m(root=tmp_path).root == tmp_path / name


def test_two_folders_in_one_parent(tmp_path):
    gap_folder(tmp_path / "pcqm4m_kddcup2021")
    gap_folder(tmp_path / "pcqm4m-v2")
    with pytest.raises(MolsliceError, match="several data sets .* choices"):
        Pcqm4m(root=tmp_path)


def test_the_store_is_below_the_root_and_is_found_again(tmp_path):
    first = Pcqm4m(root=gap_folder(tmp_path))
    assert first.store.path.parent == tmp_path / "processed"
    assert first.store.header["source"] == str(tmp_path)
    assert set(first.store.header["versions"]) == {"molslice", "featurizer", "numpy", "rdkit"}
    before = first.store.path.stat().st_mtime_ns
    again = Pcqm4m(root=tmp_path)
    assert again.store.path == first.store.path
    assert first.store.path.stat().st_mtime_ns == before
    assert Pcqm4m(root=tmp_path, atom_order="input").store.path != first.store.path
    elsewhere = Pcqm4m(root=tmp_path, cache_dir=tmp_path / "elsewhere")
    assert elsewhere.store.path.parent == tmp_path / "elsewhere"


def test_a_changed_table_is_prepared_again(tmp_path):
    Pcqm4m(root=gap_folder(tmp_path))
    shutil.rmtree(tmp_path / "raw")
    (tmp_path / "split_dict.pt").unlink()
    changed = gap_folder(tmp_path, gaps=range(10))
    assert Pcqm4m(root=changed).store.targets[:, 0].tolist() == list(range(10))


def test_a_root_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))
    root = gap_folder(tmp_path / "root")
    (root / "processed").write_text("a file where the folder would be")  # root's rights stop no one
    dataset = Pcqm4m(root=root)
    assert dataset.store.path.parent == tmp_path / "cache"
    assert len(dataset) == 10


def test_a_damaged_store_is_named(tmp_path):
    path = Pcqm4m(root=gap_folder(tmp_path)).store.path
    content = bytearray((path / "atoms.npy").read_bytes())
    content[-1] ^= 1
    (path / "atoms.npy").write_bytes(content)
    with pytest.raises(MolsliceError, match=r"atoms.npy does not match its checksum.*delete the folder"):
        Pcqm4m(root=tmp_path)


def break_table(root, text):
    with gzip.open(root / "raw" / "data.csv.gz", "wt") as file:
        file.write(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "data.csv.gz is empty"),
        ("idx,smiles\n0,C\n", "no column 'homolumogap'"),
        ("idx,smiles,homolumogap\n", "no rows"),
        ("idx,smiles,homolumogap\n0,C,1\n2,C,1\n", r"row 2 \(line 3\), column 'idx': '2' instead of 1"),
        (
            "idx,smiles,homolumogap\n0,C,1\n1,C,inf\n",
            r"row 2 \(line 3\), column 'homolumogap': 'inf' is infinite",
        ),
        ("idx,smiles,homolumogap\n0,C,1\n1,C,?\n", r"row 2 .*'\?' is not a number"),
        (
            "idx,smiles,homolumogap\n0,XXX,1\n1,,1\n",
            "cannot read any of the 2 SMILES of .* row 1: not valid SMILES",
        ),
        ("idx,smiles,homolumogap\n0,C,1\n1,C,1\n", "has rows 0 to 9, but the table has 2"),
    ],
)
def test_wrong_tables_are_named(tmp_path, text, message):
    break_table(gap_folder(tmp_path), text)
    with pytest.raises(MolsliceError, match=message) as caught:
        Pcqm4m(root=tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": [0, 1], "valid": [1]}, "duplicate rows"),
        ({"train": [0, 10]}, "has rows 0 to 10, but the table has 10"),
        ({"train": [-1, 3]}, "has rows -1 to 3"),
        ({"train": [0.5]}, "is not a list of integers"),
    ],
)
def test_wrong_splits_are_named(tmp_path, splits, message):
    with pytest.raises(MolsliceError, match=message):
        Pcqm4m(root=gap_folder(tmp_path, splits=splits))


def test_a_missing_folder_or_file(tmp_path):
    with pytest.raises(MolsliceError, match=r"no raw/data.csv.gz in .*nowhere"):
        Pcqm4m(root=tmp_path / "nowhere")
    (gap_folder(tmp_path) / "split_dict.pt").unlink()
    with pytest.raises(MolsliceError, match=r"no such file: .*split_dict.pt"):
        Pcqm4m(root=tmp_path)


def test_several_processes_give_the_same_store(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "CHUNK_ROWS", 100)
    smiles = embedded_smiles()[:450]
    smiles[234] = "XXX"
    splits = {"train": range(400), "valid": range(400, 450)}
    root = gap_folder(tmp_path, smiles=smiles, gaps=range(450), splits=splits)
    one = Pcqm4m(root=root, workers=1, cache_dir=tmp_path / "one").store
    two = Pcqm4m(root=root, workers=2, cache_dir=tmp_path / "two").store
    assert one.errors == two.errors == {234: "not valid SMILES: unknown symbol 'X' at position 1"}
    assert one.header["arrays"] == two.header["arrays"]
    assert two.targets[:, 0].tolist() == list(range(450))


def test_the_embedded_data():
    dataset = Pcqm4m(root=GAP_XTB)
    assert len(dataset) >= 13_000
    assert not dataset.store.errors
    assert list(dataset.splits) == ["train", "valid", "test"]
    assert np.isfinite(dataset.store.targets).all()


def test_real_rows_of_version_2(tmp_path):
    with gzip.open(shared("pcqm4mv2_rows", "graphium_2k.csv.gz"), "rt") as file:
        rows = [line.strip().split(",") for line in file][1:]
    root = gap_folder(
        tmp_path,
        smiles=[row[1] for row in rows],
        gaps=[row[2] for row in rows],
        splits={"train": range(1600), "valid": range(1600, len(rows)), "test-dev": [], "test-challenge": []},
    )
    dataset = Pcqm4m(root=root)
    assert not dataset.store.errors
    assert dataset.store.num_atoms.max() <= 52
    np.testing.assert_allclose(dataset.store.targets[:, 0], [float(row[2]) for row in rows], rtol=1e-6)


def test_ogb_reads_the_same_splits(tmp_path):
    root = gap_folder(tmp_path, splits=V2)
    expected = torch.load(root / "split_dict.pt", weights_only=False)  # as OGB does
    found = Pcqm4m(root=root).splits
    assert list(found) == list(expected)
    assert all(np.array_equal(found[name], expected[name]) for name in found)
