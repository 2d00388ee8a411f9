"""Stereoisomers, isotopologues and salts of a compound have one parent; other molecules have another."""

import re

import pytest
from rdkit import Chem

from molslice.chem.parent import _NEUTRAL_FORMS, counterions, parents


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


# all of _NEUTRAL_FORMS
NAMES = """
acetic, adipic, ascorbic, benzenesulfonic, benzoic,
bistriflimide, camphorsulfonic, citric, dodecylsulfuric, ethanesulfonic,
ethane-1,2-disulfonic, formic, fumaric and maleic, gentisic, gluconic,
glucoheptonic, glucuronic, glutaric, glycolic, hippuric,
2-hydroxyethanesulfonic, lactic, lactobionic, malic, malonic,
mandelic, methanesulfonic, methylsulfuric, naphthalene-1,5-disulfonic, naphthalene-2-sulfonic,
oleic, oxalic, palmitic, pamoic, picric,
propionic, saccharin, salicylic, sebacic, stearic,
succinic, tartaric, tetraphenylborate, toluenesulfonic, trifluoroacetic,
trifluoromethanesulfonic, xinafoic, benzathine, dicyclohexylamine, diethanolamine,
meglumine, triethanolamine, triethylamine, tromethamine
"""


def test_every_counterion_is_known_in_every_form():
    listed = re.split(r",\s+", NAMES.strip())
    assert sorted(listed) == sorted(_NEUTRAL_FORMS)
    for name in listed:
        spelled = Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(_NEUTRAL_FORMS[name]), 1, randomSeed=1)[0]
        assert parents([f"CN.{spelled}", f"{spelled}.CN.Cl"]) == ["CN", "CN"], name


def test_the_parent_of_a_pamoate_is_the_drug():
    pyrantel = "CN1CCCN=C1C=Cc1cccs1"
    pamoate = "[O-]C(=O)c1cc2ccccc2c(Cc2c3ccccc3cc(C([O-])=O)c2O)c1O"
    salt = f"C[NH+]1CCCN=C1/C=C/c1cccs1.C[NH+]1CCCN=C1/C=C/c1cccs1.{pamoate}"
    assert parents([salt]) == parents([pyrantel]) == [Chem.CanonSmiles(pyrantel)]


def test_counterions_are_neutral_and_distinct():
    assert len(counterions()) == len(_NEUTRAL_FORMS)
    assert parents(sorted(counterions())) == sorted(counterions())


def test_an_unreadable_smiles_is_its_own_parent():
    assert parents(["nonsense", "[H][H]", "*"]) == ["nonsense", "[H][H]", "*"]
