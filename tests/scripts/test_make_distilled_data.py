"""The program that extends training data with molecules that a trained model labels."""

import csv
import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from gap_source import key_of, split_of
from make_distilled_data import main
from rdkit import Chem
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from molslice import load_model
from molslice.data.molecules.ogb_split import read_split_file
from molslice.types import MolsliceError

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "data" / "gap_xtb"
LARGE = ROOT / "data" / "gap_xtb_100k"
TEACHER = "gap-xtb"


def rows_of(folder: Path) -> list[dict[str, str]]:
    with gzip.open(folder / "raw" / "data.csv.gz", "rt", newline="") as file:
        return list(csv.DictReader(file))


def make(folder: Path, molecules: list[str], *, rows: int = 50) -> Path:
    source = folder / "molecules.smi"
    source.write_text("".join(f"{text} name\n" for text in molecules))
    command = [str(source), "--rows", str(rows), "--base", str(BASE), "--teacher", TEACHER]
    assert main([*command, "--work", str(folder / "work"), "--out", str(folder / "out")]) == 0
    return folder / "out"


def shifted_teacher(folder: Path) -> Path:
    """Write a copy of the teacher whose predictions are 0.5 eV higher."""
    shutil.copytree(ROOT / "molslice" / "pretrained" / TEACHER, folder)
    file = folder / "model.safetensors"
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata()
    weights = load_file(file)
    before = load_model(folder).predict(["CCCC"])[0]
    weights["readout.bias"] += 1.0
    save_file(weights, file, metadata)
    slope = load_model(folder).predict(["CCCC"])[0] - before
    weights["readout.bias"] += 0.5 / float(slope) - 1.0
    save_file(weights, file, metadata)
    return folder


def alkyl_amines(number: int) -> list[str]:
    """SMILES of molecules that are not in the base."""
    known = {row["smiles"] for row in rows_of(BASE)}
    texts = [
        f"{'C' * a}N({'C' * b})C1CCC({'F' * c})CC1" for a in range(6, 14) for b in range(1, 4) for c in (0, 1)
    ]
    texts = [Chem.CanonSmiles(text.replace("()", "")) for text in texts]
    return [text for text in dict.fromkeys(texts) if text not in known][:number]


def test_rows_of_the_base_stay_and_new_ones_are_training_rows_with_predicted_values(tmp_path):
    molecules = alkyl_amines(40)
    is_held_out = [split_of(key_of(Chem.MolFromSmiles(text))) != "train" for text in molecules]
    assert any(is_held_out)
    base = rows_of(BASE)
    left_out = [base[0]["smiles"], "CCO.CCO", "C[CH2]", "no molecule", molecules[0]]
    out = make(tmp_path, molecules + left_out)
    rows = rows_of(out)
    assert [list(row.values())[:3] for row in rows[: len(base)]] == [list(row.values())[:3] for row in base]
    new = rows[len(base) :]
    wanted = [text for text, held_out in zip(molecules, is_held_out, strict=True) if not held_out]
    assert sorted(row["smiles"] for row in new) == sorted(wanted)
    predicted = load_model(TEACHER).predict([row["smiles"] for row in new])
    np.testing.assert_allclose([float(row["homolumogap"]) for row in new], predicted, atol=1e-4)
    before, after = read_split_file(BASE / "split_dict.pt"), read_split_file(out / "split_dict.pt")
    assert [int(row["idx"]) for row in rows] == list(range(len(rows)))
    np.testing.assert_array_equal(after["train"][: len(before["train"])], before["train"])
    np.testing.assert_array_equal(after["train"][len(before["train"]) :], np.arange(len(base), len(rows)))
    for name in ("valid", "test"):
        np.testing.assert_array_equal(after[name], before[name])
    counts = json.loads((out / "card.json").read_text())["counts"]["molecules.smi"]
    assert counts == {
        "chosen": len(wanted),
        "duplicate": 1,
        "in_base": 1,
        "open_shell": 1,
        "several_fragments": 1,
        "unparsable": 1,
        "valid_or_test": sum(is_held_out),
    }


