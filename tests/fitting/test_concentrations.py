"""Columns of units, their conversion, and negative logarithms."""

import json

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem.Descriptors import MolWt

from molslice.cli import main
from molslice.fitting.columns import columns_of_targets
from molslice.fitting.concentrations import P_UNIT
from molslice.fitting.data import FitOptions
from molslice.fitting.fit import fit
from molslice.fitting.table import read_fit_data
from molslice.inference.load import load_model
from molslice.inference.tables.table import predict_table
from molslice.types import MolsliceError
from tests.fitting.test_fit import write_table
from tests.inference.models import embedded_smiles

ROWS = 60

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(ROWS)


@pytest.fixture(scope="module")
def molar(smiles):
    return 10.0 ** -np.linspace(4.0, 9.0, len(smiles))


def read(table, **options):
    return read_fit_data(table, ["ic50"], FitOptions(split="all", **options), workers=0)


def write(folder, smiles, values, units, **columns):
    names = ["smiles", "ic50", "unit", *columns]
    return write_table(folder / "a.csv", names, zip(smiles, values, units, *columns.values(), strict=True))


def in_order(data, smiles, values):
    places = {text: row for row, text in enumerate(data.smiles)}
    return np.array([values[places[text]] for text in smiles])


def test_several_concentrations_are_converted_to_the_most_frequent_one(smiles, molar, tmp_path):
    units = (["nM"] * 3 + ["'uM'", "ug.mL-1"]) * (ROWS // 5)
    weights = np.array([MolWt(Chem.MolFromSmiles(text)) for text in smiles])
    scales = {"nM": np.full(ROWS, 1e9), "'uM'": np.full(ROWS, 1e6), "ug.mL-1": 1e3 * weights}
    values = [molar[row] * scales[unit][row] for row, unit in enumerate(units)]
    errors = np.array(values) / 10
    file = write(tmp_path, smiles, values, units, se=errors)
    data = read(file, errors=("se",))
    np.testing.assert_allclose(in_order(data, smiles, data.targets[:, 0]), molar * 1e9, rtol=1e-9)
    np.testing.assert_allclose(data.noise, data.targets / 10, rtol=1e-9)
    assert data.units == ("nM",)
    found = (
        "ic50: converted to nM by column 'unit' (detected): nM in 36 rows, uM in 12 rows, ug.mL-1 in 12 rows"
    )
    assert found in data.findings
    assert not any("column 'unit'" in text for text in data.notices)
    assert data.logarithmic == (True,)
    data = read(file, units=("mg/L",), unit_columns=("unit",))
    np.testing.assert_allclose(in_order(data, smiles, data.targets[:, 0]), molar * weights * 1e3, rtol=1e-9)
    exact = np.array([units[smiles.index(text)] == "nM" for text in data.smiles])
    same = read(file, units=("nM",)).targets[exact, 0]
    written = np.array([values[smiles.index(text)] for text in data.smiles])[exact]
    np.testing.assert_array_equal(same, written)  # bit for bit


LABELED = {  # labeled compounds with a mass concentration of 1 mmol/L, in mg/L
    "[2H]C([2H])([2H])S(=O)C([2H])([2H])[2H]": 84.17261,
    "[13CH3]CO": 47.06135,
    "CCN": 45.085,
}


def test_a_mass_is_converted_with_the_weight_of_the_isotopes(smiles, tmp_path):
    names = [*LABELED, *smiles[3:]]
    values, units = [*LABELED.values(), *[5e5] * (ROWS - 3)], ["mg/L", "ug/mL", "mg/L", *["nM"] * (ROWS - 3)]
    data = read(write(tmp_path, names, values, units))
    converted = in_order(data, names, data.targets[:, 0])
    np.testing.assert_allclose(converted, [1e6] * 3 + [5e5] * (ROWS - 3), rtol=1e-6)


def test_p_values_have_the_weight_of_the_isotopes_of_the_largest_molecule(smiles, tmp_path):
    names, values = [f"{name}.[2H]O" for name in LABELED], [*LABELED.values()]
    file = write(tmp_path, [*names, *smiles[3:]], [*values, *[5.0] * (ROWS - 3)], ["mg/L"] * ROWS)
    data = read(file, transform="p", fragment="largest")
    assert [data.targets[data.smiles.index(name), 0] for name in names] == pytest.approx([3.0] * 3, abs=1e-6)


def test_limits_are_converted_too(smiles, molar, tmp_path):
    values = [repr(float(value * 1e9)) for value in molar]
    values[0], units = ">5", ["uM"] + ["nM"] * (ROWS - 1)
    data = read(write(tmp_path, smiles, values, units))
    row = data.smiles.index(smiles[0])
    assert data.bounds[:, row, 0].tolist() == pytest.approx([5000.0, np.inf])


def test_one_unit_is_the_unit_of_the_target_and_others_are_refused(smiles, tmp_path):
    values = range(1, ROWS + 1)
    file = write(tmp_path, smiles, values, ["nM"] * ROWS)
    data = read(file)
    assert data.units == ("nM",)
    assert "ic50: in nM, by column 'unit' (detected)" in data.findings
    data = read(file, unit_columns=("unit",))
    assert data.units == ("nM",)
    assert "ic50: in nM, by column 'unit'" in data.findings
    data = read(file, units=("uM",))
    assert data.units == ("uM",)
    assert data.targets.max() == ROWS / 1000
    data = read(write(tmp_path, smiles, values, ["nM"] * 59 + [""]))
    assert len(data.targets) == ROWS
    assert "ic50: in nM, by column 'unit' (detected), also 1 value without a unit" in data.findings
    file = write(tmp_path, smiles, values, ["nM"] * 40 + ["%"] * 20)
    with pytest.raises(MolsliceError, match=r"row 41 .*, column 'unit': '%' cannot be .* \(nM in 40 rows, %"):
        read(file)
    assert read(file, unit_columns=columns_of_targets("unit_column", "", ["y"])).targets.max() == ROWS
    file = write(tmp_path, smiles, values, ["nM"] * 58 + ["", "NA"])
    data = read(file, unit_columns=("unit",))
    assert len(data.targets) == 58
    assert "ic50: 2 values without a unit count as missing" in data.losses
    for name, message in (("nothing", "nothing"), ("ic50", "'ic50' cannot be both a unit and a target")):
        with pytest.raises(MolsliceError, match=message):
            read(file, unit_columns=(name,))


@pytest.mark.parametrize(
    ("units", "message"),
    [
        (
            ["nM", "uM", "nM", "not determined"],
            r"row 4 \(line 5\), column 'unit': 'not determined' cannot be",
        ),
        (["nM", "nM", "nM", "nM nM"], "row 4 .*'nM nM' cannot be converted"),
        (["nM", "NM", "nM", "nM"], r"row 2 .*'NM' \(did you mean nM\?\) cannot be .*nM in 45 rows, NM in 15"),
        (["NM"], r"row 1 .*'NM' \(did you mean nM\?\)"),
        (["UG/ML", "\u039cM"], r"'UG/ML' \(did you mean ug/mL\?\)"),
        (["MM", "UM", "mM"], r"'MM' \(did you mean mM\?\)"),
    ],
)
def test_a_cell_that_is_no_unit_is_refused_with_its_row(smiles, tmp_path, units, message):
    file = write(tmp_path, smiles, range(1, ROWS + 1), (units * ROWS)[:ROWS])
    with pytest.raises(MolsliceError, match=message):
        read(file)
    assert read(file, unit_columns=(None,)).targets.max() == ROWS


def test_a_column_of_groups_is_no_unit(smiles, tmp_path):
    file = write(tmp_path, smiles, range(1, ROWS + 1), ["nM", "uM", "mM"] * (ROWS // 3))
    data = read(file, groups="unit")
    assert data.targets.max() == ROWS
    assert not any("converted" in text for text in data.findings + data.notices)


def test_p_values(smiles, molar, tmp_path):
    values = [repr(float(value * 1e9)) for value in molar]
    values[0], values[1], values[2] = f">{values[0]}", f"<{values[1]}", ">0"
    errors = [float(value * 1e8) for value in molar]  # a tenth
    file = write(tmp_path, smiles, values, ["nM"] * ROWS, se=errors)
    data = read(file, transform="p", errors=("se",))
    assert "ic50: in nM, by column 'unit' (detected)" in data.findings
    assert "learned and predicted: pic50, -log10 mol/L of ic50 in nM" in data.findings
    assert (data.names, data.units, data.logarithmic) == (("pic50",), (P_UNIT,), (False,))
    assert smiles[2] not in data.smiles  # more than 0 says nothing
    places = [data.smiles.index(text) if row != 2 else -1 for row, text in enumerate(smiles)]
    expected = -np.log10(molar)
    np.testing.assert_allclose(data.targets[places[3:], 0], expected[3:], rtol=1e-9)
    assert data.bounds[:, places[0], 0].tolist() == pytest.approx([-np.inf, expected[0]])
    assert data.bounds[:, places[1], 0].tolist() == pytest.approx([expected[1], np.inf])
    np.testing.assert_allclose(data.noise[places[3:], 0], 0.1 / np.log(10), rtol=1e-9)


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        ("5", {}, "unknown concentration ''; name the unit with --unit"),
        ("5", {"units": ("kg",)}, "unknown concentration 'kg'"),
        (
            "0",
            {"units": ("nM",)},
            r"a\.csv, row 1 \(line 2\), column 'ic50': the value 0 of .* has no logarithm",
        ),
        ("<0", {"units": ("nM",)}, "the value 0 of .* has no logarithm"),
        ("1", {"units": ("nM",), "kinds": ("classification",)}, "classes have no negative logarithm"),
    ],
)
def test_what_has_no_p_value_is_refused(smiles, tmp_path, value, options, message):
    rows = [[text, i % 2 if "kinds" in options else i + 1] for i, text in enumerate(smiles)]
    rows[0][1] = value
    file = write_table(tmp_path / "a.csv", ["smiles", "ic50"], rows)
    with pytest.raises(MolsliceError, match=message):
        read(file, transform="p", **options)


def test_a_model_of_p_values_predicts_them(smiles, molar, tmp_path, capsys):
    file = write_table(tmp_path / "a.csv", ["smiles", "ic50"], zip(smiles, molar * 1e9, strict=True))
    words = [
        "fit",
        str(file),
        "--target",
        "ic50",
        "--unit",
        "nM",
        "--transform",
        "p",
        "--members",
        "2",
        "--quiet",
    ]
    assert main([*words, "--no-encoder", "--split", "all", "--out", str(tmp_path / "model")]) == 0
    model = load_model(tmp_path / "model")
    assert (model.target_names, model.target_units) == (("pic50",), (P_UNIT,))
    predicted = model.predict(smiles)
    assert np.abs(predicted + np.log10(molar)).mean() < 1.5
    capsys.readouterr()
    words = ["predict", str(tmp_path / "model"), "--input", str(file), "--output", str(tmp_path / "out.csv")]
    assert main([*words, "--metrics"]) == 1  # values in nM are not compared with their logarithms
    assert "has no measured values: no column pic50" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "model"), "--split", "all", "--data.path", str(file)]) == 1
    assert "has no column 'pic50'" in capsys.readouterr().err
    file = write_table(
        tmp_path / "p.csv",
        ["smiles", "pic50", "unit"],
        zip(smiles, -np.log10(molar), ["nM", "uM"] * (ROWS // 2), strict=True),
    )
    assert main(["evaluate", str(tmp_path / "model"), "--split", "all", "--data.path", str(file)]) == 0
    with pytest.raises(MolsliceError, match="unknown transform 'q'; choices: p"):
        fit(file, "ic50", tmp_path / "other", transform="q", encoder=None)


def test_metrics_of_a_table_are_in_the_unit_of_the_model(smiles, molar, tmp_path, capsys):
    values = [f"{number * 1e9:.6g}" for number in molar]
    fast = {"encoder": None, "members": 2, "quality": "fast", "split": "all", "quiet": True}
    file = write(tmp_path, smiles, values, ["nM"] * ROWS)
    fit(file, "ic50", tmp_path / "model", unit_column="unit", **fast)
    fit(file, "ic50", tmp_path / "detected", **fast)
    fit(file, "ic50", tmp_path / "without", unit_column="", **fast)
    assert load_model(tmp_path / "detected").target_units == ("nM",)
    expected, _ = metrics(tmp_path / "without", file)
    for name in ("model", "detected"):
        assert metrics(tmp_path / name, file)[0]["value"] == expected["value"]
    file = write(tmp_path, smiles, [f"{number * 1e6:.6g}" for number in molar], ["µM"] * ROWS)
    for name in ("model", "detected"):
        with pytest.raises(
            MolsliceError, match=r"row 1 .*the value of 'ic50' is in uM, but the model predicts nM"
        ):
            metrics(tmp_path / name, file)
        assert main(["evaluate", str(tmp_path / name), "--split", "all", "--data.path", str(file)]) == 1
        assert "column 'unit': values are in µM, but the model predicts nM" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "without"), "--split", "all", "--data.path", str(file)]) == 0
    two = write(tmp_path, smiles, values, ["uM", "nM"] * (ROWS // 2), dose=["g/L"] * ROWS)
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "detected"), "--split", "all", "--data.path", str(two)]) == 0
    assert "the units in 'unit' and 'dose' are not compared with the model's" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "model"), "--split", "all", "--data.path", str(two)]) == 1
    unknown = tmp_path / "unknown"  # the unit
    fit(
        write_table(tmp_path / "b.csv", ["smiles", "ic50"], zip(smiles, values, strict=True)),
        "ic50",
        unknown,
        **fast,
    )
    metrics(unknown, file)
    file = write(tmp_path, smiles, values, ["nmol/L", "nM"] * (ROWS // 2))
    for name in ("model", "detected"):
        assert metrics(tmp_path / name, file)[0]["value"] == expected["value"]
    file = write(tmp_path, smiles, values, ["µM", *["nM"] * (ROWS - 1)])
    with pytest.raises(MolsliceError, match=r"row 2 .* is in nM, but others are in uM; convert it"):
        metrics(unknown, file)
    assert metrics(tmp_path / "without", file)[0]["value"] == expected["value"]


def test_another_table_is_read_as_the_table_of_the_fit(smiles, molar, tmp_path, capsys):
    values = [f"{number * 1e9:.3f}".replace(".", ",") for number in molar]
    values[3] = values[7] = "-999"
    file = write_table(tmp_path / "a.csv", ["smiles", "ic50"], zip(smiles, values, strict=True))
    how = {"decimal": ",", "missing_values": -999}
    fast = {"encoder": None, "members": 2, "quality": "fast", "split": "all", "quiet": True}
    fit(file, "ic50", tmp_path / "model", **how, **fast)
    measured = metrics(tmp_path / "model", file)[0]
    assert measured["count"] == ROWS - 2
    capsys.readouterr()
    words = ["evaluate", str(tmp_path / "model"), "--split", "all", "--data.path", str(file), "--json"]
    assert main(words) == 0
    [target] = json.loads(capsys.readouterr().out)["targets"]
    assert (target["count"], target["mae"]) == (ROWS - 2, pytest.approx(measured["value"], rel=1e-5))


def test_points_that_may_be_decimal_are_refused_if_the_fit_had_commas(smiles, molar, tmp_path, capsys):
    rows = [(text, f"{-np.log10(value):.3f}") for text, value in zip(smiles, molar, strict=True)]
    file = write_table(tmp_path / "a.csv", ["smiles", "y"], [(text, y.replace(".", ",")) for text, y in rows])
    fast = {"encoder": None, "members": 2, "quality": "fast", "split": "all", "quiet": True}
    fit(file, "y", tmp_path / "model", decimal=",", **fast)
    expected = metrics(tmp_path / "model", file)
    points = write_table(tmp_path / "b.csv", ["smiles", "y"], rows)
    with pytest.raises(MolsliceError, match=r"b\.csv, column 'y': 4\.000 may mean 4,000, but would be read"):
        metrics(tmp_path / "model", points)
    words = ["evaluate", str(tmp_path / "model"), "--split", "all", "--json", "--data.path", str(points)]
    assert main(words) == 1
    assert "column 'y': 4.000 may mean 4,000, but would be read as 4000" in capsys.readouterr().err
    assert main([*words, "--data.decimal", "."]) == 0
    [target] = json.loads(capsys.readouterr().out)["targets"]
    assert target["mae"] == pytest.approx(expected[0]["value"], rel=1e-5)
    assert main([*words, "--data.decimal", '","']) == 0
    [target] = json.loads(capsys.readouterr().out)["targets"]
    assert target["mae"] > 1000


def test_metrics_of_a_fit_without_a_record_of_a_transform(smiles, molar, tmp_path):
    file = write(tmp_path, smiles, [f"{number * 1e9:.6g}" for number in molar], ["nM"] * ROWS)
    fast = {"encoder": None, "members": 2, "quality": "fast", "split": "all", "quiet": True}
    fit(file, "ic50", tmp_path / "model", unit_column="unit", **fast)
    expected = metrics(tmp_path / "model", file)
    record = json.loads((tmp_path / "model" / "fit.json").read_text())
    del record["options"]["transform"]
    (tmp_path / "model" / "fit.json").write_text(json.dumps(record))
    assert metrics(tmp_path / "model", file) == expected


def metrics(folder, file):
    out = file.with_name("out.csv")
    out.unlink(missing_ok=True)
    return predict_table(load_model(folder), file, out, metrics=True).metrics
