"""What is written of the labels: PCQM4M's layout, which the data sets of the package read, and the card."""

import csv
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import gap_log
import make_gap_data
import numpy as np
import pytest
import torch
from gap_files import Labeled, write_dataset
from gap_source import Candidate, Choice, key_of, split_of
from rdkit import Chem

from molslice.chem.canonical import canonical_order
from molslice.data.molecules.csv import Csv
from molslice.data.molecules.pcqm4m import Pcqm4m

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {"method": "a rule of this test", "seed": 1}
MOLECULES = [
    "CC(=O)O",
    "C[NH3+]",
    "CO",
    "N#Cc1ccc(Br)cc1",
    "O=S(=O)(F)C1CC1",
    "CCCCCCCCCC",
    "C1COCCN1",
    "Clc1ncccn1",
    "OCCS",
    "CC=CC=O",
]
WIDE = ["idx", "smiles", "homolumogap", "homo_ev", "lumo_ev", "dipole_debye"]
WIDE += ["energy_per_atom_ev", "excess_energy_per_atom_ev"]


def record(smiles: str) -> dict[str, Any]:
    """Labels by rule: the charge of an atom is its atomic number in hundredths, so that it can be told."""
    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    charges = [atom.GetAtomicNum() / 100 for atom in mol.GetAtoms()]
    gap = 1.00004 + len(smiles)
    energy = sum(-5.0 * atom.GetAtomicNum() for atom in mol.GetAtoms()) + (3.0 if "=" in smiles else 0.0)
    energies = {"homo_ev": -10.123456, "lumo_ev": -10.123456 + gap, "energy_ev": energy}
    charges = np.array(charges, np.float32)
    return {"smiles": smiles, "gap_ev": gap, **energies, "dipole_debye": 1.23456, "charges": charges}


def labeled(wide: bool) -> Labeled:
    candidates = [Candidate("some", str(n), Chem.CanonSmiles(smiles)) for n, smiles in enumerate(MOLECULES)]
    rows = [(c, record(c.smiles)) for c in candidates]
    rows.insert(3, (Candidate("some", "77", "CCI"), {"smiles": "CCI", "reason": "scf_failed"}))
    left_out = [Choice(Candidate("some", "88", "C("), "unparsable")]
    return Labeled(rows, left_out, SETTINGS, wide, {"source": {"file": "some.smi.gz"}})


