"""The cause of an invalid SMILES is named, with the ring, symbol or atom, and only for invalid ones."""

import pytest
from rdkit import Chem

from molslice.chem.featurize import many_molecule_arrays
from molslice.chem.smiles import ChemError, parse_smiles
from molslice.chem.syntax import syntax_error
from molslice.data.molecules.refusals import kind_of_reason


@pytest.mark.parametrize(
    ("smiles", "cause"),
    [
        ("C1CC", "ring 1 is not closed"),
        ("C%12CC", "ring 12 is not closed"),
        ("C11", "ring 1 joins atom 1 with itself, at position 3"),
        ("C1C1", "ring 1 joins atoms 1 and 2 again, at position 4"),
        ("c1ccc(C(=O)O1", "parenthesis at position 6 is not closed"),
        ("CC)C", "parenthesis at position 3 is not opened"),
        ("C[NH3+", "bracket at position 2 is not closed"),
        ("CO]", "bracket at position 3 is not opened"),
        ("aspirin", "unknown symbol 'a' at position 1"),
        ("CH4", "unknown symbol 'H' at position 2"),
        ("C[13Qq+]", "unknown symbol 'Qq' at position 5"),
        ("C[C@H@]C", "invalid atom '[C@H@]' at position 2"),
        ("CC==C", "no atom before '=' at position 4"),
        ("C()C", "no atom before ')' at position 3"),
        ("CC=", "no atom after '=' at the end"),
        ("CN(C)(C)C", "atom 2, N, has valence 4, more than permitted"),
        (
            "Cc1ccnc1",
            "cannot kekulize the aromatic atoms 2 3 4 5 6; a nitrogen with a hydrogen is written [nH]",
        ),
        ("c1cc1c", "cannot kekulize the aromatic atoms 1 2 3"),
        ("C1CC |^1:0|", "ring 1 is not closed"),
    ],
)
def test_the_cause_follows(smiles, cause):
    with pytest.raises(ChemError) as caught:
        parse_smiles(smiles)
    assert str(caught.value) == f"not valid SMILES: {cause}"
    assert many_molecule_arrays(["C", smiles]).errors == {1: f"not valid SMILES: {cause}"}


@pytest.mark.parametrize(
    "smiles",
    [
        "CC(=O)Oc1ccccc1C(=O)O",
        "C/C=C\\C.[Na+].[Cl-]",
        "[13CH3]-[C@@H](N)C#N",
        "C%10CC%10",
        "C1CC=1C2CC2C12CC1C2",
        "N[Pt@SP1](N)(Cl)Cl",
        "[NH3]->[Cu++]<-[OH2]",
        "*C1~[#6]$C1[se:12]",
    ],
)
def test_valid_syntax_has_no_error(smiles):
    plain = Chem.SmilesParserParams()
    plain.sanitize = False
    assert Chem.MolFromSmiles(smiles, plain) is not None
    assert syntax_error(smiles) is None


def test_causes_of_one_kind_are_counted_together():
    kinds = {kind_of_reason(f"not valid SMILES: {syntax_error(smiles)}") for smiles in ("C1CC", "CC23CC2")}
    assert kinds == {"not valid SMILES: ring … is not closed"}
    with pytest.raises(ChemError) as caught:
        parse_smiles("c1cccn1")
    assert kind_of_reason(str(caught.value)) == "not valid SMILES: cannot kekulize the aromatic atoms …"
