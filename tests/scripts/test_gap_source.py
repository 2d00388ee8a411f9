"""Which molecules are labeled: selection, the order of the draw, what is excluded and counted."""

import csv
import gzip
import json
from collections import Counter
from pathlib import Path

import gap_source
import pytest
from gap_source import Candidate, draw, key_of, select, split_of
from rdkit import Chem

from molslice.types import MolsliceError

BASE = Path(__file__).resolve().parents[2] / "data" / "gap_xtb"
SMILES = ["CCO", "c1ccccc1O", "CC(=O)O", "CC#N", "CCCCCl", "C1CCCCC1", "CC[O-].[Na+]", "O=C1CCCN1", "CCS"]


def write(path: Path, lines: list[str]) -> Path:
    text = "".join(line + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(
    ("smiles", "reason"),
    [
        ("C(", "unparsable"),
        ("", "unparsable"),
        ("C", "heavy_atoms_outside_2_to_30"),
        ("C" * 31, "heavy_atoms_outside_2_to_30"),
        ("CC[O-].[Na+]", "several_fragments"),
        ("CC*", "wildcard_atom"),
        ("C[CH2]", "open_shell"),
        ("C[N+](=O)[O-]", None),
        ("CC(=O)[O-]", None),
    ],
)
def test_what_is_left_out(smiles, reason):
    (choice,) = select([Candidate("nci", "1", smiles)])
    assert choice.reason == reason
    assert (choice.row.source, choice.row.source_id) == ("nci", "1")


def test_same_molecule_twice_is_a_duplicate():
    first, second = select([Candidate("nci", "1", "OCC"), Candidate("wehi", "2", "C(C)O")])
    assert first == (Candidate("nci", "1", "CCO"), None)
    assert second == (Candidate("wehi", "2", "C(C)O"), "duplicate")  # as the source writes it


def key(smiles: str) -> str:
    return key_of(Chem.MolFromSmiles(smiles))


def test_forms_of_one_molecule_have_one_key_and_one_split():
    forms = ["C[C@H](N)C(=O)O", "C[C@@H]([NH3+])C(=O)[O-]", "[2H]C([2H])([2H])C(N)C(O)=O"]
    assert len({key(form) for form in forms}) == 1
    assert len({split_of(key(form)) for form in forms}) == 1


def test_draw_is_the_same_whatever_the_order_of_the_lines(tmp_path):
    drawn = [row.smiles for row in draw(write(tmp_path / "a.smi", SMILES))]
    again = [row.smiles for row in draw(write(tmp_path / "b.smi.gz", sorted(SMILES)))]
    assert drawn == again
    assert sorted(drawn) == sorted(SMILES)
    assert drawn not in (SMILES, sorted(SMILES))


def test_draw_of_a_part_is_that_of_the_whole(tmp_path):
    """What comes first does not depend on what else is in the file."""
    whole = [row.smiles for row in draw(write(tmp_path / "a.smi", SMILES))]
    part = [row.smiles for row in draw(write(tmp_path / "b.smi", SMILES[:5]))]
    assert part == [smiles for smiles in whole if smiles in SMILES[:5]]


def test_rows_are_named_by_file_and_line(tmp_path):
    rows = list(draw(write(tmp_path / "some.smi.gz", ["CCO ethanol", "", "CCN\tethylamine", "CCO"])))
    assert {(row.source_id, row.smiles) for row in rows} == {("1", "CCO"), ("3", "CCN"), ("4", "CCO")}
    assert {row.source for row in rows} == {"some"}
    assert [row.source_id for row in rows if row.smiles == "CCO"] == ["1", "4"]


def test_keys_of_a_table_are_those_of_every_fragment(tmp_path):
    table = write(tmp_path / "t.csv", ["id,SMILES", "1,CC(=O)[O-].C[NH3+]", "2,C(", '3,"OC=C"'])
    keys, rows, unparsable = gap_source.keys_of_table(table)
    assert (rows, unparsable) == (3, 1)
    assert keys == {key(smiles) for smiles in ("CC(O)=O", "CN", "CC=O")}


def test_table_without_smiles_is_refused(tmp_path):
    with pytest.raises(MolsliceError, match="smiles"):
        gap_source.keys_of_table(write(tmp_path / "t.csv", ["id,name", "1,ethanol"]))


def test_skeletons_held_out_are_those_of_the_valid_and_test_split():
    with gzip.open(BASE / "raw" / "data.csv.gz", "rt") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)][::40]
    held_out = gap_source.held_out_keys(BASE)
    parts = Counter()
    for text in smiles:
        part = split_of(key(text))
        parts[part] += 1
        assert (key(text) in held_out) == (part != "train")
    assert min(parts.values()) > 10
    assert len(parts) == 3