def test_number_of_rows_is_a_limit_and_finished_pieces_are_not_computed_again(tmp_path):
    molecules = alkyl_amines(20)
    out = make(tmp_path, molecules, rows=3)
    first = (out / "raw" / "data.csv.gz").read_bytes()
    assert len(rows_of(out)) == len(rows_of(BASE)) + 3
    (predicted,) = (tmp_path / "work").glob("predicted-*.csv")
    before = predicted.stat().st_mtime_ns
    again = tmp_path / "again"
    source = tmp_path / "molecules.smi"
    command = [str(source), "--rows", "3", "--base", str(BASE), "--teacher", TEACHER]
    assert main([*command, "--work", str(tmp_path / "work"), "--out", str(again)]) == 0
    assert predicted.stat().st_mtime_ns == before
    assert (again / "raw" / "data.csv.gz").read_bytes() == first


def test_pieces_of_other_input_are_refused(tmp_path):
    molecules = alkyl_amines(20)
    make(tmp_path, molecules, rows=2)
    with pytest.raises(MolsliceError, match=r"work was made from other files; choose another --work"):
        make(tmp_path, molecules, rows=4)


def test_values_of_several_teachers_are_averaged(tmp_path):
    molecules = [text for text in alkyl_amines(20) if split_of(key_of(Chem.MolFromSmiles(text))) == "train"]
    source = tmp_path / "molecules.smi"
    source.write_text("\n".join(molecules) + "\n")
    other = str(shifted_teacher(tmp_path / "other"))
    command = [str(source), "--rows", "9", "--base", str(BASE), "--work", str(tmp_path / "work")]
    teachers = ["--teacher", TEACHER, "--teacher", other]
    assert main([*command, *teachers, "--out", str(tmp_path / "out")]) == 0
    rows = rows_of(tmp_path / "out")[len(rows_of(BASE)) :]
    smiles = [row["smiles"] for row in rows]
    assert len(smiles) == 9
    predicted = load_model(TEACHER).predict(smiles) + 0.25  # in eV
    np.testing.assert_allclose([float(row["homolumogap"]) for row in rows], predicted, atol=1e-4)
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    checksums = [load_model(name).checksum() for name in (TEACHER, other)]
    assert [teacher["sha256"] for teacher in card["teachers"]] == checksums


def test_a_molecule_of_two_files_is_chosen_once(tmp_path):
    molecules = [text for text in alkyl_amines(20) if split_of(key_of(Chem.MolFromSmiles(text))) == "train"]
    files = [tmp_path / "one.smi", tmp_path / "two.smi"]
    files[0].write_text(f"{molecules[0]}\n{molecules[1]}\n")
    files[1].write_text(f"{molecules[1]}\n{molecules[2]}\n")
    command = [*map(str, files), "--rows", "9", "--base", str(BASE), "--teacher", TEACHER]
    main([*command, "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")])
    counts = json.loads((tmp_path / "out" / "card.json").read_text())["counts"]
    assert counts == {"one.smi": {"chosen": 2}, "two.smi": {"chosen": 1, "duplicate": 1}}
    assert {row["smiles"] for row in rows_of(tmp_path / "out")[-3:]} == set(molecules[:3])


def test_training_rows_of_other_data_are_added_with_their_values(tmp_path):
    source = tmp_path / "molecules.smi"
    base, other = rows_of(BASE), rows_of(LARGE)
    train = read_split_file(LARGE / "split_dict.pt")["train"].tolist()
    new = [text for text in alkyl_amines(20) if split_of(key_of(Chem.MolFromSmiles(text))) == "train"][:3]
    known = {row["smiles"] for row in base}
    learned = {other[row]["smiles"]: other[row]["homolumogap"] for row in train}
    added = {text: value for text, value in learned.items() if text not in known}
    source.write_text("\n".join([*new, *list(added)[:4]]) + "\n")  # four molecules that have values
    command = [str(source), "--rows", "9", "--base", str(BASE), "--measured", str(LARGE)]
    command += ["--teacher", TEACHER, "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    assert main(command) == 0
    rows = rows_of(tmp_path / "out")
    assert {row["smiles"]: row["homolumogap"] for row in rows[len(base) : -3]} == added
    assert {row["smiles"] for row in rows[-3:]} == set(new)
    splits = read_split_file(tmp_path / "out" / "split_dict.pt")
    assert len(splits["train"]) == len(rows) - len(splits["valid"]) - len(splits["test"])
    held_out = {rows[row]["smiles"] for name in ("valid", "test") for row in splits[name].tolist()}
    assert not held_out & {rows[row]["smiles"] for row in splits["train"].tolist()}
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert (card["measured"], card["labeled"], card["rows"]) == (len(added), 3, len(rows))
