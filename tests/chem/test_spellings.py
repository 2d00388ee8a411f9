"""A molecule gives the same graph for every spelling of its SMILES."""

import numpy as np
import pytest
from rdkit import Chem

from molslice.chem.featurize import ChemError, molecule_arrays
from molslice.chem.smiles import parse_smiles
from tests.real_data import embedded_smiles, odd_smiles


def same(one, other):
    return np.array_equal(one.atoms, other.atoms) and np.array_equal(one.bonds, other.bonds)


def spellings_that_differ(rows, spellings):
    """Return the molecules for which a random spelling gives other arrays than the first."""
    differing = []
    for smiles in rows:
        arrays = molecule_arrays(smiles)
        mol = Chem.MolFromSmiles(smiles)
        for spelling in Chem.MolToRandomSmilesVect(mol, spellings, randomSeed=11):
            if not same(molecule_arrays(spelling), arrays):
                differing.append(smiles)
                break
    return differing


@pytest.mark.parametrize(
    ("step", "spellings"), [(70, 5), pytest.param(14, 10, marks=pytest.mark.exhaustive)], ids=["some", "many"]
)
def test_one_molecule_has_one_graph_however_it_is_written(step, spellings):
    assert spellings_that_differ(embedded_smiles()[::step], spellings) == []


def spelled_with(mol, isotope):
    """Write a molecule with every hydrogen as an atom of an isotope and with a number."""
    mol = Chem.AddHs(mol)
    for atom in mol.GetAtoms():
        if atom.GetAtomicNum() == 1 and atom.GetDegree() == 1:
            atom.SetIsotope(isotope)
            atom.SetAtomMapNum(1 if isotope > 1 else 0)
    return Chem.MolToSmiles(mol)


@pytest.mark.parametrize("isotope", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("rdkit_pubchem_hard_set.smi.gz", 24),
        ("rdkit_zinc_natural_50k.smi.gz", 1000),
        pytest.param("rdkit_pubchem_100k.smi.gz", 50, marks=pytest.mark.exhaustive),
    ],
)
def test_hydrogens_that_are_atoms_change_no_graph(name, step, isotope):
    differing = []
    for smiles in filter(is_readable, [*odd_smiles(name, step), *RING_DOUBLE_BONDS]):
        spelling = spelled_with(Chem.MolFromSmiles(smiles), isotope)
        if not same(molecule_arrays(spelling), molecule_arrays(smiles)):
            differing.append((smiles, spelling))
    assert differing == []


def test_drugs_and_natural_products_have_one_graph():
    rows = odd_smiles("rdkit_zinc_natural_50k.smi.gz", 500) + odd_smiles("rdkit_pubchem_hard_set.smi.gz", 12)
    assert spellings_that_differ(rows, 5) == []


RING_STEREO = (
    # RDKit writes two SMILES for spellings of these; reading and writing one more time makes them one
    "O[C@H]1C[C@@]2(SCCS2)CC2(SCCS2)C1",
    "C1[C@@H]2C[C@@H]3C[C@@H]1C[C@H](C2)[C@@]31O[C@]2(CCOCC2)OO1",
    # of these it writes two by turns
    "C1[N@](C)[C@@]2(CC1)[C@@H]1C[C@@H]3C[C@@H]2CC(C1)C3",
    "[C@]12(C(=O)[C@H]3CCN1CC3)CO[C@@]1(CCCCC1)OC2",
    "N[C@@H]1[C@@H]2C[C@H]3C[C@@H](C2)C[C@H]1C3",
    "[C@@H]12C[C@H]3C[C@H](C1)[C@]1(OOCCO1)[C@H](C3)C2",
)
RING_DOUBLE_BONDS = (  # E and Z may change if RDKit removes the hydrogens
    "C1=C/c2ccc(cc2)/C=C\\c2ccc/1cc2",
    "C1CCN2C3=CC=C2C4=CC=C(S4)/C=C\\C5=CC=C(S5)C6=CC=C(N6C1)C7=CC=C(S7)/C=C/C8=CC=C3S8",
)
UNSETTLED = (
    "Cl[C@H]([C@H](Cl)[C@H]1Cl)[C@H](Cl)[C@H](Cl)[C@H]1Cl",
)  # two SMILES, each the canonical of itself


@pytest.mark.parametrize("smiles", RING_STEREO)
def test_stereo_centers_that_depend_on_each_other_have_one_graph(smiles):
    assert spellings_that_differ([smiles], 30) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("rdkit_pubchem_hard_set.smi.gz", 1),
        ("rdkit_rtecs_5000.smi.gz", 2),
        ("rdkit_zinc_natural_50k.smi.gz", 20),
    ],
)
def test_odd_molecules_have_one_graph(name, step):
    rows = [smiles for smiles in odd_smiles(name, step) if is_readable(smiles)]
    assert set(spellings_that_differ(rows, 5)) <= set(UNSETTLED)


def is_readable(smiles):
    try:
        return bool(parse_smiles(smiles))
    except ChemError:
        return False


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
        ("[CH3:1][H:2]", "C"),  # RDKit keeps a hydrogen that has a number
    ],
)
def test_atom_maps_are_not_chemistry(mapped, plain):
    assert same(molecule_arrays(mapped), molecule_arrays(plain))
