"""The files of the embedded data set agree with each other, with OGB's layout and with the card."""

import csv
import gzip
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem, rdBase

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "data" / "gap_xtb"


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return pd.read_csv(FOLDER / "raw" / "data.csv.gz")


@pytest.fixture(scope="module")
def split() -> dict[str, np.ndarray]:
    return torch.load(FOLDER / "split_dict.pt", weights_only=False)


@pytest.fixture(scope="module")
def card() -> dict:
    return json.loads((FOLDER / "card.json").read_text())


def test_rows_are_as_pcqm4m_has_them(table):
    assert list(table.columns) == ["idx", "smiles", "homolumogap"]
    assert len(table) >= 13_000
    assert (table["idx"] == np.arange(len(table))).all()
    assert np.isfinite(table["homolumogap"]).all()
    assert table["homolumogap"].between(0, 25, inclusive="neither").all()


def test_ogb_reads_the_folder(table, split, tmp_path, monkeypatch):
    """Reads the files with OGB's class for v1, under its folder name."""
    from ogb.lsc import PCQM4MDataset

    root = tmp_path / "pcqm4m_kddcup2021"
    root.mkdir()
    (root / "RELEASE_v1.txt").touch()
    (root / "raw").symlink_to(FOLDER / "raw")
    (root / "split_dict.pt").symlink_to(FOLDER / "split_dict.pt")
    # OGB's call predates the weights-only default of torch 2.6.
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    dataset = PCQM4MDataset(root=str(tmp_path), only_smiles=True)
    assert len(dataset) == len(table)
    smiles, gap = dataset[123]
    assert (smiles, gap) == (table["smiles"][123], table["homolumogap"][123])
    for part, rows in dataset.get_idx_split().items():
        assert (rows == split[part]).all()


def test_split_covers_every_row_once_in_8_1_1(table, split):
    assert list(split) == ["train", "valid", "test"]
    assert all(isinstance(rows, np.ndarray) and rows.dtype == np.int64 for rows in split.values())
    rows = np.concatenate(list(split.values()))
    assert (np.sort(rows) == np.arange(len(table))).all()
    for part, share in (("train", 0.8), ("valid", 0.1), ("test", 0.1)):
        assert len(split[part]) / len(table) == pytest.approx(share, abs=0.01)


def test_molecules_are_unique_whole_and_of_2_to_30_heavy_atoms(table):
    with rdBase.BlockLogs():
        molecules = [Chem.MolFromSmiles(smiles) for smiles in table["smiles"]]
    assert all(mol is not None for mol in molecules)
    assert len({Chem.MolToSmiles(mol) for mol in molecules}) == len(table)
    assert not table["smiles"].str.contains(".", regex=False).any()
    heavy = [mol.GetNumHeavyAtoms() for mol in molecules]
    assert min(heavy) >= 2
    assert max(heavy) <= 30


@pytest.fixture(scope="module")
def part_of(table, split) -> np.ndarray:
    """Return the part of each row."""
    found = np.empty(len(table), dtype=object)
    for part, rows in split.items():
        found[rows] = part
    return found


def test_no_form_of_a_molecule_straddles_the_split(part_of):
    """Check the split by the keys of the program."""
    origin = pd.read_csv(FOLDER / "origin.csv.gz", dtype={"connectivity": str})
    tenths = [int(key, 16) % 10 for key in origin["connectivity"]]
    named = ["train" if tenth < 8 else ("valid" if tenth == 8 else "test") for tenth in tenths]
    assert (part_of == np.array(named, dtype=object)).all()


@pytest.mark.exhaustive
def test_no_form_straddles_the_split_by_another_name(table, part_of):
    """Check the split by the connectivity block of InChI, which the program does not use."""
    with rdBase.BlockLogs():
        blocks = [Chem.MolToInchiKey(Chem.MolFromSmiles(smiles))[:14] for smiles in table["smiles"]]
    assert all(blocks)
    assert pd.Series(part_of).groupby(blocks).nunique().max() == 1
    assert len(set(blocks)) < len(table), "there are forms to keep together, so the check can fail"


def test_card_counts_what_is_there(table, split, card):
    origin = pd.read_csv(FOLDER / "origin.csv.gz")
    with gzip.open(FOLDER / "left_out.csv.gz", "rt", newline="") as file:
        left_out = list(csv.DictReader(file))
    assert card["rows"] == len(table) == len(origin)
    assert card["rows_by_source"] == dict(Counter(origin["source"]))
    assert card["split"] == {part: len(rows) for part, rows in split.items()}
    for source, reasons in card["excluded"].items():
        assert reasons == dict(Counter(row["reason"] for row in left_out if row["source"] == source))
    assert sum(card["heavy_atoms"].values()) == len(table)
    assert card["gap_ev"]["mean"] == pytest.approx(table["homolumogap"].mean(), abs=1e-4)
    sources = {"nci": 4_999, "wehi": 10_000}
    for source, rows in sources.items():
        total = card["rows_by_source"][source] + sum(card["excluded"][source].values())
        assert total == rows, source


def test_card_page_repeats_the_counts(card):
    page = (ROOT / "data" / "README.md").read_text()
    numbers = set(re.findall(r"[\d,]+(?:\.\d+)?", page))
    told = [card["rows"], *card["split"].values(), *card["rows_by_source"].values()]
    told += [count for reasons in card["excluded"].values() for count in reasons.values()]
    missing = [count for count in told if f"{count:,}" not in numbers]
    assert not missing, f"data/README.md lacks {missing}"
    for name, value in card["gap_ev"].items():
        if name != "quantiles":
            assert f"{value:.3f}" in numbers, name
    for package, number in card["settings"]["versions"].items():
        assert f"{package} {number}" in page


def test_files_are_small_and_reproducible_in_their_bytes():
    # The loader puts its store into processed/, as OGB does; that is not shipped.
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    shipped = [path for path in files if "processed" not in path.relative_to(FOLDER).parts]
    assert sum(path.stat().st_size for path in shipped) <= 3_000_000
    packed = [path for path in shipped if path.suffix == ".gz"]
    assert len(packed) == 3
    for path in packed:
        assert path.read_bytes()[4:8] == bytes(4), f"{path.name} has a time stamp"
