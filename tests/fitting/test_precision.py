"""Weights of rows and standard errors of measurements in a fit."""

import json

import numpy as np
import pytest

from molslice.cli import main
from molslice.fitting.data import FitOptions
from molslice.fitting.fit import fit
from molslice.fitting.table import read_fit_data
from molslice.folders.fitted import FIT
from molslice.inference.load import load_model
from molslice.types import MolsliceError
from tests.fitting.test_fit import read_rows, write_table
from tests.inference.models import embedded_smiles

HEADER = ["smiles", "y", "w", "se"]

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(90)


def sizes(smiles):
    return np.array([len(text) + 3.0 * text.count("N") for text in smiles])


def read(table, *columns, **options):
    return read_fit_data(table, columns or ["y"], FitOptions(**options), workers=0)


def fitted(table, folder, **options):
    return fit(table, "y", folder, **{"members": 3, "encoder": None, "quiet": True, **options})


@pytest.fixture(scope="module")
def table(smiles, tmp_path_factory):
    """Two thirds of the rows are right; the others have wrong values, small weights and large errors."""
    values = sizes(smiles)
    draw = np.random.default_rng(0)
    wrong = np.arange(len(smiles)) % 3 == 0
    given = np.where(wrong, draw.permutation(values), values)
    rows = zip(smiles, given, np.where(wrong, 0.01, 1.0), np.where(wrong, 50.0, 0.5), strict=True)
    return write_table(tmp_path_factory.mktemp("table") / "a.csv", HEADER, rows)


@pytest.mark.parametrize("options", [{"weight": "w"}, {"error": "se"}, {"weight": "w", "error": "se"}])
def test_the_model_follows_the_rows_that_count(table, smiles, tmp_path, options):
    values = sizes(smiles)
    fitted(table, tmp_path / "plain", split="all")
    about = fitted(table, tmp_path / "model", split="all", **options)
    errors = [
        np.abs(load_model(tmp_path / name).predict(smiles) - values).mean() for name in ("plain", "model")
    ]
    assert errors[1] < 0.8 * errors[0]
    assert about["options"]["weight"] == options.get("weight")
    assert any("column" in text and ("weights" in text or "errors" in text) for text in about["findings"])
    # what is reported counts all rows alike
    rows = read_rows(tmp_path / "model")
    plain = np.mean([abs(float(row["y"]) - float(row["y_predicted"])) for row in rows])
    assert about["results"][0]["cross_validated"] == pytest.approx(plain)


def test_training_weights_have_the_mean_one_and_errors_stay_in_the_unit_of_the_target(table):
    data = read(table, weight="w", errors=("se",))
    assert data.weights[~data.test].mean() == pytest.approx(1.0)
    assert sorted(set(data.noise[:, 0])) == [0.5, 50.0]
    assert data.labels(0).noise is not None


def test_an_empty_cell_counts_as_the_median(smiles, tmp_path):
    rows = [[text, i, 1 + i % 3, 0.1] for i, text in enumerate(smiles)]
    rows[0][2], rows[1][3] = "", "NA"
    file = write_table(tmp_path / "a.csv", HEADER, rows)
    data = read(file, weight="w", errors=("se",), split="all")
    row = data.smiles.index(smiles[0])
    assert data.weights[row] == data.weights[data.smiles.index(smiles[1])]
    assert data.noise[data.smiles.index(smiles[1]), 0] == 0.1
    assert "weights: column 'w'; 1 are missing and count as the median, 2" in data.findings
    assert "y: standard errors in column 'se'; 1 are missing and count as the median, 0.1" in data.findings


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("0", r"row 2 \(line 3\), column 'w': '0' is not positive; leave the cell empty"),
        ("-1", "'-1' is not positive"),
        ("much", r"'much' is not a number \(leave unknown values empty, or name the word"),
        ("inf", "'inf' is infinite"),
    ],
)
def test_what_is_no_weight_is_refused(smiles, tmp_path, cell, message):
    rows = [[text, i, 1, 1] for i, text in enumerate(smiles)]
    rows[1][2] = cell
    file = write_table(tmp_path / "a.csv", HEADER, rows)
    with pytest.raises(MolsliceError, match=message):
        read(file, weight="w")
    with pytest.raises(MolsliceError, match=message):
        read(file, errors=("w",))


def test_columns_that_cannot_be_used(table, smiles, tmp_path):
    for name, message in (
        ("nothing", "nothing"),
        ("y", "'y' cannot be both an? (weight|error) and a target"),
        ("smiles", "cannot be both"),
    ):
        with pytest.raises(MolsliceError, match=message):
            fitted(table, tmp_path / "model", weight=name)
        with pytest.raises(MolsliceError, match=message):
            fitted(table, tmp_path / "model", error=name)
    with pytest.raises(MolsliceError, match="weight must be text, got 3"):
        fitted(table, tmp_path / "model", weight=3)
    with pytest.raises(MolsliceError, match=r"error must be one column, or one for each target \(1\)"):
        fitted(table, tmp_path / "model", error=["se", "w"])
    rows = [[text, i % 2, "", ""] for i, text in enumerate(smiles)]
    file = write_table(tmp_path / "a.csv", HEADER, rows)
    with pytest.raises(MolsliceError, match="the column 'w' has no value in any row with a target"):
        read(file, weight="w")
    file = write_table(tmp_path / "b.csv", HEADER, [[*row[:2], 1, 1] for row in rows])
    with pytest.raises(MolsliceError, match="classes, which have no standard errors"):
        read(file, errors=("se",))
    assert read(file, weight="w").types[0].kind == "classification"


