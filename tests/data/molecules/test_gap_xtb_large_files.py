"""The large form of the embedded data, where it is there: layout, labels, charges, split and card."""

import csv
import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem

from molslice.chem.connectivity import connectivity

DATA = Path(__file__).resolve().parents[3] / "data"
FOLDER = DATA / "gap_xtb_100k"
STEP = 3  # of the rows that are looked at one by one

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="data/gap_xtb_100k has not been made")


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
    assert len(table) >= 95_000
    assert (table["idx"] == np.arange(len(table))).all()
    assert np.isfinite(table[columns].to_numpy()).all()
    assert np.allclose(table["lumo_ev"] - table["homo_ev"], table["homolumogap"], atol=1.6e-4, rtol=0)
    assert table["homolumogap"].between(0, 25, inclusive="neither").all()
    assert table["dipole_debye"].between(0, 100).all()
    assert table["energy_per_atom_ev"].between(-200, -10).all()
    assert table["excess_energy_per_atom_ev"].std() < 0.05 * table["energy_per_atom_ev"].std()
    assert table["smiles"].is_unique


def test_charges_are_those_of_the_atoms(table):
    with np.load(FOLDER / "charges.npz") as packed:
        charges, offsets = packed["charges"] / 1000, packed["atom_offsets"]
    assert (len(offsets), offsets[0], offsets[-1]) == (len(table) + 1, 0, len(charges))
    means = {}
    for row in range(0, len(table), STEP):
        mol = Chem.MolFromSmiles(table["smiles"][row])
        own = charges[offsets[row] : offsets[row + 1]]
        assert len(own) == mol.GetNumAtoms()
        for atom, charge in zip(mol.GetAtoms(), own, strict=True):
            means.setdefault(atom.GetSymbol(), []).append(charge)
    assert np.mean(means["O"]) < -0.3 < np.mean(means["N"]) < 0
    assert max(means["F"]) < 0


@pytest.mark.parametrize("step", [STEP, pytest.param(1, marks=pytest.mark.slow)])
def test_split_follows_the_rule_and_holds_out_the_molecules_of_the_small_form(table, step):
    split = torch.load(FOLDER / "split_dict.pt", weights_only=False)
    assert (np.sort(np.concatenate(list(split.values()))) == np.arange(len(table))).all()
    for part, share in (("train", 0.8), ("valid", 0.1), ("test", 0.1)):
        assert len(split[part]) / len(table) == pytest.approx(share, abs=0.02)
    small = pd.read_csv(DATA / "gap_xtb" / "origin.csv.gz", dtype={"connectivity": str})["connectivity"]
    held_out = {key for key in small if int(key, 16) % 10 >= 8}
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
    for row in left_out:
        assert row["reason"] in excluded
    assert sum(card["heavy_atoms"].values()) == len(table)
    assert card["gap_ev"]["mean"] == pytest.approx(table["homolumogap"].mean(), abs=1e-4)
    assert card["source"]["license"]
    assert {"tox21.csv.gz", "esol.csv.gz"} < {entry["file"] for entry in card["excluded_tables"]}


def test_files_are_small():
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    shipped = [path for path in files if "processed" not in path.relative_to(FOLDER).parts]
    assert sum(path.stat().st_size for path in shipped) <= 8_000_000
