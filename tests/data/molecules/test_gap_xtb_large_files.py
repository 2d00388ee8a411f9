"""The large form of the embedded data: layout, labels, charges, split, card and page."""

import csv
import gzip
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem

from molslice.chem.connectivity import connectivity
from molslice.data.molecules.prepare import Featurizing, featurize_chunk

DATA = Path(__file__).resolve().parents[3] / "data"
FOLDER = DATA / "gap_xtb_100k"
STEP = 3  # of the rows that are looked at one by one


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return pd.read_csv(FOLDER / "raw" / "data.csv.gz")


@pytest.fixture(scope="module")
def card() -> dict:
    return json.loads((FOLDER / "card.json").read_text())


def test_labels_are_plausible_and_agree(table):
    columns = ["homolumogap", "homo_ev", "lumo_ev", "dipole_debye", "energy_per_atom_ev"]
    columns += ["excess_energy_per_atom_ev"]
    assert list(table.columns) == ["idx", "smiles", *columns]
    assert len(table) >= 99_000
    assert (table["idx"] == np.arange(len(table))).all()
    assert np.isfinite(table[columns].to_numpy()).all()
    assert np.allclose(table["lumo_ev"] - table["homo_ev"], table["homolumogap"], atol=1.6e-4, rtol=0)
    assert table["homolumogap"].between(0, 25, inclusive="neither").all()
    assert table["dipole_debye"].between(0, 100).all()
    assert table["energy_per_atom_ev"].between(-200, -10).all()
    assert table["excess_energy_per_atom_ev"].std() < 0.05 * table["energy_per_atom_ev"].std()
    assert table["smiles"].is_unique


@pytest.mark.slow
def test_charges_are_those_of_the_atoms(table):
    with np.load(FOLDER / "charges.npz") as packed:
        assert packed["charges"].dtype == np.int16
        charges, offsets = packed["charges"] / 1000, packed["atom_offsets"]
    assert (len(offsets), offsets[0], offsets[-1]) == (len(table) + 1, 0, len(charges))
    means = {}
    for row in range(0, len(table), STEP):
        mol = Chem.MolFromSmiles(table["smiles"][row])
        own = charges[offsets[row] : offsets[row + 1]]
        assert len(own) == mol.GetNumAtoms()
        for atom, charge in zip(mol.GetAtoms(), own, strict=True):
            means.setdefault(atom.GetSymbol(), []).append(charge)
    assert np.mean(means["O"]) < -0.3 < np.mean(means["N"]) < -0.05
    assert np.mean(means["C"]) > np.mean(means["N"])
    assert max(means["F"]) < 0


@pytest.mark.slow
@pytest.mark.parametrize("step", [STEP, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_split_follows_the_rule_and_holds_out_the_molecules_of_the_small_form(table, step):
    split = torch.load(FOLDER / "split_dict.pt", weights_only=False)
    assert (np.sort(np.concatenate(list(split.values()))) == np.arange(len(table))).all()
    for part, share in (("train", 0.8), ("valid", 0.1), ("test", 0.1)):
        assert len(split[part]) / len(table) == pytest.approx(share, abs=0.02)
    small = pd.read_csv(DATA / "gap_xtb" / "origin.csv.gz", dtype={"connectivity": str})["connectivity"]
    held_out = {key for key in small if int(key, 16) % 10 >= 8}
    assert len(held_out) > 2_500
    for part, rows in split.items():
        for row in rows[::step]:
            skeleton = connectivity(Chem.MolFromSmiles(table["smiles"][row]))
            key = hashlib.sha256(skeleton.encode()).hexdigest()[:16]
            tenth = int(key, 16) % 10
            assert part == ("train" if tenth < 8 else ("valid" if tenth == 8 else "test"))
            assert key not in held_out


def test_card_counts_what_is_there(table, card):
    split = torch.load(FOLDER / "split_dict.pt", weights_only=False)
    with gzip.open(FOLDER / "left_out.csv.gz", "rt", newline="") as file:
        left_out = list(csv.DictReader(file))
    assert card["rows"] == len(table) == sum(card["rows_by_source"].values())
    assert card["split"] == {part: len(rows) for part, rows in split.items()}
    (excluded,) = card["excluded"].values()
    assert card["source"]["rows_drawn"] == card["rows"] + sum(excluded.values()) <= card["source"]["rows"]
    for reason in {row["reason"] for row in left_out}:
        assert excluded[reason] == sum(row["reason"] == reason for row in left_out)
    assert sum(card["heavy_atoms"].values()) == len(table)
    for name in table.columns[2:]:
        stated = card["gap_ev" if name == "homolumogap" else name]
        assert table[name].mean() == pytest.approx(stated["mean"], abs=1e-4)
        assert table[name].std(ddof=0) == pytest.approx(stated["sd"], abs=1e-4)
    assert card["source"]["license"]
    assert {"tox21.csv.gz", "esol.csv.gz"} < {entry["file"] for entry in card["excluded_tables"]}


def test_the_excess_energy_is_what_the_elements_do_not_explain(table, card):
    references = card["energy_references_ev"]
    for row in range(0, len(table), 300):
        atoms = Chem.AddHs(Chem.MolFromSmiles(table["smiles"][row])).GetAtoms()
        explained = np.mean([references[atom.GetSymbol()] for atom in atoms])
        excess = table["energy_per_atom_ev"][row] - explained
        assert excess == pytest.approx(table["excess_energy_per_atom_ev"][row], abs=2.1e-4)


def test_rows_can_be_featurized(table):
    smiles = list(table["smiles"][::67])
    store = featurize_chunk(smiles, np.zeros((len(smiles), 0), np.float32), Featurizing())
    assert not store.errors
    assert store.num_atoms.max() <= 30


def test_the_page_states_the_numbers_of_the_card(card):
    section = (DATA / "README.md").read_text().partition("## gap_xtb_100k")[2]
    assert f"{card['rows']:,} compounds" in section
    for part in ("train", "valid", "test"):
        assert re.search(rf"\b{card['split'][part]:,}\b", section)


def test_files_are_small_and_there_are_no_others():
    files = [path.relative_to(FOLDER) for path in FOLDER.rglob("*") if path.is_file()]
    shipped = sorted(str(path) for path in files if "processed" not in path.parts)
    names = ["card.json", "charges.npz", "left_out.csv.gz", "origin.csv.gz", "raw/data.csv.gz"]
    assert shipped == [*names, "split_dict.pt"]
    assert sum((FOLDER / name).stat().st_size for name in shipped) <= 8_000_000
