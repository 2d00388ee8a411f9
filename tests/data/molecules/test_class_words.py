"""Classes that are written as words, such as active and inactive."""

import numpy as np
import pytest

from molslice.data.molecules.csv import Csv
from molslice.data.molecules.prepare import Featurizing
from molslice.data.molecules.prepare_files import prepare_files
from molslice.data.molecules.prepared import Prepared
from molslice.files.tables import NumberFormat, class_words, labels, numbers
from molslice.fitting.fit import fit
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles


def where(row):
    return f"row {row + 1}"


def write_table(path, cells):
    rows = zip(embedded_smiles(len(cells)), cells, strict=True)
    path.write_text("smiles,activity\n" + "".join(f"{smiles},{cell}\n" for smiles, cell in rows))
    return path


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["active", "Inactive ", "", "ACTIVE"], [1, 0, np.nan, 1]),
        (["yes", "no", "n/a", "1"], [1, 0, np.nan, 1]),
        (["positive", "negative"], [1, 0]),
        (["toxic", "nontoxic", "Non-toxic"], [1, 0, 0]),
        (["true", "False"], [1, 0]),
    ],
)
def test_words_are_classes(cells, expected):
    np.testing.assert_array_equal(labels(cells, "y", where), np.array(expected, np.float32))


@pytest.mark.parametrize(("cell", "complaint"), [("2", "is neither 0 nor 1"), ("maybe", "is not a number")])
def test_other_cells_are_no_classes(cell, complaint):
    with pytest.raises(MolsliceError, match=rf"row 2, column 'y': '{cell}' {complaint}"):
        labels(["active", cell], "y", where)


def test_words_are_no_numbers():
    """An inactive compound in a column of concentrations has no concentration of zero."""
    with pytest.raises(MolsliceError, match="row 2, column 'IC50': 'inactive' is not a number"):
        numbers(["12.5", "inactive"], "IC50", where)


def test_a_word_for_a_missing_value_is_no_class():
    how = NumberFormat(missing=("Inactive",))
    np.testing.assert_array_equal(labels(["active", "inactive"], "y", where, how), [1, np.nan])
    assert class_words({"y": ["active", "inactive", "0"]}, how) == {"y": ["active is 1"]}


def test_columns_of_words_are_found():
    assert class_words({"y": ["active", "", "Inactive"]}) == {"y": ["active is 1", "inactive is 0"]}
    assert class_words({"y": ["yes", "0"], "z": ["1", "0.0"]}) == {"y": ["yes is 1"]}
    assert class_words({"y": ["0", "1", "true"]}) == {}  # numbers() reads them
    assert class_words({"y": ["active", "5.5"]}) == {}
    assert class_words({"y": ["active"], "z": ["5.5"]}) == {}


@pytest.fixture
def table(tmp_path):
    return write_table(tmp_path / "t.csv", ["Active", "inactive", "inactive", ""] * 20)


EXPECTED = [1, 0, 0, np.nan] * 20


def test_a_data_set_has_classes(table, tmp_path):
    valid = write_table(tmp_path / "v.csv", ["yes", "no", "no", "no"])
    data = Csv(
        path=str(table),
        valid_path=str(valid),
        target_columns=["activity"],
        units=[""],
        cache_dir=tmp_path / "c",
    )
    assert data.kind == "classification"
    np.testing.assert_array_equal(data.store.targets[:, 0], [*EXPECTED, 1, 0, 0, 0])
    assert "activity: active is 1, inactive is 0" in data.notices
    with pytest.raises(MolsliceError, match="'Active' is not a number"):
        Csv(path=str(table), target_columns=["activity"], kind="regression", cache_dir=tmp_path)


def test_a_store_has_classes(table, tmp_path):
    prepare_files([str(table)], tmp_path / "store", targets=["activity"], how=Featurizing(workers=0))
    data = Prepared(path=str(tmp_path / "store"))
    assert data.kind == "classification"
    np.testing.assert_array_equal(data.store.targets[:, 0], EXPECTED)


def test_fit_says_what_the_words_mean(table, tmp_path):
    about = fit(table, "activity", tmp_path / "model", members=2, encoder=None, quiet=True)
    assert "targets: activity; classification (detected)" in about["findings"]
    assert "activity: active is 1, inactive is 0" in about["findings"]
    with pytest.raises(MolsliceError, match="'Active' is not a number"):
        fit(table, "activity", tmp_path / "other", kind="regression", encoder=None, quiet=True)


def test_numbers_below_words_are_refused(tmp_path):
    table = write_table(tmp_path / "t.csv", ["inactive"] * 60 + ["12.5"] * 20)
    with pytest.raises(
        MolsliceError, match=r"row 61 \(line 62\), column 'activity': '12.5' is neither 0 nor 1"
    ):
        fit(table, "activity", tmp_path / "model", encoder=None, quiet=True)


def test_true_and_false_are_no_values_beside_other_numbers():
    assert numbers(["TRUE", "0", "", "false"], "y", "row {}".format)[[0, 1, 3]].tolist() == [1, 0, 0]
    with pytest.raises(MolsliceError, match="row 1, column 'y': 'TRUE' is not a number"):
        numbers(["2.5", "TRUE"], "y", "row {}".format)
