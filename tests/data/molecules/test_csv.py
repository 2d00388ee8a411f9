"""Tests of CSV files: reading, splits, messages."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from molslice.data import DATASETS, build_dataset
from molslice.data.molecules.csv import Csv, checked_units
from molslice.data.molecules.tables import Structure
from molslice.training.run import _describe_targets
from molslice.types import MolsliceError
from tests.data.molecules.test_tables import sdf
from tests.real_data import shared

SMILES = ["CCO", "c1ccccc1C", "XXX", "CC", "C1CCCCC1", "CCN", "c1ccncc1", "O", "CCCl", "CC#N"]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))


def write(path, columns, rows=None, compress=False):
    """Write a CSV file from columns (name -> cells)."""
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if compress else text.encode())
    return path


@pytest.fixture
def table(tmp_path):
    columns = {
        "smiles": SMILES,
        "a": range(10),
        "b": ["", "nan", *range(8)],
        "name": ["x"] * 10,
        "solvent": ["O"] * 10,
    }
    return write(tmp_path / "table.csv", columns)


def test_two_targets_one_with_gaps(table):
    dataset = build_dataset("csv", {"path": str(table), "target_columns": ["a", "b"], "units": ["eV", ""]})
    assert len(dataset) == 10
    assert dataset.kind == "regression"
    assert (dataset.target_names, dataset.target_units) == (("a", "b"), ("eV", ""))
    np.testing.assert_array_equal(dataset.store.targets[:, 0], np.arange(10))
    np.testing.assert_array_equal(dataset.store.targets[:, 1], [np.nan, np.nan, *range(8)])
    assert dataset.store.errors == {2: "not valid SMILES: unknown symbol 'X' at position 1"}
    assert dataset.store.num_atoms.tolist() == [3, 7, 0, 2, 6, 3, 6, 1, 3, 3]
    assert dataset.smiles() == SMILES
    together = np.concatenate([*dataset.splits.values()])
    assert sorted(together.tolist()) == list(range(10))
    assert 2 not in np.concatenate([dataset.labeled_rows(name) for name in dataset.splits])


def test_the_second_time_the_store_is_found(table, tmp_path):
    first = Csv(path=table, target_columns="a")
    (store,) = (tmp_path / "cache").iterdir()
    assert first.store.path == store
    before = store.stat().st_mtime_ns
    assert Csv(path=table, target_columns="a").store.path == store
    assert store.stat().st_mtime_ns == before
    others = [
        Csv(path=table, target_columns="b"),
        Csv(path=table, target_columns="a", smiles_column="solvent"),
        Csv(path=table, target_columns="a", atom_order="input"),
        Csv(path=table, target_columns="a", max_atoms=6),
        Csv(path=table, target_columns="a", units="eV"),
    ]
    assert len({store, *(other.store.path for other in others)}) == 6
    write(table, {"smiles": SMILES, "a": range(1, 11)})
    assert Csv(path=table, target_columns="a").store.targets[0, 0] == 1


def test_options_of_the_featurizer(table):
    small = Csv(path=table, target_columns="a", max_atoms=6)
    assert small.store.errors[1] == "7 atoms, more than max_atoms=6"
    as_written = Csv(path=table, target_columns="a", atom_order="input").store.arrays(1)
    canonical = Csv(path=table, target_columns="a").store.arrays(1)
    assert as_written.atoms[-1, 7] == 0  # the methyl is written last, and canonically first
    assert canonical.atoms[0, 7] == 0


def test_compressed_with_quotes_and_blanks(tmp_path):
    path = tmp_path / "t.csv.gz"
    with gzip.open(path, "wt", encoding="utf-8-sig") as file:
        file.write('"my smiles","log S, mol/L"\n"CCO"," 1.5"\n"C[N+](C)C ",-2e-3\n')
        file.writelines(f"CC{'C' * i},{i}\n" for i in range(18))
    dataset = Csv(path=path, smiles_column="my smiles", target_columns=["log S, mol/L"], units="log M")
    assert dataset.store.targets[:2, 0].tolist() == pytest.approx([1.5, -2e-3])
    assert not dataset.store.errors
    assert dataset.target_units == ("log M",)


def test_classification(tmp_path):
    columns = {"smiles": ["C" * (i + 1) for i in range(20)], "y": ["0", "1", "True", "false", ""] * 4}
    dataset = Csv(path=write(tmp_path / "t.csv", columns), target_columns="y", kind="classification")
    np.testing.assert_array_equal(dataset.store.targets[:5, 0], [0, 1, 1, 0, np.nan])
    assert dataset.kind == "classification"
    columns["y"][7] = "2"
    with pytest.raises(MolsliceError, match=r"t.csv, row 8 \(line 9\), column 'y': '2' is neither 0 nor 1"):
        Csv(path=write(tmp_path / "t.csv", columns), target_columns="y", kind="classification")


def test_split_by_column(tmp_path):
    words = ["train"] * 6 + ["valid"] * 2 + ["test"] * 2
    path = write(tmp_path / "t.csv", {"smiles": SMILES, "a": range(10), "set": words})
    dataset = Csv(path=path, target_columns="a", split={"kind": "column", "column": "set"})
    assert {name: rows.tolist() for name, rows in dataset.splits.items()} == {
        "train": [0, 1, 2, 3, 4, 5],
        "valid": [6, 7],
        "test": [8, 9],
    }


def test_split_by_scaffold(tmp_path):
    smiles = ["C" * i + "c1ccccc1" for i in range(1, 17)] + ["C1CC1C", "C1CC1CC", "C1CCC1", "CC1CCC1"]
    path = write(tmp_path / "t.csv", {"smiles": smiles, "a": range(20)})
    splits = Csv(path=path, target_columns="a", split="scaffold").splits
    assert splits["train"].tolist() == list(range(16))
    assert splits["valid"].tolist() == [18, 19]  # of scaffolds of one size, the last comes first
    assert splits["test"].tolist() == [16, 17]


def test_numbers_in_a_column_of_splits_are_named(tmp_path):
    path = write(tmp_path / "t.csv", {"smiles": SMILES, "a": range(10), "part": [0] * 6 + [1, 1, 2, 2]})
    data = Csv(path=path, target_columns="a", split={"kind": "column", "column": "part"})
    assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 6, "valid": 2, "test": 2}
    assert "column 'part': 0 is train, 1 is valid, 2 is test" in data.notices


def test_rows_without_a_molecule_do_not_count_in_a_split_by_scaffold(tmp_path):
    rings = [f"C1{'C' * (size - 2)}C1" for size in range(3, 23)]
    smiles = [*rings, *["bad"] * 20]
    path = write(tmp_path / "t.csv", {"smiles": smiles, "a": range(40)})
    for options in ({}, {"max_atoms": 12}):
        data = Csv(path=path, target_columns="a", split="scaffold", cache_dir=tmp_path, **options)
        kept = [int((data.store.num_atoms[rows] > 0).sum()) for rows in data.splits.values()]
        assert kept[1:] == [sum(kept) // 10] * 2
        assert sum(map(len, data.splits.values())) == 40


def test_a_file_in_two_splits_is_named(tmp_path, caplog):
    path = write(tmp_path / "t.csv", {"smiles": SMILES, "a": range(10)})
    (tmp_path / "link.csv").symlink_to(path)
    other = write(tmp_path / "other.csv", {"smiles": SMILES, "a": range(10)})
    Csv(path=path, target_columns="a", valid_path=other)
    assert not caplog.text
    Csv(path=path, target_columns="a", valid_path=other, test_path=tmp_path / "link.csv")
    assert f"{tmp_path / 'link.csv'} is in the splits train and test" in caplog.text


def test_held_out_molecules_that_are_also_training_molecules_are_counted(tmp_path):
    rows = [("CCO", 1, "train"), ("CCN", 2, "train"), ("CCF", "", "train"), ("C(", 3, "train")]
    valid = [("OCC", 1, "valid"), ("C(", 3, "valid"), ("CCCl", 1, "valid")]
    test = [("NCC", 1, "test"), ("C(O)C", 5, "test"), ("CCF", 2, "test"), ("CCN", "", "test")]
    columns = dict(zip(("smiles", "a", "part"), zip(*rows, *valid, *test, strict=True), strict=True))
    path = write(tmp_path / "t.csv", columns)
    data = Csv(path=path, target_columns="a", split={"kind": "column", "column": "part"})
    assert data.repeats == "1 of 2 valid molecules and 2 of 3 test molecules are also training molecules"
    other = write(tmp_path / "other.csv", {"smiles": ["CCS", "CCBr"], "a": [1, 2]})
    assert Csv(path=path, target_columns="a", valid_path=other).repeats == ""


def test_large_data_are_not_searched_for_repeated_molecules(tmp_path, monkeypatch):
    path = write(tmp_path / "t.csv", {"smiles": ["CCO"] * 20, "a": range(20)})
    data = Csv(path=path, target_columns="a")
    assert data.repeats.startswith("2 of 2 valid molecules")
    monkeypatch.setattr("molslice.data.molecules.base.COMPARED_ROWS", 19)
    assert data.repeats == ""


def test_units_are_one_for_all_or_one_for_each():
    assert checked_units(["eV", None], ("a", "b")) == ("eV", "")
    assert checked_units("eV", ("a", "b")) == ("eV", "eV")
    assert checked_units(np.array(["eV", "D"]), ("a", "b")) == ("eV", "D")


def test_structures_are_not_converted_for_other_columns(tmp_path, monkeypatch):
    path = tmp_path / "a.sdf"
    path.write_bytes(sdf() * 4)
    dataset = Csv(path=path, target_columns="value")
    texts, values = dataset.smiles(), dataset.side_cells(["value"])
    converted = []
    monkeypatch.setattr(Structure, "to_smiles", lambda structure: converted.append(1) or "C")
    assert dataset.side_cells(["value"]) == values
    assert not converted
    assert dataset.smiles() == ["C"] * len(texts) != texts


def test_separate_files(tmp_path):
    train = write(tmp_path / "train.csv", {"smiles": SMILES, "a": range(10)})
    valid = write(tmp_path / "valid.csv", {"a": [20, 21], "smiles": ["CCCC", "CCCCC"], "more": [0, 0]})
    test = write(tmp_path / "test.csv.gz", {"smiles": ["N"], "a": [""]}, compress=True)
    dataset = Csv(path=train, valid_path=valid, test_path=test, target_columns="a")
    assert {name: rows.tolist() for name, rows in dataset.splits.items()} == {
        "train": list(range(10)),
        "valid": [10, 11],
        "test": [12],
    }
    assert dataset.store.targets[10:12, 0].tolist() == [20, 21]
    assert dataset.smiles() == [*SMILES, "CCCC", "CCCCC", "N"]
    write(tmp_path / "valid.csv", {"a": [20, 21], "smiles": ["CCCC", "CCCCO"], "more": [0, 0]})
    with pytest.raises(MolsliceError, match=r"train\.csv has changed since its rows were read"):
        dataset.smiles()
    with pytest.raises(MolsliceError, match=r"'test' of .*train.csv has no molecule with a known target"):
        dataset.labeled_rows("test")
    with pytest.raises(MolsliceError, match="no split 'dev'; choices: train, valid, test"):
        dataset.rows("dev")

    assert list(Csv(path=train, valid_path=valid, target_columns="a").splits) == ["train", "valid"]
    divided = Csv(path=train, test_path=valid, target_columns="a").splits
    assert [len(divided[name]) for name in ("train", "valid", "test")] == [9, 1, 2]
    assert divided["test"].tolist() == [10, 11]


def test_an_error_in_a_later_file_names_it_and_its_own_row(tmp_path):
    train = write(tmp_path / "train.csv", {"smiles": SMILES, "a": range(10)})
    valid = write(tmp_path / "valid.csv", {"smiles": ["C", "C"], "a": [1, "x"]})
    with pytest.raises(MolsliceError, match=r"valid.csv, row 2 \(line 3\), .*'x' is not a number"):
        Csv(path=train, valid_path=valid, target_columns="a")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("inf", r"row 5 \(line 6\), column 'a': 'inf' is infinite"),
        ("-Infinity", "'-Infinity' is infinite"),
        ("1e39", "'1e39' is too large"),
        ("1e999", "'1e999' is infinite"),
        ("n.d.", "row 5 .*column 'a': 'n.d.' is not a number .leave unknown values empty"),
        ("active", "'active' is not a number .leave unknown values empty, and write classes as 0 and 1"),
        ('"-1,5"', "'-1,5' is not a number .write a decimal point"),
        ('"1,234.5"', "'1,234.5' is not a number .write a decimal point, and no separator of thousands"),
        ("1;5", "'1;5' is not a number$"),
        ("\u22121.5", "is not a number .its minus sign is another character: write a hyphen"),
        ("\u2013", "is not a number .leave unknown values empty"),
        ("-1.5 kcal/mol", "'-1.5 kcal/mol' is not a number .write the number alone"),
        ("1.5 \u00b1 0.1", "is not a number .write the number alone"),
        ("#DIV/0!", "'#DIV/0!' is not a number .leave unknown values empty.$"),
        ("2024-01-11", "is not a number .it is a date: give a column of numbers"),
        ("11.01.2024", "is not a number .it is a date"),
        ("1/11/24", "is not a number .it is a date"),
        ("1.5-2.5", "is not a number .a range is no value: leave the cell empty"),
        ("1 234.5", "is not a number .write no separator of thousands"),
        ("1'234", "is not a number .write no separator of thousands"),
        ("1\u202f234", "is not a number .write no separator of thousands"),
        ("1.234.567", "is not a number .if a point separates thousands, give --decimal , or data.decimal"),
        ('"1.234,5"', "is not a number .write a decimal point.*name the decimal mark: --decimal ,"),
        ("5%", "'5%' is not a number .write the number alone"),
        ("5.2 nM", "'5.2 nM' is not a number .write the number alone"),
        ("~5", "'~5' is not a number .write the number alone"),
        (">=3", "'>=3' is not a number .a limit is no value"),
        ("> 3", "'> 3' is not a number .a limit is no value: leave the cell empty"),
        ("0x1F", "'0x1F' is not a number"),
    ],
)
def test_wrong_values_are_named(tmp_path, value, message):
    columns = {"smiles": SMILES, "a": [0, 1, 2, 3, value, 5, 6, 7, 8, 9]}
    with pytest.raises(MolsliceError, match=rf"t.csv, .*{message}"):
        Csv(path=write(tmp_path / "t.csv", columns), target_columns="a")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x + 1e9, r"column 'gap' of .* has a spread of 0\.\d+, .* rounds it by up to \d+"),
        (lambda x: x * 1e-50, "has a spread of .*e-50"),
        (lambda x: x * 1e-45, "has a spread of .*e-46"),
    ],
)
def test_targets_that_float32_would_round_away_are_refused(tmp_path, change, words):
    gaps = [change(x) for x in (1.1, 2.3, 1.7, 2.9, 1.5, 2.1, 1.9, 2.2, 1.4, 2.6)]
    path = write(tmp_path / "t.csv", {"smiles": ["C"] * 10, "gap": gaps})
    with pytest.raises(MolsliceError, match=words):
        Csv(path=path, target_columns="gap")


@pytest.mark.parametrize("gaps", [[3.7] * 10, [1e30] * 10, [0.1 * i - 5000 for i in range(10)], [0.0] * 10])
def test_targets_that_are_constant_or_far_from_zero_are_taken(tmp_path, gaps):
    data = Csv(path=write(tmp_path / "t.csv", {"smiles": ["C"] * 10, "gap": gaps}), target_columns="gap")
    assert data.targets[:, 0].tolist() == np.array(gaps, np.float32).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_columns": "A"}, r"no column 'A'; .*choices: a, b, name, smiles, solvent"),
        ({"target_columns": ["a", "bb"]}, "no column 'bb'; did you mean 'b'"),
        ({"smiles_column": "SMILES"}, "no column 'SMILES'"),
        ({"smiles_column": "a"}, "the column 'a' cannot be both the SMILES and a target"),
        ({"target_columns": ["a", "a"]}, "must differ"),
        ({"target_columns": []}, "at least one"),
        ({"target_columns": [1]}, "at least one"),
        ({"target_columns": "name"}, "column 'name': 'x' is not a number"),
        ({"units": ["eV", "D"]}, r"one for each target \(1\)"),
        ({"kind": "ranking"}, "regression or classification, got 'ranking'"),
        ({"split": "ransom"}, "did you mean 'random'"),
        ({"split": {"kind": "column", "column": "set"}}, "no column 'set'"),
        ({"split": {"kind": "column", "column": "name"}}, "row 1 .*'x' is not one of train, valid, test"),
        ({"atom_order": "none"}, "canonical, input"),
        ({"max_atoms": 300}, "between 1 and 256"),
        ({"workers": -1}, "workers"),
        ({"valid_path": "missing.csv"}, "no such file: missing.csv"),
        ({"path": "missing.csv"}, "no such file: missing.csv"),
    ],
)
def test_options_are_checked(table, options, message):
    with pytest.raises(MolsliceError, match=message):
        Csv(**({"path": table, "target_columns": "a"} | options))


def test_the_registry_checks_names_of_options(table):
    assert {"csv", "pcqm4m"} <= set(DATASETS.names())
    with pytest.raises(MolsliceError, match="no option 'target_column'; did you mean 'target_columns'"):
        build_dataset("csv", {"path": table, "target_columns": "a", "target_column": "a"})
    with pytest.raises(MolsliceError, match="'csv' needs the option 'target_columns'"):
        build_dataset("csv", {"path": table})
    with pytest.raises(MolsliceError, match="unknown data set 'cvs'; did you mean 'csv'"):
        build_dataset("cvs", {})


@pytest.mark.parametrize(
    "as_given", [lambda table: str(table.with_name("*.csv")), lambda table: [str(table)]]
)
def test_a_configuration_takes_patterns_and_lists(table, as_given):
    one = build_dataset("csv", {"path": str(table), "target_columns": "a"})
    assert len(build_dataset("csv", {"path": as_given(table), "target_columns": "a"})) == len(one)
    with pytest.raises(MolsliceError, match="no file matches .*missing"):
        build_dataset("csv", {"path": str(table.with_name("missing*")), "target_columns": "a"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"smiles,a\n", "no rows"),
        (
            b"smiles,a\nXXX,1\nC1,2\n",
            "cannot read any of the 2 SMILES of .*row 1 .line 2.: not valid SMILES",
        ),
        (b"smiles,a\nC,\nCC,NA\n", "column 'a' of .* has no value in any row"),
        (b"smiles,a,a\nC,1,2\n", "has 2 columns named 'a'"),
        (b'smiles,a\nC,1\n"C,2\n', "line 3: a quote is never closed"),
        (b"smiles,a\nC,\xff\xfe\n", "line 2: byte 0xff is not UTF-8"),
        (b"formula;a\nCH4;1\n", "no column contains SMILES"),
        (b"\x1f\x8b\x08\x00", "cannot read .*: damaged gzip"),
    ],
)
def test_files_that_are_not_what_they_should_be(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(MolsliceError, match=message) as caught:
        Csv(path=path, target_columns="a")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 10, -10])
def test_a_damaged_gzip(tmp_path, keep):
    path = write(tmp_path / "t.csv.gz", {"smiles": SMILES * 50, "a": range(500)}, compress=True)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(MolsliceError, match=r"t.csv.gz"):
        Csv(path=path, target_columns="a")


def test_a_directory_instead_of_a_file_is_refused(tmp_path):
    with pytest.raises(MolsliceError, match="cannot read .*: Is a directory"):
        Csv(path=tmp_path, target_columns="a")


@pytest.mark.parametrize(
    "split",
    ["random", {"kind": "scaffold", "fractions": {"train": 1.0}}, {"kind": "column", "column": "set"}],
)
def test_rows_that_cannot_be_read_keep_their_place_and_have_no_target(tmp_path, split):
    """As in prediction, a ragged row gets a reason; a long cell is valid."""
    path, long = tmp_path / "t.csv", "x" * 140_000
    kept = "C,4,train,\n" * 15 + "CC,5,valid,\n" + "CCC,6,test,\n"
    path.write_text(f"smiles,a,set,note\nC,1,train,{long}\nC,2\nC,3,train,n,\n,7,train,\n{kept}")
    dataset = Csv(path=path, target_columns="a", split=split)
    assert dataset.errors == {
        1: "2 cells, the header has 4",
        2: "5 cells, the header has 4",
        3: "empty SMILES",
    }
    assert len(dataset) == 21
    assert dataset.num_tokens[:6].tolist() == [2, 0, 0, 0, 2, 2]
    np.testing.assert_array_equal(dataset.targets[:5, 0], [1, np.nan, np.nan, 7, 4])
    assert f"The first, {path}, row 2 (line 3): 2 cells" in dataset.failures
    assert dataset.smiles()[:4] == ["C", "", "", ""]


def test_a_read_only_cache_means_memory(table, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", "/proc/nowhere")
    dataset = Csv(path=table, target_columns="a")
    assert dataset.store.path is None
    assert dataset.store.num_atoms[0] == 3


@pytest.mark.parametrize(
    ("name", "targets", "kind", "rows", "bad"),
    [
        ("esol", "measured log solubility in mols per litre", "regression", 1128, 0),
        ("bbbp", "p_np", "classification", 2050, 11),
        pytest.param(
            "tox21", ["NR-AR", "SR-p53", "SR-ATAD5"], "classification", 7831, 8, marks=pytest.mark.exhaustive
        ),
    ],
)
@pytest.mark.parametrize("split", ["random", pytest.param("scaffold", marks=pytest.mark.exhaustive)])
def test_moleculenet(name, targets, kind, rows, bad, split):
    path = shared("moleculenet", f"{name}.csv.gz")
    dataset = Csv(path=path, target_columns=targets, kind=kind, split=split)
    assert len(dataset) == rows
    assert len(dataset.store.errors) == bad
    together = np.concatenate([*dataset.splits.values()])
    assert sorted(together.tolist()) == list(range(rows))
    shares = [len(dataset.splits[part]) / rows for part in ("train", "valid", "test")]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.005)
    if name == "tox21":
        assert np.isfinite(dataset.store.targets).sum(axis=0).tolist() == [7265, 6774, 7072]


def test_a_deliberately_broken_csv():
    path = shared("smiles_odd", "graphium_micro_zinc_corrupt.csv.gz")
    dataset = Csv(path=path, smiles_column="SMILES1", target_columns=["SA", "logp"])
    assert len(dataset) == 200
    assert 0 < len(dataset.store.errors) < 50
    assert Path(dataset.source) == path


def test_valid_rows_are_drawn_from_the_training_rows_of_a_column_that_names_none(tmp_path):
    words = ["train_val"] * 40 + ["holdout"] * 10
    columns = {"smiles": ["C" * (row + 1) for row in range(50)], "a": range(50), "set": words}
    path = write(tmp_path / "t.csv", columns)
    split = {"kind": "column", "column": "set"}
    dataset = Csv(path=path, target_columns="a", split=split)
    assert {name: len(rows) for name, rows in dataset.splits.items()} == {"train": 36, "valid": 4, "test": 10}
    assert dataset.splits["test"].tolist() == list(range(40, 50))
    assert sorted(np.concatenate([dataset.splits["train"], dataset.splits["valid"]])) == list(range(40))
    sentence = "no row is valid in the column 'set'; 4 of the 40 training rows are drawn as valid rows"
    assert sentence in dataset.notices
    again = Csv(path=path, target_columns="a", split=split)
    assert again.splits["valid"].tolist() == dataset.splits["valid"].tolist()
    for fraction, valid in ((0.25, 10), (0, 0)):
        other = Csv(path=path, target_columns="a", split={**split, "valid_fraction": fraction})
        assert len(other.splits.get("valid", [])) == valid
    columns["set"][3] = "val"
    named = Csv(path=write(tmp_path / "t.csv", columns), target_columns="a", split=split)
    assert named.splits["valid"].tolist() == [3]
    assert not [text for text in named.notices if "drawn" in text]


def test_the_kind_is_found_as_in_a_fit(tmp_path):
    columns = {"smiles": ["C" * (row + 1) for row in range(30)]}
    columns |= {
        "act": [row % 2 for row in range(30)],
        "a": range(30),
        "three": [row % 3 for row in range(30)],
    }
    path = write(tmp_path / "t.csv", columns)
    dataset = Csv(path=path, target_columns="act")
    assert (dataset.kind, dataset.notices) == ("classification", [])
    assert np.unique(dataset.targets).tolist() == [0, 1]
    given = Csv(path=path, target_columns="act", kind="regression")
    assert (given.kind, given.notices) == ("regression", [])
    mixed = Csv(path=path, target_columns=["act", "a", "three"])
    assert mixed.kind == "regression"
    assert [text.split(",")[0] for text in mixed.notices] == ["act: has only 0 and 1", "three: has only 0"]


def test_values_far_outside_are_refused_until_the_user_decides(tmp_path):
    values = [*range(30), -999, "n.d.", -999.0]
    columns = {"smiles": ["C" * (row + 1) for row in range(33)], "a": values}
    path = write(tmp_path / "t.csv", columns)
    with pytest.raises(MolsliceError, match="row 32 .line 33.*'n.d.' is not a number .*data.missing_values"):
        Csv(path=path, target_columns="a")
    said = r"-999 in 2 rows \(row 31 \(line 32\), row 33 \(line 34\)\): far outside the other values, 0 to 29"
    with pytest.raises(MolsliceError, match=said):
        Csv(path=path, target_columns="a", missing_values="n.d.")
    kept = Csv(path=path, target_columns="a", missing_values="n.d.", outliers="keep")
    assert np.nanmin(kept.targets) == -999
    assert len(kept.notices) == 1
    dataset = Csv(path=path, target_columns="a", missing_values=["n.d.", -999])
    assert dataset.notices == []
    np.testing.assert_array_equal(dataset.targets[:, 0], [*range(30), np.nan, np.nan, np.nan])
    again = Csv(path=path, target_columns="a", missing_values="n.d.", outliers="keep")
    np.testing.assert_array_equal(again.targets, kept.targets)  # another store in the cache
    with pytest.raises(MolsliceError, match="missing values must be a list of numbers and texts, got 3j"):
        Csv(path=path, target_columns="a", missing_values=3j)


def test_named_classes_are_numbered_in_their_order(tmp_path):
    cells = ["high", "low", "", "LOW", "medium", *["low"] * 5]
    file = write(tmp_path / "a.csv", {"smiles": SMILES, "y": cells, "z": ["b", "a"] * 5})
    classes = [["low", "medium", "high"]]
    dataset = Csv(path=file, target_columns="y", kind="multiclass", classes=classes)
    assert (dataset.kind, dataset.class_names) == ("multiclass", ("low", "medium", "high"))
    np.testing.assert_array_equal(dataset.store.targets[:5, 0], [2, 0, np.nan, 0, 1])
    other = Csv(path=file, target_columns="y", kind="multiclass", classes=[["high", "medium", "low"]])
    assert other.store.targets[0, 0] == 0  # not the prepared store of the other order
    pair = Csv(path=file, target_columns="z", classes=[["a", "b"]])
    assert pair.kind == "classification"
    np.testing.assert_array_equal(pair.store.targets[:2, 0], [1, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "multiclass"}, "kind multiclass needs one target, and three or more names"),
        ({"kind": "multiclass", "classes": [["a", "b"]]}, "three or more names of classes"),
        ({"classes": [["a", "b", "c"]]}, "classes must be two different names for each of 1 targets"),
        ({"classes": [["a", "A"]]}, "classes must be two different names"),
        ({"classes": []}, "classes must be two different names"),
        ({"classes": [["a", "b"]]}, r"row 1 \(line 2\), column 'y': 'c' is not a class; choices: a, b"),
    ],
)
def test_wrong_names_of_classes_are_refused(options, message, tmp_path):
    file = write(tmp_path / "a.csv", {"smiles": SMILES, "y": ["c"] * 10})
    with pytest.raises(MolsliceError, match=message):
        Csv(path=file, target_columns="y", **options)


def test_networks_of_molecules_do_not_learn_several_classes(tmp_path):
    file = write(tmp_path / "a.csv", {"smiles": SMILES, "y": [*"abcabcabca"]})
    dataset = Csv(path=file, target_columns="y", kind="multiclass", classes=[["a", "b", "c"]])
    with pytest.raises(
        MolsliceError, match="has 3 classes; networks of molecules learn numbers and two classes"
    ):
        _describe_targets(dataset, np.arange(5))
