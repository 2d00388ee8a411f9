"""Stereoisomers, isotopologues and salts of a compound have one parent; other molecules have another."""

import pytest

from molslice.chem.parent import parents


@pytest.mark.parametrize(
    "same",
    [
        ("C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O", "CC(N)C(=O)O", "C[C@H]([NH3+])C(=O)[O-]"),
        ("C/C=C/Cl", "C/C=C\\Cl", "CC=CCl"),
        ("CC(=O)O", "CC(=O)[O-].[Na+]", "[2H]C([2H])([2H])C(=O)O", "[13CH3]C(=O)O", "[CH3:1]C(=O)O"),
        ("CCN(CC)CC", "Cl.CCN(CC)CC", "[Cl-].CC[NH+](CC)CC"),
        ("C[N+](C)(C)C", "C[N+](C)(C)C.[I-]"),
        ("C1CC[C@H]2CCCC[C@@H]2C1", "C1CC[C@H]2CCCC[C@H]2C1"),
    ],
)
def test_forms_of_a_compound_have_one_parent(same):
    assert len(set(parents(same))) == 1


def test_other_molecules_have_other_parents():
    smiles = ["CC=CCl", "CCCCl", "c1ccncc1", "c1ccccc1", "C1CCCCC1", "CC(=O)OC", "OC=CC", "CCC=O"]
    assert len(set(parents(smiles))) == len(smiles)


def test_an_unreadable_smiles_is_its_own_parent():
    assert parents(["nonsense", "[H][H]", "*"]) == ["nonsense", "[H][H]", "*"]
