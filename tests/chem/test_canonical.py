"""Canonical SMILES and the order of their atoms."""

import numpy as np
import pytest
from rdkit import Chem

from molslice.chem.canonical import canonical_molecule, canonical_order
from molslice.chem.featurize import molecule_arrays
from molslice.chem.smiles import ChemError
from tests.chem.test_spellings import RING_STEREO
from tests.real_data import embedded_smiles

SMILES = [*embedded_smiles()[::700], *RING_STEREO, "OCC", "C[N+](C)(C)CC([O-])=O.Cl", "F[B-](F)(F)F.[Na+]"]


def neighbors(mol, order):
    """Return the element and the neighbors of each atom, by its position in `order`."""
    place = {int(atom): k for k, atom in enumerate(order)}
    return [
        (
            mol.GetAtomWithIdx(int(i)).GetSymbol(),
            sorted(place[n.GetIdx()] for n in mol.GetAtomWithIdx(int(i)).GetNeighbors()),
        )
        for i in order
    ]


@pytest.mark.parametrize("smiles", SMILES)
def test_order_leads_from_the_spelling_to_the_canonical_atoms(smiles):
    for text in (smiles, *Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(smiles), 5, randomSeed=1)):
        order = canonical_order(text)
        mol = canonical_molecule(text).mol
        assert neighbors(Chem.MolFromSmiles(text), order) == neighbors(mol, np.arange(mol.GetNumAtoms()))


@pytest.mark.parametrize("smiles", SMILES)
def test_canonical_smiles_is_that_of_every_spelling_and_of_itself(smiles):
    canonical = canonical_molecule(smiles).smiles
    assert canonical is not None
    spellings = [canonical, *Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(smiles), 10, randomSeed=2)]
    assert {canonical_molecule(text).smiles for text in spellings} == {canonical}


HYDROGENS = ("[H][H]", "[2H]OC", "[H]/N=C(/C)CC", "[H+].[Cl-]", "C[C@H]([2H])O", "[13CH4]")


@pytest.mark.parametrize("smiles", [*SMILES, *HYDROGENS, "F/C=C/Cl", "C[C@@H](N)C(=O)O", "*CC", "c1cc[nH]c1"])
def test_a_molecule_of_a_canonical_smiles_is_the_one_that_is_parsed_again(smiles):
    for text in (smiles, Chem.CanonSmiles(smiles), canonical_molecule(smiles).smiles):
        once, again = canonical_molecule(text), canonical_molecule(f"{text} ")  # a blank: another text
        assert once.smiles == again.smiles
        assert once.mol.ToBinary(0) == again.mol.ToBinary(0)
        np.testing.assert_array_equal(canonical_order(text), canonical_order(f"{text} "))


def test_a_canonical_smiles_is_parsed_once(monkeypatch):
    monkeypatch.setattr("molslice.chem.canonical._read_back", None)
    assert canonical_molecule("CCO").smiles == "CCO"
    with pytest.raises(TypeError):
        canonical_molecule("OCC")


def test_order_is_that_of_the_arrays():
    smiles = "OC(=O)c1ccccc1Br"
    numbers = molecule_arrays(smiles).atoms[:, 0]
    spelled = molecule_arrays(smiles, atom_order="input").atoms[:, 0]
    np.testing.assert_array_equal(spelled[canonical_order(smiles)], numbers)


def test_atom_maps_are_dropped():
    assert canonical_molecule("[CH3:2][OH:1]").smiles == "CO"
    order = canonical_order("[OH:1][CH2:7][CH3:3]")
    assert list(order) == [2, 1, 0]


@pytest.mark.parametrize("smiles", ["", "C(", None, "C" * 300])
def test_what_cannot_be_read_is_refused(smiles):
    with pytest.raises(ChemError):
        canonical_molecule(smiles)


@pytest.mark.parametrize(
    ("smiles", "canonical"),
    [("[CH3:1][C@H:2]([CH3:3])[OH:4]", "CC(C)O"), ("[CH3:1]/C=C(/C)[CH3:2]", "CC=C(C)C")],
)
def test_stereo_that_only_atom_maps_told_apart_is_not_in_the_canonical_smiles(smiles, canonical):
    assert canonical_molecule(smiles).smiles == canonical
