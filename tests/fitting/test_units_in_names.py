"""Units in brackets at the end of the name of a column."""

import csv
import json

import pytest

from molslice.cli import main
from molslice.data.molecules.side_columns import split_unit
from molslice.fitting.columns import names_without_units
from molslice.fitting.fit import fit
from molslice.folders.fitted import FIT, ROWS
from molslice.inference.load import load_model
from tests.inference.models import embedded_smiles

pytestmark = pytest.mark.usefixtures("few_trees")
OPTIONS = {"encoder": None, "quality": "fast", "members": 2, "split": "all", "workers": 0, "quiet": True}


@pytest.mark.parametrize(
    ("column", "name", "unit"),
    [
        ("logS [log mol/L]", "logS", "log mol/L"),
        ("logS[log10(mol/L)]", "logS", "log10(mol/L)"),
        ("logS (log10 mol/L)", "logS", "log10 mol/L"),
        ("ld50[-log10(mol/kg)]", "ld50", "-log10(mol/kg)"),
        (" IC50 (nM) ", "IC50", "nM"),
        ("CC50 (µM)", "CC50", "µM"),
        ("mp (°C)", "mp", "°C"),
        ("inhibition (%)", "inhibition", "%"),
        ("clint[uL/min/1e6cells]", "clint", "uL/min/1e6cells"),
        ("CL [mL min-1 kg-1]", "CL", "mL min-1 kg-1"),
    ],
)
def test_a_unit_in_brackets_is_found(column, name, unit):
    assert split_unit(column) == (name, unit)


@pytest.mark.parametrize(
    "column",
    [
        *(
            "(R)-logP",
            "NR-AR",
            "logS",
            "[nM]",
            "(nM)",
            "isomer (S)",
            "IC50 (n=3)",
            "hERG (IC50)",
            "logP (exp)",
        ),
        *("activity [pEC50/pKi]", "active[0/1]", "IC50 [nM] (mean)", "logD (pH 7.4)", "ratio[B-A/A-B]", ""),
    ],
)
def test_other_brackets_are_no_unit(column):
    assert split_unit(column) == (column, "")


def test_brackets_stay_where_names_would_be_unclear():
    columns = ["IC50 (nM)", "logS [log mol/L]", "size"]
    assert names_without_units(columns, None) == ("IC50", "logS", "size")
    assert names_without_units(columns, ["uM", "", "m"]) == ("IC50", "logS [log mol/L]", "size")
    assert names_without_units(columns, "") == tuple(columns)
    for clear in (["IC50 (nM)", "IC50 (uM)"], ["IC50 (nM)", "IC50"], ["fold (s)"]):  # of rows.csv
        assert names_without_units(clear, None) == tuple(clear)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    file = tmp_path_factory.mktemp("units") / "measured.csv"
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["smiles", "size [m]", "IC50 (nM)", "big (h)"])
        for text in embedded_smiles(60):
            writer.writerow([text, len(text), 10.0 + len(text), int(len(text) > 30)])
    return file


