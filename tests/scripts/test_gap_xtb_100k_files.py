"""The files of the large embedded data set agree with each other, with the small one and with the card."""

import csv
import gzip
import json
import re
from pathlib import Path

import gap_source
import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem, RDLogger

from molslice.data.molecules.prepare import featurize_chunk

DATA = Path(__file__).resolve().parents[2] / "data"
FOLDER, SMALL = DATA / "gap_xtb_100k", DATA / "gap_xtb"
LABELS = [
    "homolumogap",
    "homo_ev",
    "lumo_ev",
    "dipole_debye",
    "energy_per_atom_ev",
    "excess_energy_per_atom_ev",
]
LARGEST_BYTES = 8_000_000


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return pd.read_csv(FOLDER / "raw" / "data.csv.gz")


@pytest.fixture(scope="module")
def split() -> dict[str, np.ndarray]:
    return torch.load(FOLDER / "split_dict.pt", weights_only=False)


@pytest.fixture(scope="module")
def card() -> dict:
    return json.loads((FOLDER / "card.json").read_text())


@pytest.fixture(scope="module")
def sample(table) -> pd.DataFrame:
    return table.iloc[np.sort(np.random.default_rng(0).permutation(len(table))[:1500])]


def test_the_folder_is_small_and_has_no_other_files():
    files = {
        path.relative_to(FOLDER): path.stat().st_size
        for path in FOLDER.rglob("*")
        if path.is_file() and "processed" not in path.parts
    }
    names = [
        "card.json",
        "charges.npz",
        "left_out.csv.gz",
        "origin.csv.gz",
        "raw/data.csv.gz",
        "split_dict.pt",
    ]
    assert sorted(map(str, files)) == names
    assert sum(files.values()) <= LARGEST_BYTES


def test_rows_have_all_labels(table, card):
    assert list(table.columns) == ["idx", "smiles", *LABELS]
    assert (table["idx"] == np.arange(len(table))).all()
    assert np.isfinite(table[LABELS]).all(axis=None)
    assert len(table) == card["rows"] == sum(card["split"].values()) >= 99_000
    assert table["smiles"].is_unique
    # both are rounded to four decimals
    np.testing.assert_allclose(table["lumo_ev"] - table["homo_ev"], table["homolumogap"], atol=1.6e-4)
    for name in LABELS:
        stated = card["gap_ev" if name == "homolumogap" else name]
        assert table[name].mean() == pytest.approx(stated["mean"], abs=1e-4)
        assert table[name].std(ddof=0) == pytest.approx(stated["sd"], abs=1e-4)


def test_every_row_is_in_one_split_by_its_skeleton(table, split, sample):
    rows = np.concatenate([split[part] for part in ("train", "valid", "test")])
    assert (np.sort(rows) == np.arange(len(table))).all()
    part_of = {int(row): part for part, rows in split.items() for row in rows}
    RDLogger.DisableLog("rdApp.*")
    for row, smiles in zip(sample["idx"], sample["smiles"], strict=True):
        assert gap_source.split_of(gap_source.key_of(Chem.MolFromSmiles(smiles))) == part_of[row]


def test_no_molecule_is_one_to_test_the_small_set_on(sample):
    held_out = gap_source.held_out_keys(SMALL)
    assert len(held_out) > 2_500
    keys = {gap_source.key_of(Chem.MolFromSmiles(smiles)) for smiles in sample["smiles"]}
    assert not keys & held_out.keys()


def test_the_excess_energy_is_what_the_elements_do_not_explain(sample, card):
    references = card["energy_references_ev"]
    for smiles, total, excess in zip(
        sample["smiles"][:300],
        sample["energy_per_atom_ev"],
        sample["excess_energy_per_atom_ev"],
        strict=False,
    ):
        atoms = [references[atom.GetSymbol()] for atom in Chem.AddHs(Chem.MolFromSmiles(smiles)).GetAtoms()]
        assert total - np.mean(atoms) == pytest.approx(excess, abs=2.1e-4)


def test_charges_are_those_of_the_atoms_of_the_smiles(sample):
    with np.load(FOLDER / "charges.npz") as found:
        charges, offsets = found["charges"], found["atom_offsets"]
    assert charges.dtype == np.int16
    assert offsets[-1] == len(charges)
    signs = {}
    for row, smiles in zip(sample["idx"], sample["smiles"], strict=True):
        own = charges[offsets[row] : offsets[row + 1]] / 1000
        molecule = Chem.MolFromSmiles(smiles)
        assert len(own) == molecule.GetNumAtoms()
        for atom, charge in zip(molecule.GetAtoms(), own, strict=True):
            signs.setdefault(atom.GetSymbol(), []).append(charge)
    assert np.mean(signs["O"]) < -0.3
    assert np.mean(signs["N"]) < -0.05
    assert np.mean(signs["C"]) > np.mean(signs["N"])


def test_rows_can_be_featurized(sample):
    packed = featurize_chunk(list(sample["smiles"]), np.zeros((len(sample), 0), np.float32), 256, "canonical")
    assert not packed.errors
    assert packed.atom_counts.max() <= 30


def test_rows_without_a_label_are_listed_and_counted(card):
    with gzip.open(FOLDER / "left_out.csv.gz", "rt", newline="") as file:
        listed = list(csv.DictReader(file))
    counts = next(iter(card["excluded"].values()))
    drawn = card["source"]["rows_drawn"]
    assert drawn == card["rows"] + sum(counts.values())
    for reason in {row["reason"] for row in listed}:
        assert counts[reason] == sum(row["reason"] == reason for row in listed)


def test_the_page_states_the_numbers_of_the_card(card):
    page = (DATA / "README.md").read_text()
    section = page.partition("## gap_xtb_100k")[2]
    assert f"{card['rows']:,} compounds" in section
    for part in ("train", "valid", "test"):
        assert re.search(rf"\b{card['split'][part]:,}\b", section)
