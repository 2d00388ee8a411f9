"""Hydrogens and isotopes: one graph, canonical SMILES, descriptors and counts, however they are written."""

import numpy as np
import pytest
from rdkit import Chem, rdBase

from molslice.chem.canonical import canonical_molecule, canonical_order
from molslice.chem.descriptors import descriptors, morgan_counts
from molslice.chem.featurize import ChemError, arrays_by_getters, many_molecule_arrays, molecule_arrays
from molslice.chem.fragments import choose_fragment
from molslice.chem.molblock import molblock_to_smiles
from molslice.chem.neighbors import describe
from molslice.chem.parent import parents
from molslice.chem.scaffold import scaffolds
from molslice.chem.smiles import parse_smiles

SPELLINGS = [  # one compound each; the first has no hydrogens as atoms where that is possible
    ("CO", "[2H]C([2H])([2H])O", "[3H]OC", "[1H]OC", "[H:5]OC", "[2H:5]OC", "[H]OC", "[#1]OC", "[13CH3]O"),
    ("CO", "[2#1]OC", "C[18OH]", "[14C]([2H])([3H])([H])O"),
    ("c1ccccc1", "[2H]c1c([2H])c([2H])c([2H])c([2H])c1[2H]"),
    ("c1cc[nH]c1", "[2H]n1cccc1", "[2H]N1C=CC=C1"),
    ("O", "[2H]O[2H]", "[H]O[H]", "[3H]O", "[18OH2]"),
    ("CC(C)=N", "[H]/N=C(/C)C", "[2H]N=C(C)C"),
    ("CCC(C)=N", "[H]/N=C(/C)CC", "[H]/N=C(\\C)CC", "[3H]/N=C(\\C)CC"),  # only the hydrogen has stereo
    ("CC=N", "C/C=N/[H]", "C/C=N\\[H]"),
    ("C=CF", "[H]/C=C/F", "[H]/C=C\\F", "[2H]/C=C/F"),
    ("CN=N", "[2H]/N=N/C"),
    ("C/C=C\\C", "[2H]/C(C)=C/C", "C/C([2H])=C(/[2H])C", "[H]/C(C)=C/C", "C/C=C(/[H])C"),  # it has others
    ("C/C=C/C", "[2H]/C(C)=C\\C", "C/C([2H])=C([2H])/C"),
    ("C/C=N/O", "[2H]O/N=C/C"),
    ("CCO", "C[C@H]([2H])O", "C[C@@H]([2H])O", "C[C@@]([2H])([3H])O"),
    ("CC(C)O", "C[C@H](O)C([2H])([2H])[2H]", "[13CH3][C@H](O)C"),
    ("C[C@H](O)F", "C[C@]([2H])(O)F", "[2H][C@@](C)(O)F", "[H][C@@](C)(O)F"),
    ("[NH4+]", "[2H][N+]([2H])([2H])[2H]"),
    ("[BH4-]", "[H][B-]([H])([H])[H]", "[2H][B-]([2H])([2H])[2H]"),
    ("[AlH4-].[Li+]", "[Al-]([2H])([2H])([2H])[2H].[Li+]"),
    ("[H][H]", "[HH]", "[2H][H]", "[2H][2H]", "[H:1][H:2]", "[3HH]"),
    ("[H+]", "[2H+]", "[H+:1]"),
    ("[H-]", "[2H-]"),
    ("[H-].[Li+]", "[2H-].[Li+]", "[7Li+].[H-]"),
    ("Cl.[H][H]", "[HH].[2H]Cl"),
    ("[Cl-].[H+]", "[2H+].[Cl-]"),
    ("[H]", "[2H]", "[1H]"),
    ("[CH2]", "[2H][CH]"),
    ("[*H]", "[H]*", "[H][*:1]", "[2H]*"),
    ("*C", "[1*]C", "[*:1]C"),
    ("[H-][Fe]", "[2H-][Fe]"),  # without the hydride its charge would be lost
    ("[FeH]", "[2H][Fe]", "[H][Fe]"),
]
PAIRS = [(plain, other) for plain, *others in SPELLINGS for other in others]


