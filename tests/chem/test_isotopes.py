"""The weight of isotopes."""

import pytest
from rdkit import Chem
from rdkit.Chem.Descriptors import MolWt

from molslice.chem.canonical import canonical_molecule
from molslice.chem.isotopes import isotope_excess

DEUTERIUM = 2.014101778 - 1.008


@pytest.mark.parametrize(
    "smiles",
    [
        *(
            "[2H]C([2H])([2H])S(=O)C([2H])([2H])[2H]",
            "[13CH3]CO",
            "[2H]O[2H]",
            "[2H][2H]",
            "[14C]([2H])([3H])O",
        ),
        *("[CH3:1][13CH2:2]O", "[13CH3]C(=O)[O-].[Na+]", "CCO"),
    ],
)
def test_the_weight_with_isotopes_is_the_one_of_rdkit(smiles):
    without_isotopes = MolWt(canonical_molecule(smiles).mol)
    weight = without_isotopes + isotope_excess(smiles)
    assert weight == pytest.approx(MolWt(Chem.MolFromSmiles(smiles)), abs=1e-6)


@pytest.mark.parametrize("smiles", ["CCO", "[Na+].[Cl-]", "[1*]CCO", "[2H", "", "C[2H]("])
def test_without_isotopes_nothing_is_added(smiles):
    assert isotope_excess(smiles) == 0.0


def test_an_inchi_has_isotopes_too():
    assert isotope_excess("InChI=1S/C2H6OS/c1-4(2)3/h1-2H3/i1D3,2D3") == pytest.approx(6 * DEUTERIUM)


@pytest.mark.parametrize(
    ("smiles", "standardize", "labels"),
    [
        ("[2H]O[2H].CCO", "no", 0),
        ("O.[2H]CCO", "no", 1),
        ("[2H]C([2H])(Cl)Cl.CCCCCO", "no", 0),
        ("[22Na]OCC[2H]", "neutral", 1),
    ],
)
def test_only_the_largest_molecule_counts(smiles, standardize, labels):
    assert isotope_excess(smiles, "largest", standardize) == pytest.approx(labels * DEUTERIUM)
