"""One molecule gives one graph, whichever way its SMILES is written."""

import numpy as np
import pytest
from rdkit import Chem

from molslice.chem.featurize import molecule_arrays
from tests.real_data import embedded_smiles, odd_smiles


def same(one, other):
    return np.array_equal(one.atoms, other.atoms) and np.array_equal(one.bonds, other.bonds)


def spellings_that_differ(rows, spellings):
    """The molecules whose random spellings do not all give the arrays of the first."""
    differing = []
    for smiles in rows:
        arrays = molecule_arrays(smiles)
        mol = Chem.MolFromSmiles(smiles)
        for spelling in Chem.MolToRandomSmilesVect(mol, spellings, randomSeed=11):
            if not same(molecule_arrays(spelling), arrays):
                differing.append(smiles)
                break
    return differing


def test_one_molecule_has_one_graph_however_it_is_written():
    assert spellings_that_differ(embedded_smiles()[::14][:1000], 10) == []


def test_drugs_and_natural_products_have_one_graph():
    rows = odd_smiles("rdkit_zinc_natural_50k.smi.gz", 500) + odd_smiles("rdkit_pubchem_hard_set.smi.gz", 12)
    assert spellings_that_differ(rows, 5) == []


def test_chirality_follows_the_new_order_of_the_neighbors():
    # both are L-alanine; renumbering alone would leave the tag of the second spelling as it was written
    assert same(molecule_arrays("C[C@H](N)C(=O)O"), molecule_arrays("N[C@@H](C)C(=O)O"))
    assert not same(molecule_arrays("C[C@H](N)C(=O)O"), molecule_arrays("C[C@@H](N)C(=O)O"))


def test_kekule_and_aromatic_spellings_agree():
    assert same(molecule_arrays("C1=CC=CC=C1C"), molecule_arrays("Cc1ccccc1"))


@pytest.mark.parametrize(
    ("mapped", "plain"),
    [
        ("[CH3:7][CH2:1][OH:3]", "CCO"),
        ("[CH3:1][C@H:2]([CH3:3])[OH:4]", "CC(C)O"),
        ("[*:1]c1ccccc1", "*c1ccccc1"),
    ],
)
def test_atom_maps_are_not_chemistry(mapped, plain):
    assert same(molecule_arrays(mapped), molecule_arrays(plain))
