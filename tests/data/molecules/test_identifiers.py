"""The columns of names and numbers of a table."""

import pytest

from molslice.data.molecules.identifiers import find_name_column


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        (["smiles", "logS"], None),
        (["id", "smiles", "Compound Name"], "Compound Name"),
        (["IUPAC", "id", "smiles"], "IUPAC"),
        (["Molecule ChEMBL ID", "smiles"], "Molecule ChEMBL ID"),
        (["smiles", "ID", "name"], "name"),
        (["name", "smiles", "name", "id"], "id"),  # which of two is meant is not clear
        (["smiles", "target name"], None),
        (["InChIKey", "molecule", "smiles"], "molecule"),
        (["label", "smiles"], None),  # of a class
    ],
)
def test_names_come_before_numbers_of_compounds(columns, name):
    assert find_name_column(columns, "smiles") == name


def test_the_column_of_smiles_is_no_name():
    assert find_name_column(["compound", "id"], "compound") == "id"
    assert find_name_column([], "smiles") is None