@pytest.fixture
def held_out_smiles() -> str:
    """A molecule of the test split."""
    with gzip.open(BASE / "raw" / "data.csv.gz", "rt") as file:
        return next(row["smiles"] for row in csv.DictReader(file) if split_of(key(row["smiles"])) == "test")


def test_selection_excludes_by_skeleton_and_counts(tmp_path, held_out_smiles):
    source = write(tmp_path / "s.smi", [*SMILES, "OC1=C(C)CCC1", held_out_smiles, "OCC"])
    first = write(tmp_path / "first.csv", ["smiles", "CC1CCCC1=O", "CC=N"])
    second = write(tmp_path / "second.csv.gz", ["smiles,y", "CCCC[Cl],1", "CC1CCCC1O,2", "CC(N)=O,3", "C(,4"])
    made_from, choices = gap_source.select_from_file(source, [first, second], BASE, tmp_path / "work")
    reasons = {choice.row.smiles: choice.reason for choice in choices if choice.reason != "duplicate"}
    assert len(choices) == len(SMILES) + 3
    assert reasons["OC1=C(C)CCC1"] == "in_first"  # the enol
    assert reasons["CC#N"] == "in_first"  # the skeleton of the imine
    assert reasons["CCCCCl"] == "in_second"
    assert reasons["CC(=O)O"] is None  # acetamide has another element
    assert reasons["CC[O-].[Na+]"] == "several_fragments"
    assert reasons[held_out_smiles] == gap_source.HELD_OUT
    assert Counter(choice.reason for choice in choices)["duplicate"] == 1  # of ethanol
    assert made_from["tables"] == [
        {"file": "first.csv", "rows": 2, "unparsable": 0, "skeletons": 2},
        {"file": "second.csv.gz", "rows": 4, "unparsable": 1, "skeletons": 3},
    ]


def test_molecule_of_two_tables_counts_for_the_first(tmp_path):
    source = write(tmp_path / "s.smi", ["CCO"])
    tables = [write(tmp_path / f"{name}.csv", ["smiles", "OCC"]) for name in ("one", "two")]
    for order in (tables, tables[::-1]):
        work = tmp_path / order[0].stem
        _, (choice,) = gap_source.select_from_file(source, order, BASE, work)
        assert choice.reason == f"in_{order[0].stem}"


def test_selection_is_kept_and_read_again(tmp_path, monkeypatch):
    source, work = write(tmp_path / "s.smi", SMILES), tmp_path / "work"
    made = gap_source.select_from_file(source, [], BASE, work)
    monkeypatch.setattr(gap_source, "select", None)
    assert gap_source.select_from_file(source, [], BASE, work) == made


def test_selection_of_other_files_is_refused(tmp_path):
    source, work = write(tmp_path / "s.smi", SMILES), tmp_path / "work"
    table = write(tmp_path / "t.csv", ["smiles", "CC"])
    gap_source.select_from_file(source, [], BASE, work)
    with pytest.raises(ValueError, match="selection.jsonl.gz was made from other files"):
        gap_source.select_from_file(source, [table], BASE, work)
    write(source, SMILES[:-1])
    with pytest.raises(ValueError, match="choose another --work"):
        gap_source.select_from_file(source, [], BASE, work)


def test_interrupted_selection_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        yield gap_source.Choice(Candidate("s", "1", "CC"), None)
        raise KeyboardInterrupt

    source, work = write(tmp_path / "s.smi", SMILES), tmp_path / "work"
    with monkeypatch.context() as patch:
        patch.setattr(gap_source, "select", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gap_source.select_from_file(source, [], BASE, work)
    _, choices = gap_source.select_from_file(source, [], BASE, work)
    assert len(choices) == len(SMILES)
    lines = gzip.decompress((work / "selection.jsonl.gz").read_bytes()).decode().splitlines()
    assert len(lines) == len(SMILES) + 1
    assert json.loads(lines[0])["identity"]["source"][0] == "s.smi"