def test_rows_of_one_molecule_are_averaged_by_precision(smiles, tmp_path):
    rows = [[text, 10 + i, 1, 1] for i, text in enumerate(smiles)]
    rows[0] = [smiles[0], 2.0, 3, 0.5]
    rows.append([smiles[0], 8.0, 1, 2.0])
    file = write_table(tmp_path / "a.csv", HEADER, rows)

    def first(**options):
        data = read(file, split="all", scale="linear", **options)
        row = data.smiles.index(smiles[0])
        return data, row

    data, row = first()
    assert data.targets[row, 0] == 5.0
    data, row = first(weight="w")
    assert data.targets[row, 0] == pytest.approx((3 * 2 + 8) / 4)
    assert data.weights[row] / data.weights[row + 1] == pytest.approx(4.0)
    data, row = first(errors=("se",))
    inverse = np.array([1 / 0.25, 1 / 4.0])
    assert data.targets[row, 0] == pytest.approx(inverse @ [2.0, 8.0] / inverse.sum())
    assert data.noise[row, 0] == pytest.approx(inverse.sum() ** -0.5)
    data, row = first(weight="w", errors=("se",))
    shares = inverse * [3, 1]
    assert data.targets[row, 0] == pytest.approx(shares @ [2.0, 8.0] / shares.sum())
    assert data.noise[row, 0] == pytest.approx(np.sqrt((shares**2) @ [0.25, 4.0]) / shares.sum())
    assert len(read(file, duplicates="keep", weight="w", split="all").weights) == len(rows)


def test_the_weight_of_a_molecule_is_the_sum_over_the_rows_that_tell_its_value(smiles, tmp_path):
    first = [[text, i, "", 1 + 99 * (i % 2)] for i, text in enumerate(smiles)]
    second = [[text, "", 2 * i, 1] for i, text in enumerate(smiles)]
    rows = [*first, *second, [smiles[0], ">-9", "", 99], [smiles[0], 3, "", 4]]
    file = write_table(tmp_path / "a.csv", ["smiles", "y", "z", "w"], rows)
    options = FitOptions(weight="w", split="all", scale="linear")
    data = read_fit_data(file, ["y", "z"], options, workers=0)
    ratios = data.weights / data.weights[data.smiles.index(smiles[2])]
    expected = [[5.0 if i == 0 else 1.0 + 99.0 * (i % 2), 1.0] for i in map(smiles.index, data.smiles)]
    np.testing.assert_allclose(ratios, expected)
    np.testing.assert_array_equal(data.labels(0).weights, data.weights[:, 0])
    np.testing.assert_allclose(data.labels(1).weights, 1.0)


def test_the_standard_error_of_a_logarithm(smiles, tmp_path):
    """The delta method, also for the geometric mean of rows of one molecule."""
    rows = [[text, 10.0 ** (i / 20), 1, 10.0 ** (i / 20) / 5] for i, text in enumerate(smiles)]
    rows[0] = [smiles[0], 1.0, 1, 0.1]
    rows.append([smiles[0], 100.0, 1, 10.0])
    file = write_table(tmp_path / "a.csv", HEADER, rows)
    data = read(file, split="all", errors=("se",))
    assert data.logarithmic == (True,)
    labels, row = data.labels(0), data.smiles.index(smiles[0])
    np.testing.assert_allclose(np.delete(labels.noise, row), 0.2 / np.log(10))
    assert labels.values[row] == pytest.approx(1.0)  # both have a relative error of 0.1
    assert labels.noise[row] == pytest.approx(0.1 / np.sqrt(2) / np.log(10))


def test_a_missing_error_is_the_median_in_the_unit_of_the_model(smiles, tmp_path):
    rows = [[text, 100 + i, "nM", 10.0] for i, text in enumerate(smiles)]
    rows[60:] = [[text, 1 + i / 1000, "uM", 0.02] for i, text in enumerate(smiles[60:])]
    rows[-1][3] = ""
    file = write_table(tmp_path / "a.csv", ["smiles", "y", "unit", "se"], rows)
    data = read(file, errors=("se",), unit_columns=("unit",))
    assert data.units == ("nM",)
    assert sorted({round(float(error), 6) for error in data.noise[:, 0]}) == [10.0, 20.0]
    assert data.noise[data.smiles.index(rows[-1][0]), 0] == 10.0
    p_values = read(file, errors=("se",), unit_columns=("unit",), transform="p")
    row = p_values.smiles.index(rows[-1][0])
    assert p_values.noise[row, 0] == pytest.approx(10.0 / (1000.0 * rows[-1][1] * np.log(10.0)))


def test_one_of_two_targets_has_errors(smiles, tmp_path):
    rows = [[text, i, 2 * i, 0.5] for i, text in enumerate(smiles)]
    file = write_table(tmp_path / "a.csv", ["smiles", "y", "z", "se"], rows)
    data = read(file, "y", "z", errors=("se", None))
    assert data.labels(0).noise is not None
    assert data.labels(1).noise is None
    about = fit(file, ["y", "z"], tmp_path / "m", error=["se", ""], encoder=None, members=2, quality="fast")
    assert about["options"]["errors"] == ["se", None]


def test_the_command_line(table, tmp_path, capsys):
    words = [
        "fit",
        str(table),
        "--target",
        "y",
        "--out",
        str(tmp_path / "model"),
        "--no-encoder",
        "--members",
        "2",
    ]
    assert main([*words, "--weight", "w", "--error", "se"]) == 0
    assert "weights: column 'w'" in capsys.readouterr().err
    options = json.loads((tmp_path / "model" / FIT).read_text())["options"]
    assert (options["weight"], options["errors"]) == ("w", ["se"])