def table(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def key(smiles: str) -> str:
    return key_of(Chem.MolFromSmiles(smiles))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wide") / "out"
    write_dataset(out, labeled(wide=True))
    return out


def test_table_holds_the_labels_beside_the_gap(folder):
    rows = table(folder / "raw" / "data.csv.gz")
    assert list(rows[0]) == WIDE
    assert [row["idx"] for row in rows] == [str(n) for n in range(len(MOLECULES))]
    for row, smiles in zip(rows, MOLECULES, strict=True):
        assert row["smiles"] == Chem.CanonSmiles(smiles)
        assert float(row["homolumogap"]) == pytest.approx(1 + len(row["smiles"]), abs=1e-9)
        assert float(row["homo_ev"]) == -10.1235
        assert float(row["lumo_ev"]) == round(-10.123456 + 1.00004 + len(row["smiles"]), 4)
        assert float(row["dipole_debye"]) == 1.235


def test_energy_is_per_atom_with_hydrogens_and_its_excess_that_over_the_elements(folder):
    rows = {row["smiles"]: row for row in table(folder / "raw" / "data.csv.gz")}
    acid = rows[Chem.CanonSmiles("CC(=O)O")]
    assert float(acid["energy_per_atom_ev"]) == pytest.approx((3 - 5 * (6 + 6 + 8 + 8 + 4)) / 8, abs=1e-4)
    references = json.loads((folder / "card.json").read_text())["energy_references_ev"]
    assert set(references) == {"H", "C", "N", "O", "F", "S", "Cl", "Br"}
    mean = (2 * references["C"] + 2 * references["O"] + 4 * references["H"]) / 8
    excess = float(acid["excess_energy_per_atom_ev"])
    assert excess == pytest.approx(float(acid["energy_per_atom_ev"]) - mean, abs=2e-4)
    assert np.mean([float(row["excess_energy_per_atom_ev"]) for row in rows.values()]) == pytest.approx(
        0, abs=0.05
    )
    assert abs(references["Br"] + 5 * 35) < 30


def test_without_the_other_labels_the_table_is_that_of_pcqm4m(tmp_path):
    card = write_dataset(tmp_path, labeled(wide=False))
    rows = table(tmp_path / "raw" / "data.csv.gz")
    assert list(rows[0]) == WIDE[:3]
    assert rows[0]["homolumogap"] == "8.00004"
    assert not (tmp_path / "charges.npz").exists()
    assert "columns" not in card
    assert "homo_ev" not in card


@pytest.mark.parametrize("atom_order", ["canonical", "input"])
def test_charges_are_in_the_order_of_the_atoms_of_the_data_set(folder, tmp_path, atom_order):
    data = Pcqm4m(root=folder, atom_order=atom_order, cache_dir=tmp_path)
    with np.load(folder / "charges.npz") as packed:
        charges, offsets = packed["charges"], packed["atom_offsets"]
    assert charges.dtype == np.int16
    assert (offsets == data.store.atom_offsets).all()
    if atom_order == "canonical":
        orders = [canonical_order(smiles) for smiles in data.smiles()]
        charges = np.concatenate([charges[offsets[row] + order] for row, order in enumerate(orders)])
    assert (charges == 10 * (data.store.atoms[:, 0].astype(int) + 1)).all()  # OGB counts elements from 0
    assert data.store.targets[:, 0] == pytest.approx([1 + len(text) for text in data.smiles()])


def test_every_label_can_be_a_target(folder, tmp_path):
    data = Csv(path=folder / "raw" / "data.csv.gz", target_columns=WIDE[2:], cache_dir=tmp_path)
    assert data.store.targets.shape == (len(MOLECULES), 6)
    assert np.isfinite(data.store.targets).all()


def test_split_is_by_the_hash_of_the_skeleton(folder):
    split = torch.load(folder / "split_dict.pt", weights_only=False)
    rows, origin = table(folder / "raw" / "data.csv.gz"), table(folder / "origin.csv.gz")
    assert sorted(np.concatenate(list(split.values()))) == list(range(len(rows)))
    for part, numbers in split.items():
        assert {split_of(key(rows[n]["smiles"])) for n in numbers} <= {part}
    assert [(place["source"], place["source_id"]) for place in origin] == [
        ("some", str(n)) for n in range(len(MOLECULES))
    ]


@pytest.mark.parametrize("wide", [True, False])
def test_keys_of_the_skeletons_are_written_with_the_gap_alone(tmp_path, wide):
    write_dataset(tmp_path, labeled(wide))
    origin = table(tmp_path / "origin.csv.gz")
    keys = [place.get("connectivity") for place in origin]
    assert keys == [None if wide else key(smiles) for smiles in MOLECULES]


def test_rows_without_a_label_are_listed_and_those_left_out_before_counted(folder, tmp_path):
    lost = {"source": "some", "source_id": "77", "smiles": "CCI", "reason": "scf_failed"}
    assert table(folder / "left_out.csv.gz") == [lost]
    write_dataset(tmp_path, labeled(wide=False))
    assert table(tmp_path / "left_out.csv.gz") == [
        {"source": "some", "source_id": "88", "smiles": "C(", "reason": "unparsable"},
        lost,
    ]
    for out in (folder, tmp_path):
        excluded = json.loads((out / "card.json").read_text())["excluded"]
        assert excluded == {"some": {"scf_failed": 1, "unparsable": 1}}


def test_the_card_has_settings_counts_and_distributions(folder):
    card = json.loads((folder / "card.json").read_text())
    assert card["settings"] == SETTINGS
    assert card["source"] == {"file": "some.smi.gz"}
    assert card["rows"] == len(MOLECULES) == sum(card["split"].values())
    assert card["ions"] == 1
    assert card["elements"]["O"] == sum("O" in smiles for smiles in MOLECULES)
    assert set(card["columns"]) == {*WIDE[2:], "charges"}
    gaps = [float(row["homolumogap"]) for row in table(folder / "raw" / "data.csv.gz")]
    assert card["gap_ev"]["quantiles"]["0.5"] == pytest.approx(np.median(gaps))
    assert card["charge_e"]["quantiles"]["1"] == 0.35  # bromine


def test_files_are_the_same_each_time(folder, tmp_path):
    write_dataset(tmp_path, labeled(wide=True))
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert len(names) == 6
    assert all((tmp_path / name).read_bytes() == (folder / name).read_bytes() for name in names)


def test_nothing_is_written_without_a_label(tmp_path):
    rows = [(Candidate("some", "77", "CCI"), {"smiles": "CCI", "reason": "scf_failed"})]
    with pytest.raises(ValueError, match="no molecule has a label"):
        write_dataset(tmp_path / "out", Labeled(rows, [], SETTINGS))
    assert not (tmp_path / "out").exists()


@pytest.fixture
def large(tmp_path, monkeypatch):
    """Run the program on a file of SMILES, with labels by rule."""

    def by_rule(todo, jobs, seconds):
        for smiles in todo:
            yield json.loads(json.dumps({**record(smiles), "charges": record(smiles)["charges"].tolist()}))

    source = tmp_path / "pubchem.smi"
    source.write_text("".join(f"{smiles}\n" for smiles in [*MOLECULES, "C", "CC.CC", "CCC", "C(C)C"]))
    (tmp_path / "known.csv").write_text("smiles\nOC=CCC\n")
    monkeypatch.setattr(gap_log, "label_all", by_rule)
    monkeypatch.setattr(gap_log, "settings", lambda: SETTINGS)
    monkeypatch.setattr(make_gap_data, "BASE", write_base(tmp_path / "base"))

    def run(*options: str, name: str = "out") -> Path:
        paths = ["--out", str(tmp_path / name), "--work", str(tmp_path / "work"), "--source", str(source)]
        assert make_gap_data.main([*paths, "--exclude", str(tmp_path / "known.csv"), *options]) == 0
        return tmp_path / name

    return run


def write_base(folder: Path) -> Path:
    """A data set of morpholine alone, which is in the train split: nothing of it is excluded."""
    folder.mkdir()
    assert split_of(key("C1COCCN1")) == "train"
    (folder / "origin.csv.gz").write_bytes(gzip.compress(f"idx,connectivity\n0,{key('C1COCCN1')}\n".encode()))
    return folder


def test_large_form_is_the_start_of_the_draw(large):
    whole = table(large(name="whole") / "raw" / "data.csv.gz")
    out = large("--rows", "6", "--license", "public domain")
    part = table(out / "raw" / "data.csv.gz")
    for row, same in zip(part, whole[:6], strict=True):
        del row["excess_energy_per_atom_ev"], same["excess_energy_per_atom_ev"]  # relative to all rows
        assert row == same
    assert {row["smiles"] for row in whole} == {Chem.CanonSmiles(s) for s in [*MOLECULES, "CCC"]} - {
        "CC=CC=O"
    }
    card = json.loads((out / "card.json").read_text())
    assert card["source"]["license"] == "public domain"
    assert card["source"]["rows"] == 14
    assert card["source"]["rows_drawn"] == 6 + sum(card["excluded"]["pubchem"].values()) < 14
    assert card["excluded_tables"] == [{"file": "known.csv", "rows": 1, "unparsable": 0, "skeletons": 1}]
    whole_card = json.loads((out.parent / "whole" / "card.json").read_text())
    assert whole_card["excluded"]["pubchem"] == {
        "duplicate": 1,
        "heavy_atoms_outside_2_to_30": 1,
        "in_known": 1,
        "several_fragments": 1,
    }


def test_large_form_is_written_while_the_log_grows(large, tmp_path, monkeypatch):
    expected = large("--rows", "6").joinpath("raw", "data.csv.gz").read_bytes()
    large("--rows", "8", name="longer")
    log = tmp_path / "work" / "labels.jsonl"
    with open(log, "a") as file:
        file.write('{"smiles": "C')
    before = log.read_bytes()
    monkeypatch.setattr(make_gap_data, "run", None)
    assert large("--rows", "6", name="again").joinpath("raw", "data.csv.gz").read_bytes() == expected
    assert log.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rows", "5"], "need --source"),
        (["--exclude", "a.csv"], "need --source"),
        (["--source", "a.smi"], "--source needs --out"),
        (["--source", "a.smi", "--out", "b", "--limit", "3"], "takes --rows instead of --limit"),
        (["--source", "a.smi", "--out", "b", "--rows", "0"], "must be positive"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        make_gap_data.main(options)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_missing_source_is_named(tmp_path, capsys):
    paths = ["--source", str(tmp_path / "no.smi"), "--out", str(tmp_path / "out"), "--work", str(tmp_path)]
    assert make_gap_data.main(paths) == 1
    assert "no.smi" in capsys.readouterr().err


@pytest.mark.exhaustive
def test_embedded_data_are_written_from_their_labels_byte_by_byte(tmp_path):
    """Selection, split, files and card of data/gap_xtb; the labels themselves take half an hour."""
    data = ROOT / "data" / "gap_xtb"
    header = {
        "settings": json.loads((data / "card.json").read_text())["settings"],
        "labels": list(gap_log.LABELS),
    }
    rows = [
        {"smiles": row["smiles"], "gap_ev": float(row["homolumogap"])}
        for row in table(data / "raw" / "data.csv.gz")
    ]
    before = {"unparsable", "heavy_atoms_outside_2_to_30", "several_fragments", "open_shell", "duplicate"}
    lost = [row for row in table(data / "left_out.csv.gz") if row["reason"] not in before]
    rows += [{"smiles": row["smiles"], "reason": row["reason"]} for row in lost]
    assert Counter(row["reason"] for row in lost)["embedding_failed"] == 6
    (tmp_path / "work").mkdir()
    lines = [json.dumps(row) + "\n" for row in [header, *rows]]
    (tmp_path / "work" / "labels.jsonl").write_text("".join(lines))
    out = tmp_path / "out"
    assert make_gap_data.main(["--out", str(out), "--work", str(tmp_path / "work")]) == 0
    for name in ("raw/data.csv.gz", "split_dict.pt", "origin.csv.gz", "left_out.csv.gz", "card.json"):
        assert (out / name).read_bytes() == (data / name).read_bytes(), name
