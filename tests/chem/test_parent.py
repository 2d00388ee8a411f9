"""Stereoisomers, isotopologues and salts of a compound have one parent; other molecules have another."""

import re

import pytest
from rdkit import Chem

from molslice.chem import parent as parent_module
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
        ("CC(=O)O", "CC(=O)O[Na]", "[Na]OC(C)=O", "CC(=O)[O-].[Na+]", "CC(=O)O[Ca]OC(C)=O"),
        ("*C(=O)O", "*C(=O)O[K]"),
        ("CS(=O)c1ccc(F)cc1", "C[S+]([O-])c1ccc(F)cc1", "C[S@+]([O-])c1ccc(F)cc1", "C[S@@](=O)c1ccc(F)cc1"),
        ("CS(=O)(=O)C", "C[S+2]([O-])([O-])C", "C[S+](=O)([O-])C"),
        ("CP(C)(C)=O", "C[P+](C)(C)[O-]"),
        ("CN(C)C=CC=[N+](C)C", "C[N+](C)=CC=CN(C)C", "C[N+](C)=CC=CN(C)C.[Br-]"),
    ],
)
def test_forms_of_a_compound_have_one_parent(same):
    assert len(set(parents(same))) == 1


@pytest.mark.parametrize(
    "smiles",
    [
        *(
            "CS(=O)C",
            "O=S1CCCC1",
            "CS(=O)N(C)C",
            "CS(C)(=O)=O",
            "CP(=O)(O)O",
            "C[N+](=O)[O-]",
            "O=C1C=CC=CN1",
        ),
        *("C[S+](C)C", "C[N+](C)(C)[O-]", "[O-][n+]1ccccc1", "CC=[N+]=[N-]", "[C-]#[N+]C", "C~O", "*C~*"),
        *("F[P-](F)(F)(F)(F)F", "[O-][Cl+3]([O-])([O-])O", "[Fe]", "[He]", "[CH3]", "[CH2]", "C[Si](C)(C)C"),
    ],
)
def test_a_molecule_without_counterion_or_removable_charge_is_its_own_parent(smiles):
    assert parents([smiles]) == [Chem.CanonSmiles(smiles)]


ODD = ["CCO[Na]", "C[Zn]C", "N[Pt](N)(Cl)Cl", "[Na]~O", "*[Fe]*", "C[Hg]C", "[H][Al]([H])[H]", "[Li][Li]"]
ODD += ["C1=CC23C4=C5C6C2(C=C1)[Fe]54631278C3=C1C2C7=C38", "CC1=[O+][Cu]2([O+]=C(C)C1)[O+]=C(C)CC(C)=[O+]2"]
ODD += ["C[S+]([O-])CC[S+]([O-])C", "CC1CC2=[N+](C)CCC(N)=C2CC1", "[O-][P+](O)(O)O", "C[S+]([O-])[O-]"]


@pytest.mark.parametrize("smiles", ODD)
def test_the_parent_does_not_depend_on_the_spelling_and_is_its_own_parent(smiles):
    mol = Chem.MolFromSmiles(smiles)
    spelled = Chem.MolToRandomSmilesVect(mol, 10, randomSeed=1)
    (parent,) = {*parents([smiles, *spelled])}
    assert parents([parent]) == [parent]


def test_a_molecule_that_rdkit_cannot_change_keeps_its_parent(monkeypatch):
    class Failing:
        def Disconnect(self, mol):  # noqa: N802
            raise RuntimeError("Pre-condition Violation")

    tools = parent_module._tools()._replace(disconnector=Failing())
    monkeypatch.setattr(parent_module, "_tools", lambda: tools)
    assert parents(["CC(=O)[O-].[Na+]", "C[S+](C)[O-]"]) == ["CC(=O)O", "C[S+](C)[O-]"]


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