@pytest.fixture(scope="module")
def model(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("units") / "model"
    fit(table, ["size [m]", "IC50 (nM)", "big (h)"], folder, **OPTIONS)
    return folder


def test_the_unit_is_used_everywhere(model, table, tmp_path, capsys):
    about = json.loads((model / FIT).read_text())
    assert about["targets"]["names"] == ["size", "IC50", "big (h)"]  # a class has no unit
    assert about["targets"]["units"] == ["m", "nM", ""]
    assert about["columns"] == ["size [m]", "IC50 (nM)", "big (h)"]
    assert [text for text in about["findings"] if ": in " in text] == [
        "size: in m, by the name of column 'size [m]'",
        "IC50: in nM, by the name of column 'IC50 (nM)'",
    ]
    assert "| size | m |" in (model / "card.md").read_text()
    assert next(csv.reader((model / ROWS).open()))[3:6] == ["size", "IC50", "big (h)"]
    predictor = load_model(model)
    assert predictor.columns == ("size_m", "IC50_nM", "big (h)")
    command = [
        "predict",
        str(model),
        "--input",
        str(table),
        "--output",
        str(tmp_path / "out.csv"),
        "--metrics",
    ]
    assert main([*command, "--interval", "0.9"]) == 0
    shown = [line.split()[:4] for line in capsys.readouterr().out.splitlines()]
    assert ["size,", "MAE", "m", "60"] in shown
    assert ["IC50,", "MAE", "nM", "60"] in shown
    header = next(csv.reader((tmp_path / "out.csv").open()))
    assert header[4:] == [
        *("size_m", "IC50_nM", "big (h)_predicted", "size_lower", "IC50_lower", "size_upper", "IC50_upper"),
        *("big (h)_predicted_calibrated", "size_spread", "IC50_spread", "big (h)_predicted_spread"),
        *("big (h)_predicted_set", "error"),
    ]
    assert main(["evaluate", str(model), "--split", "all", "--data.path", str(table)]) == 0


def test_measured_columns_of_another_unit_are_not_compared(model, tmp_path, capsys):
    other = tmp_path / "other.csv"
    other.write_text("smiles,size [km],IC50 (nmol/L)\nCCO,1,2\n")
    command = [
        "predict",
        str(model),
        "--input",
        str(other),
        "--output",
        str(tmp_path / "out.csv"),
        "--metrics",
    ]
    assert main(command) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["IC50"]
    other.write_text("smiles,size [km]\nCCO,1\n")
    assert main(command) == 1
    assert "no column size or IC50 or big (h)" in capsys.readouterr().err


def test_the_column_of_the_fit_is_measured_beside_one_with_the_name_of_the_target(
    model, table, tmp_path, capsys
):
    with table.open(newline="") as stream:
        rows = [["size", *row] for row in csv.reader(stream)]
    both = tmp_path / "both.csv"
    with both.open("w", newline="") as stream:
        csv.writer(stream).writerows([rows[0], *(["9999", *row[1:]] for row in rows[1:])])
    errors = []
    for file in (table, both):
        out = tmp_path / f"{file.stem}_out.csv"
        assert main(["predict", str(model), "--input", str(file), "--output", str(out), "--metrics"]) == 0
        errors.append([line for line in capsys.readouterr().out.splitlines() if line.startswith("size")])
    assert errors[0] == errors[1] != []


def test_a_unit_that_is_given_is_said_and_none_can_be_given(table, tmp_path, capsys):
    command = [
        "fit",
        str(table),
        "--target",
        "size [m]",
        "--no-encoder",
        "--quality",
        "fast",
        "--split",
        "all",
    ]
    assert main([*command, "--unit", "km", "--out", str(tmp_path / "km")]) == 0
    assert "size: in km, as given, not m" in capsys.readouterr().err
    assert load_model(tmp_path / "km").columns == ("size_km",)
    assert main([*command, "--unit", "", "--out", str(tmp_path / "none")]) == 0
    assert load_model(tmp_path / "none").columns == ("size [m]",)


def test_negative_logarithms_take_the_unit_of_the_name(table, tmp_path):
    fit(table, "IC50 (nM)", tmp_path / "model", transform="p", **OPTIONS)
    predictor = load_model(tmp_path / "model")
    assert (predictor.target_names, predictor.target_units) == (("pIC50",), ("-log10 mol/L",))
    assert 6 < predictor.predict(["CCO"])[0] < 9  # nM, not mol/L


def test_a_target_is_found_without_the_unit_of_its_column(table, tmp_path, capsys):
    command = ["fit", "--target", "size", "--no-encoder", "--quality", "fast", "--split", "all"]
    assert main([*command, str(table), "--out", str(tmp_path / "model")]) == 0
    about = json.loads((tmp_path / "model" / FIT).read_text())
    assert (about["targets"]["names"], about["targets"]["units"]) == (["size"], ["m"])
    assert about["columns"] == ["size [m]"]
    other = tmp_path / "other.csv"
    other.write_text(table.read_text().replace("IC50 (nM)", "size (km)", 1))
    capsys.readouterr()
    assert main([*command, str(other), "--out", str(tmp_path / "unclear")]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error.endswith("has no column 'size'; choose one of 'size [m]' and 'size (km)'")
    other.write_text(table.read_text().replace("IC50 (nM)", "size", 1))
    assert main([*command, str(other), "--out", str(tmp_path / "exact")]) == 0
    assert "columns" not in json.loads((tmp_path / "exact" / FIT).read_text())
    capsys.readouterr()
    twice = ["--target", "size [m]", "--out", str(tmp_path / "twice")]
    assert main([*command, str(table), *twice]) == 1
    assert "the target 'size [m]' is given twice" in capsys.readouterr().err
    assert not (tmp_path / "twice").exists()
