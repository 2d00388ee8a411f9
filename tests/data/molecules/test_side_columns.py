"""Columns that say what a number means, and numbers that may mean two things."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from molslice.data.molecules.csv import Csv
from molslice.data.molecules.side_columns import SideColumns, columns_beside
from molslice.data.molecules.tables import check_decimal_comma, check_decimal_mark, open_molecules
from molslice.types import MolsliceError

RELATIONS = ["'='"] * 6 + ["'>'"] * 3 + ["'<'"]
UNITS = ["nM"] * 8 + ["ug.mL-1"] * 2
ROWS = range(10)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))


def write(path, columns, delimiter=","):
    lines = [
        delimiter.join(columns),
        *(delimiter.join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def notices(path, *targets, size=3):
    with open_molecules([path]) as table:
        side = SideColumns(table, targets)
        for chunk in table.chunks(size, [table.smiles_column, *targets, *side.names]):
            side.add(chunk)
    return side.notices()


def read(path, **options):
    return Csv(path=path, target_columns="y", split={"fractions": {"train": 1}}, **options)


def measured(**columns):
    return {"smiles": ["C" * (row + 1) for row in ROWS], "y": [row + 1 for row in ROWS], **columns}


def test_relations_and_units_beside_a_target_are_named_with_their_counts(tmp_path):
    columns = {"q": RELATIONS, **measured(u=UNITS, assay=["IC50"] * 5 + ["Ki"] * 5)}
    convert = "learned as if they had one. Convert them, or keep the rows of one"
    expected = [
        "column 'q' has relations, which are not used (= in 6 rows, > in 3 rows, < in 1 row): "
        "all values of y are learned as exact. Empty the cells that are only limits, or name the column with "
        "molslice fit --relation",
        "column 'u' has units, which are not used (nM in 8 rows, ug.mL-1 in 2 rows): "
        f"all values of y are {convert}",
        "column 'assay' has types of measurement, which are not used (IC50 in 5 rows, Ki in 5 rows): "
        f"all values of y are {convert}",
    ]
    assert notices(write(tmp_path / "a.csv", columns), "y") == expected
    assert notices(write(tmp_path / "a.tsv", columns, "\t"), "y") == expected
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert notices(tmp_path / "a.parquet", "y") == expected
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert notices(tmp_path / "a.jsonl", "y") == expected


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["="] * 10, None),
        (["=", ""] * 5, None),
        ([">"] * 10, "> in 10 rows"),
        (["", "", ">", "", "", "", "", "", "", "None"], "empty in 9 rows, > in 1 row"),
        (["~"] * 10, "~ in 10 rows"),
        (["≥", "="] * 5, "≥ in 5 rows, = in 5 rows"),
        (["nM"] * 10, None),
        (["nM", "uM"] * 5, "nM in 5 rows, uM in 5 rows"),
        (["nM", "µM"] * 5, "nM in 5 rows, µM in 5 rows"),
        (["mg/kg", "mmol/kg"] * 5, "mg/kg in 5 rows, mmol/kg in 5 rows"),
        (["mL.min-1.kg-1", "uL/min/mg"] * 5, "mL.min-1.kg-1 in 5 rows, uL/min/mg in 5 rows"),
        (["%", "nM"] * 5, "% in 5 rows, nM in 5 rows"),
        (["°C", "K"] * 5, "°C in 5 rows, K in 5 rows"),
        (["10^-6 cm/s", "nm/s"] * 5, "10^-6 cm/s in 5 rows, nm/s in 5 rows"),
        (["s", "l"] * 5, None),  # solid and liquid
        (["M", "F"] * 5, None),  # male and female
        (["train", "test"] * 5, None),
        (["a", ">"] * 5, None),
        (["=", ">"] * 4 + ["", "!"], "= in 4 rows, > in 4 rows, empty in 1 row, ! in 1 row"),
        (["nM", "uM"] * 4 + ["not determined", ""], "nM in 4 rows, uM in 4 rows, not determined in 1 row"),
        (["NM", "UM"] * 5, "NM in 5 rows, UM in 5 rows"),
        (["mg/kg"] * 6 + ["n.d."] * 4, "mg/kg in 6 rows, n.d. in 4 rows"),
        (["min"] * 6 + ["max"] * 4, None),
        (["AM", "PM", "PM", "AM", "PM"] * 2, None),
        (["M", "M", "F", "M", "unknown"] * 2, None),
        (["s", "l", "s", "s", "aq"] * 2, None),
        (["L1", "L2"] * 5, None),  # laboratories
        (["IC50", "IC50", "Ki", "IC50", "other"] * 2, "IC50 in 6 rows, Ki in 2 rows, other in 2 rows"),
        ([""] * 10, None),
        (["1", "2"] * 5, None),
        (["CC", "CN"] * 5, None),
        (["yes", "no"] * 5, None),
    ],
)
def test_the_cells_decide_and_not_the_name(tmp_path, cells, said):
    found = notices(write(tmp_path / "a.csv", measured(note=cells)), "y")
    assert len(found) == (said is not None)
    if said is not None:
        assert f"({said}" in found[0]


def test_only_rows_with_a_value_count(tmp_path):
    columns = measured(q=RELATIONS)
    columns["y"][6:] = ["", "NA", "", "none"]
    assert notices(write(tmp_path / "a.csv", columns), "y") == []
    assert notices(write(tmp_path / "a.csv", measured(q=RELATIONS))) == []  # without a target


def test_training_names_them(tmp_path):
    dataset = read(write(tmp_path / "a.csv", measured(q=RELATIONS)))
    assert len(dataset.smiles()) == 10
    assert [text.partition(",")[0] for text in dataset.notices] == ["column 'q' has relations"]


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (["115", "2.123", "509", "409.374"], ("2.123", "2123")),
        (["-1.234.567", "5"], ("-1.234.567", "-1234567")),
        (["7.125", "8.250"], ("7.125", "7125")),
        (["115", "2.123", "5.5"], None),
        (["0.770", "3.300"], None),  # no group begins with a zero
        (["1", "2"], None),
        (["", "NA"], None),
        (["1234.567"], None),
        (["1,5", "2.123,4"], None),  # refused as numbers
    ],
)
def test_a_point_that_may_separate_thousands_is_asked_about(tmp_path, cells, shown):
    smiles = ["C" * (row + 1) for row in range(len(cells))]
    path = write(tmp_path / "a.csv", {"smiles": smiles, "y": cells}, ";")
    with open_molecules([path]) as table:
        if shown is None:
            check_decimal_mark(table, ["y"], None)
            return
        with pytest.raises(MolsliceError) as caught:
            check_decimal_mark(table, ["y"], None)
        check_decimal_mark(table, ["y"], ",")
        check_decimal_mark(table, ["y"], ".")
    assert f"column 'y': {shown[0]} may mean {shown[1]}, because" in str(caught.value)
    assert f"--decimal , (data.decimal) for {shown[1]}, --decimal . for {shown[0]}" in str(caught.value)
    with open_molecules([write(tmp_path / "b.csv", {"smiles": smiles, "y": cells})]) as table:
        check_decimal_mark(table, ["y"], None)  # a comma divides the cells


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (["123", "1.234", "-1.500"], ("1.234", "1,234", "1234")),
        (["0.770", "n.d."], ("0.770", "0,770", "770")),
        (["> 1.234", "NA"], ("1.234", "1,234", "1234")),
        (["1.234", "1.5"], ("1.234", "1,234", "1234")),
        (["1.234,5", "2.345"], None),
        (["1.234", "0,5"], None),
        (["1.234.567", "2.345"], None),
        (["1", "2345"], None),
        (["", "NA"], None),
    ],
)
def test_a_point_that_may_be_decimal_is_refused_if_only_the_training_has_commas(tmp_path, cells, shown):
    path = write(tmp_path / "a.csv", {"smiles": ["C", "CC", "CCC"][: len(cells)], "y": cells}, ";")
    with open_molecules([path]) as table:
        if shown is None:
            check_decimal_comma(table, ["y"], ("--d ,", "--d ."))
            return
        with pytest.raises(MolsliceError) as caught:
            check_decimal_comma(table, ["y"], ("--d ,", "--d ."))
    message = f"a.csv, column 'y': {shown[0]} may mean {shown[1]}, but would be read as {shown[2]}, because"
    assert message in str(caught.value)
    named = f"or name the decimal mark: --d , for {shown[2]}, --d . for {shown[0]}"
    assert str(caught.value).endswith(f"Write it as {shown[1]} or {shown[2]}, {named}")


def test_the_decimal_mark_decides_the_values(tmp_path):
    cells = ["115", "2.123", "509", "409.374"]
    path = write(tmp_path / "a.csv", {"smiles": ["C", "CC", "CCC", "CCN"], "y": cells}, ";")
    with pytest.raises(MolsliceError, match="2.123 may mean 2123"):
        read(path)
    grouped = read(path, decimal=",")
    assert grouped.targets[:, 0].tolist() == [115, 2123, 509, 409374]
    plain = read(path, decimal=".")
    assert plain.targets[:, 0].tolist() == pytest.approx([115, 2.123, 509, 409.374])
    with pytest.raises(MolsliceError, match="the decimal mark must be . or , but got ';'"):
        read(path, decimal=";")


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1,5", 1.5),
        ("-1.234,5", -1234.5),
        ("1.234.567", 1234567),
        ("2,", 2),
        ("1,5e3", 1500),
        ("7", 7),
        ("NA", None),
    ],
)
def test_decimal_commas(tmp_path, cell, value):
    path = write(tmp_path / "a.csv", {"smiles": ["C", "CC", "CCC"], "y": [cell, "1", "2"]}, ";")
    dataset = read(path, decimal=",")
    known = dataset.targets[0, 0]
    assert (known != known) if value is None else known == pytest.approx(value)


@pytest.mark.parametrize("cell", ["2.5", "1,234.5", "1.23", "1,2,3"])
def test_a_decimal_point_beside_decimal_commas_is_refused(tmp_path, cell):
    path = write(tmp_path / "a.csv", {"smiles": ["C", "CC"], "y": [cell, "1,5"]}, ";")
    with pytest.raises(MolsliceError, match=f"'{cell}' is not a number with a decimal comma"):
        read(path, decimal=",")
    with pytest.raises(
        MolsliceError, match="'1,5' is not a number .*--decimal , or data.decimal|write a decimal"
    ):
        read(path)


INCHI = "InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3"
AUX = "AuxInfo=1/0/N:1,2,3/rA:3nCCO/rB:s1;s2;/rC:;;;"
KEY = "LFQSCWFLJHTTHZ-UHFFFAOYSA-N"


@pytest.mark.parametrize(
    ("cell", "notation", "advice"),
    [(f'"{AUX}"', "AuxInfo", "take the column of the InChI"), (KEY, "InChIKey", "look up the SMILES")],
)
def test_other_notations_of_molecules_are_named(tmp_path, cell, notation, advice):
    path = write(tmp_path / "a.csv", {"id": [cell] * 4, "y": ["1", "2", "3", "4"]})
    with pytest.raises(MolsliceError, match=f"no column contains SMILES; 'id' contains {notation}.*{advice}"):
        read(path)
    with pytest.raises(MolsliceError, match=f"the column 'id' contains {notation}, not SMILES.*{advice}"):
        read(path, smiles_column="id")
    path = write(tmp_path / "b.csv", {"smiles": [cell, "", cell], "y": ["1", "2", "3"]})
    with pytest.raises(MolsliceError, match=f"the column 'smiles' contains {notation}, not SMILES"):
        read(path)
    path = write(tmp_path / "c.csv", {"smiles": [cell, "CCO"], "y": ["1", "2"]})
    assert list(read(path).errors) == [0]  # only this row
    path = write(tmp_path / "d.csv", {"inchi": [cell] * 2, "drug": ["CCO", "CC"], "y": ["1", "2"]})
    assert read(path).smiles_column == "drug"


def test_a_column_of_inchi_is_found_unless_there_are_smiles(tmp_path):
    cells = [f'"{INCHI}"', '"InChI=1S/CH4O/c1-2/h2H,1H3"']
    path = write(tmp_path / "a.csv", {"id": ["7", "8"], "inchi": cells, "y": ["1", "2"]})
    table = read(path)
    assert table.smiles_column == "inchi"
    assert not list(table.errors)
    path = write(tmp_path / "b.csv", {"inchi": cells, "drug": ["CCO", "CO"], "y": ["1", "2"]})
    assert read(path).smiles_column == "drug"


@pytest.mark.parametrize(
    ("suited", "named", "detected", "columns"),
    [
        *[([True], None, ["u"], ("u",)), ([True], None, ["u", "v"], (None,)), ([True], None, [], (None,))],
        *[([True] * 2, None, ["u"], (None, None)), ([True] * 2, (None, "w"), ["u"], (None, "w"))],
        ([False, True], None, ["u"], (None, "u")),
    ],
)
def test_a_column_is_named_or_the_only_one_beside_the_only_suited_target(suited, named, detected, columns):
    assert columns_beside(suited, named, detected) == columns
