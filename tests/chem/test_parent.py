"""Stereoisomers, isotopologues and salts of a compound have one parent; other molecules have another."""

import pytest

from molslice.chem.counterions import _NEUTRAL_FORMS, counterions
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
        (
            "CNC",
            "C[NH2+]C.Cc1ccc(cc1)S(=O)(=O)[O-]",
            "CNC.OC(=O)[C@@H](O)[C@H](O)C(=O)O",
            "CNC.OC(=O)CC(O)=O.O",
        ),
        ("C[N+](C)(C)CC(O)CC(=O)[O-]", "C[N+](C)(C)CC(O)CC(=O)O.[Cl-]"),
        ("OC(=O)C(F)(F)F", "[O-]C(=O)C(F)(F)F.[Na+]"),
        ("NC(=O)N", "NC(=O)N.OP(=O)(O)O"),
        (
            "C[n+]1ccn(CC)c1.[Cl-]",
            "C[n+]1ccn(CC)c1.F[P-](F)(F)(F)(F)F",
            "C[n+]1ccn(CC)c1.O=S(=O)([N-]S(=O)(=O)C(F)(F)F)C(F)(F)F",
            "C[n+]1ccn(CC)c1.c1ccccc1[B-](c1ccccc1)(c1ccccc1)c1ccccc1",
        ),
    ],
)
def test_forms_of_a_compound_have_one_parent(same):
    assert len(set(parents(same))) == 1


def test_other_molecules_have_other_parents():
    smiles = ["CC=CCl", "CCCCl", "c1ccncc1", "c1ccccc1", "C1CCCCC1", "CC(=O)OC", "OC=CC", "CCC=O"]
    assert len(set(parents(smiles))) == len(smiles)


def test_a_counterion_is_the_parent_without_another_compound():
    acid = "Cc1ccc(S(=O)(=O)O)cc1"
    assert parents([acid, acid + ".O", acid + ".OC(=O)C(F)(F)F"]) == [acid] * 3


def test_counterions_are_neutral_and_distinct():
    assert len(counterions()) == len(_NEUTRAL_FORMS)
    assert parents(sorted(counterions())) == sorted(counterions())


def test_an_unreadable_smiles_is_its_own_parent():
    assert parents(["nonsense", "[H][H]", "*"]) == ["nonsense", "[H][H]", "*"]
