"""What a fit does not depend on: the unit of the target and the order of the rows."""

import csv

import numpy as np
import pytest

from molslice.fitting.fit import fit
from molslice.folders.fitted import ROWS, read_fitted
from molslice.inference.load import load_model
from tests.fitting.test_fit import write_table
from tests.inference.models import embedded_smiles

NEW = ["CCO", "c1ccccc1O", "CC(=O)Nc1ccc(O)cc1", "C1CCCCC1"]

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def rows():
    """Positive whole numbers: trees find many splits of them that are equally good."""
    smiles, draw = embedded_smiles(80), np.random.default_rng(0)
    return [[text, float(len(text) // 4 + draw.integers(1, 5))] for text in smiles]


def bounds(folder, factor=1.0):
    """Prediction, lower and upper bound of new molecules."""
    predictions = load_model(folder).predict_with_errors(NEW, interval=0.8)
    return np.stack([predictions.values, predictions.lower, predictions.upper])[..., 0].astype(float) / factor


def fitted(rows, folder, factor=1.0, **options):
    folder.mkdir()
    table = write_table(folder / "table.csv", ["smiles", "y"], [[s, repr(y * factor)] for s, y in rows])
    about = fit(table, "y", folder / "model", members=3, encoder=None, quiet=True, **options)
    return about, folder / "model"


def read_rows(folder):
    with (folder / ROWS).open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize(
    ("split", "scale"), [("random", "linear"), ("scaffold", "linear"), ("random", "log")]
)
def test_a_fit_does_not_depend_on_the_unit(rows, split, scale, tmp_path):
    about, model = fitted(rows, tmp_path / "a", split=split, scale=scale)
    other, scaled = fitted(rows, tmp_path / "b", factor=1e6, split=split, scale=scale)
    np.testing.assert_allclose(bounds(scaled, 1e6), bounds(model), rtol=1e-5)
    (result,), (other_result,) = about["results"], other["results"]
    assert other_result["cross_validated"] == pytest.approx(1e6 * result["cross_validated"], rel=1e-6)
    for name, value in result["test"].items():
        assert other_result["test"][name] == pytest.approx(1e6 * value, rel=1e-6), name
    for name, value in result["standard_errors"]["test"].items():
        assert other_result["standard_errors"]["test"][name] == pytest.approx(1e6 * value, rel=1e-6), name
    np.testing.assert_allclose(read_fitted(scaled).stacks[0].weights, read_fitted(model).stacks[0].weights)


@pytest.mark.parametrize("split", ["random", "scaffold"])
@pytest.mark.parametrize("duplicates", ["average", "keep"])
def test_a_fit_does_not_depend_on_the_order_of_the_rows(rows, split, duplicates, tmp_path):
    rows = [*rows, *([text, y + 1.0] for text, y in rows[:5])]
    draw = np.random.default_rng(1)
    shuffled = [rows[i] for i in draw.permutation(len(rows))]
    about, model = fitted(rows, tmp_path / "a", split=split, duplicates=duplicates)
    other, again = fitted(shuffled, tmp_path / "b", split=split, duplicates=duplicates)
    np.testing.assert_array_equal(bounds(again), bounds(model))
    assert other["results"] == about["results"]
    written = {tuple(row.values()) for row in read_rows(model)}
    assert {tuple(row.values()) for row in read_rows(again)} == written


def test_rows_are_written_in_the_order_of_the_table(rows, tmp_path):
    _, model = fitted(rows, tmp_path / "a")
    assert [[row["smiles"], float(row["y"])] for row in read_rows(model)] == rows