@pytest.mark.parametrize(("plain", "other"), PAIRS)
def test_a_compound_has_one_form(plain, other):
    one, two = canonical_molecule(plain), canonical_molecule(other)
    assert one.smiles == two.smiles == plain_canonical(plain)
    np.testing.assert_array_equal(descriptors(one.mol), descriptors(two.mol))
    np.testing.assert_array_equal(morgan_counts(one.mol), morgan_counts(two.mol))
    for arrays in (molecule_arrays(other), arrays_by_getters(two.mol), last_row(other)):
        np.testing.assert_array_equal(arrays.atoms, molecule_arrays(plain).atoms)
        np.testing.assert_array_equal(arrays.bonds, molecule_arrays(plain).bonds)
    assert describe(plain)[2:] == describe(other)[2:]
    assert parents([plain]) == parents([other])
    assert scaffolds([plain]) == scaffolds([other])
    mixture = choose_fragment(f"{other}.[He]", "largest")
    assert (
        canonical_molecule(mixture).smiles
        == canonical_molecule(choose_fragment(f"{plain}.[He]", "largest")).smiles
    )


def plain_canonical(smiles):
    """Write the canonical SMILES of a SMILES that has no hydrogens, or those that stay."""
    return Chem.MolToSmiles(Chem.MolFromSmiles(Chem.CanonSmiles(smiles)))


def last_row(smiles):
    found = many_molecule_arrays(["CCO", smiles])
    return found._replace(atoms=found.atoms[3:], bonds=found.bonds[2:])


@pytest.mark.parametrize(("plain", "other"), PAIRS)
def test_the_order_leads_to_the_atoms_that_are_no_hydrogens(plain, other):
    mol, canonical = parse_smiles(other), canonical_molecule(other).mol
    symbols = [atom.GetSymbol() for atom in mol.GetAtoms()]
    assert [symbols[place] for place in canonical_order(other)] == [
        atom.GetSymbol() for atom in canonical.GetAtoms()
    ]
    assert mol.GetNumAtoms() == parse_smiles(plain).GetNumAtoms()


def test_atoms_keep_their_order():
    mol = parse_smiles("[2H]OC([2H])(F)[C@@]([3H])(Cl)Br")
    assert [atom.GetSymbol() for atom in mol.GetAtoms()] == ["O", "C", "F", "C", "Cl", "Br"]
    assert [atom.GetTotalNumHs() for atom in mol.GetAtoms()] == [1, 1, 0, 1, 0, 0]
    assert Chem.MolToSmiles(mol) == Chem.CanonSmiles("OC([H])(F)[C@@]([H])(Cl)Br")


def test_hydrogens_do_not_count_as_atoms():
    perdeuterated = "[2H]C([2H])([2H])" + "C([2H])([2H])" * 254 + "C([2H])([2H])[2H]"
    assert len(molecule_arrays(perdeuterated).atoms) == 256
    assert len(molecule_arrays("[2H]C([2H])([2H])O", max_atoms=2).atoms) == 2
    with pytest.raises(ChemError, match="3 atoms"):
        molecule_arrays("[2H]OCC", max_atoms=2)


def test_the_input_order_has_the_hydrogens_of_ogb():
    assert len(molecule_arrays("[2H]OC", atom_order="input").atoms) == 3
    assert len(molecule_arrays("[H]/N=C(/C)CC", atom_order="input").atoms) == 6
    assert len(molecule_arrays("[HH]", atom_order="input").atoms) == 1
    found = many_molecule_arrays(["[2H]OC", "[2H]O[2H]"], atom_order="input")
    assert found.atom_counts.tolist() == [3, 3]


@pytest.mark.parametrize("smiles", ["[H]1[BH2][H][BH2]1", "[2H]=C", "[2H][2H]C", "[2H]C(", "[2H]c1cccc1"])
def test_what_cannot_be_read_has_a_reason(smiles):
    with pytest.raises(ChemError):
        molecule_arrays(smiles)
    assert list(many_molecule_arrays(["C", smiles]).errors) == [1]


def test_a_connection_table_with_hydrogens_is_the_same_compound():
    for text, plain in (("[2H]C([2H])([2H])O", "CO"), ("C[C@]([2H])(O)F", "C[C@H](O)F"), ("[H]O[H]", "O")):
        keep = Chem.SmilesParserParams()
        keep.removeHs = False
        with rdBase.BlockLogs():
            block = Chem.MolToMolBlock(Chem.AddHs(Chem.MolFromSmiles(text, keep)))
        assert canonical_molecule(molblock_to_smiles(block)).smiles == plain
