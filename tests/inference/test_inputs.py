import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from molslice.files.tables import Unreadable
from molslice.inference.inputs import molecule_rows
from molslice.types import MolsliceError
from tests.inference.models import TWO, untrained

SMILES = ["CCO", "c1ccccc1", "C[C@H](N)C(=O)[O-]", "[13CH4]"]
FORMS = {
    "list": list,
    "tuple": tuple,
    "generator": iter,
    "array of objects": lambda rows: np.array(rows, object),
    "array of text": np.array,
    "column of an array": lambda rows: np.array(rows, object)[:, None],
    "pandas Series": lambda rows: pd.Series(rows, index=[f"row {n}" for n in range(len(rows))][::-1]),
    "pandas Series of objects": lambda rows: pd.Series(rows, dtype=object),
    "pandas categories": lambda rows: pd.Series(rows, dtype="category"),
    "pandas Index": pd.Index,
    "pandas DataFrame": lambda rows: pd.DataFrame({"id": range(len(rows)), "Smiles": rows}),
    "pandas DataFrame with another name": lambda rows: pd.DataFrame({"y": 1.0, "what": rows}),
    "pandas column": lambda rows: pd.DataFrame(rows),
    "polars Series": pl.Series,
    "polars DataFrame": lambda rows: pl.DataFrame({"name": ["a"] * len(rows), "smiles": rows}),
    "polars column": lambda rows: pl.DataFrame({"any": rows}),
    "RDKit": lambda rows: [Chem.MolFromSmiles(text) for text in rows],
    "pickled RDKit": lambda rows: pickle.loads(pickle.dumps([Chem.MolFromSmiles(text) for text in rows])),
    "column of RDKit": lambda rows: pd.DataFrame({"mol": [Chem.MolFromSmiles(text) for text in rows]}),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_predicts_like_a_list(model, form):
    expected = model.predict_with_errors(SMILES)
    found = model.predict_with_errors(FORMS[form](SMILES))
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.errors == expected.errors == [None] * len(SMILES)


@pytest.mark.parametrize("one", ["CCO", np.str_("CCO"), np.array("CCO"), Chem.MolFromSmiles("OCC")])
def test_one_molecule_is_one_row(model, one, tmp_path):
    np.testing.assert_array_equal(model.predict(one), model.predict(["CCO"]))
    assert model.predict(one).shape == (1,)
    assert untrained(tmp_path / "two", targets=TWO).predict(one).shape == (1, 2)
    np.testing.assert_array_equal(model.embed(one), model.embed(["CCO"]))


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT, np.ma.masked])
def test_a_missing_value_keeps_its_row(model, missing):
    found = model.predict_with_errors(["CCO", missing, "CC"])
    assert found.errors == [None, "no SMILES given", None]
    np.testing.assert_array_equal(found.values[[0, 2]], model.predict_with_errors(["CCO", "CC"]).values)


@pytest.mark.parametrize("frame", [pd.Series, pl.Series, lambda rows: pd.DataFrame({"smiles": rows})])
def test_missing_cells_of_a_frame_keep_their_rows(frame):
    rows = molecule_rows(frame(["CCO", None, "", "CC"]))
    assert rows == ["CCO", "", "", "CC"]
    assert [isinstance(row, Unreadable) for row in rows] == [False, True, False, False]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (7, "not a string but int"),
        (2.5, "not a string but float"),
        (b"CCO", "not a string but bytes"),
        (["CCO"], "not a string but list"),
        ("", "empty SMILES"),
        (Chem.Mol(), "molecule without atoms"),
        (Chem.MolFromSmiles("CCO", sanitize=False), "not sanitized"),
        (Chem.MolFromSmarts("[#6]~[#7]"), "is a query"),
    ],
)
def test_an_unusable_value_has_a_reason_in_its_row(model, value, reason):
    found = model.predict_with_errors(["CCO", value, "CC"])
    assert found.errors[0] is found.errors[2] is None
    assert reason in found.errors[1]
    assert np.isnan(found.values[1]).all()


def test_a_molecule_with_known_properties_but_without_rings_is_refused():
    mol = Chem.MolFromSmiles("C1CC1", sanitize=False)
    mol.UpdatePropertyCache()
    (row,) = molecule_rows(mol)
    assert isinstance(row, Unreadable)
    assert "not sanitized" in row.reason


def test_chirality_charge_isotopes_and_explicit_hydrogens_of_a_molecule_count(model):
    for text in (
        "C[C@H](N)C(=O)[O-]",
        "C[C@@H](N)C(=O)[O-]",
        "F/C=C/F",
        "F/C=C\\F",
        "[2H]C",
        "[O-][N+](=O)C",
    ):
        mol = Chem.AddHs(Chem.MolFromSmiles(text))
        np.testing.assert_array_equal(model.predict(mol), model.predict(text))
    left, right = (model.predict(Chem.MolFromSmiles(text)) for text in ("C[C@H](N)O", "C[C@@H](N)O"))
    assert left != right


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (b"CCO", "got bytes"),
        (None, "got NoneType"),
        (7, "got int"),
        ({"CCO": 1}, "got dict"),
        ({"CCO"}, "got set"),
        (np.array([["CCO", "CC"]]), r"one column, got the shape \(1, 2\)"),
        (pl.DataFrame({"smiles": ["C"]}).lazy(), "collect"),
        (pd.DataFrame({"a": ["CCO"], "b": ["CCN"]}), "several could be it .a, b.. Give the column alone"),
        (
            pd.DataFrame({"a": [1], "b": [2]}),
            r"no column contains SMILES \(columns: 'a', 'b'\). Give the column alone",
        ),
        (pd.DataFrame({"CCO": ["CC"]}), "instead of column names. Add column names$"),
        (pd.DataFrame([["CC", "CC"]], columns=["smiles", "smiles"]), "2 columns named 'smiles'"),
    ],
)
def test_other_values_are_refused_in_words(wrong, message):
    with pytest.raises(MolsliceError, match=message):
        molecule_rows(wrong)


def test_one_column_needs_neither_a_name_nor_valid_molecules():
    assert len(molecule_rows(pd.DataFrame({"x": ["oops", None, 3]}))) == 3
    assert molecule_rows(pd.DataFrame({"smiles": []})) == []
    assert molecule_rows([]) == molecule_rows(np.array([])) == molecule_rows(pd.Series([], dtype=str)) == []


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=8), st.none(), st.floats(), st.integers(), st.binary())))
def test_rows_out_are_rows_in(values):
    for collection in (values, np.array([*values, None], object)[:-1], pd.Series(values, dtype=object)):
        rows = molecule_rows(collection)
        assert len(rows) == len(values)
        for value, row in zip(values, rows, strict=True):
            assert row == value if isinstance(value, str) else isinstance(row, Unreadable)


@pytest.mark.parametrize("table", [pd.DataFrame(), pd.DataFrame(index=[1, 2])])
def test_a_frame_without_columns_is_refused(model, table):
    with pytest.raises(MolsliceError, match="has no columns"):
        model.predict(table)
