"""SMILES to arrays: equal to OGB's, independent of the spelling, with errors for invalid input."""

import re

import numpy as np
import pytest
from rdkit import Chem, rdBase

from molslice.chem.canonical import canonical_molecule
from molslice.chem.featurize import ChemError, arrays_by_getters, molecule_arrays
from molslice.data.molecules.leaderboard import import_ogb
from molslice.types import MolsliceError
from tests.real_data import embedded_smiles, odd_smiles

ODD_FILES = (
    "rdkit_pubchem_100k.smi.gz",
    "rdkit_zinc_natural_50k.smi.gz",
    "nextmove_chembl_47k.smi.gz",
    "rdkit_rtecs_5000.smi.gz",
    "rdkit_pubchem_hard_set.smi.gz",
    "rdkit_should_parse.smi.gz",
)


def same_as_ogb(arrays, smiles):
    graph = import_ogb("ogb.utils").smiles2graph(smiles)
    return (
        arrays.atoms.dtype == arrays.bonds.dtype == np.uint8
        and np.array_equal(arrays.atoms, graph["node_feat"])
        and np.array_equal(arrays.bonds[:, :2], graph["edge_index"][:, ::2].T)
        and np.array_equal(arrays.bonds[:, 2:], graph["edge_feat"][::2])
    )


def canonical_smiles(smiles):
    if re.search(r"\[\d|\[H(?![a-z])", smiles):  # see test_hydrogens
        return canonical_molecule(smiles).smiles
    mol = Chem.MolFromSmiles(smiles)
    for atom in mol.GetAtoms():
        atom.SetAtomMapNum(0)
    return Chem.MolToSmiles(mol)


def check_rows(rows):
    """Check that both orders equal OGB's graph, and that only SMILES invalid for RDKit are rejected."""
    accepted = 0
    with rdBase.BlockLogs():
        for smiles in rows:
            try:
                arrays = molecule_arrays(smiles, atom_order="input")
            except ChemError:
                assert Chem.MolFromSmiles(smiles) is None, smiles
                continue
            assert same_as_ogb(arrays, smiles), smiles
            assert same_as_ogb(molecule_arrays(smiles), canonical_smiles(smiles)), smiles
            accepted += 1
    return accepted


def test_embedded_molecules_equal_ogbs():
    rows = embedded_smiles()[::14]
    assert check_rows(rows) == len(rows) > 1000


@pytest.mark.exhaustive
def test_all_embedded_molecules_equal_ogbs():
    rows = embedded_smiles()
    assert check_rows(rows) == len(rows) >= 13_000


@pytest.mark.parametrize("name", ODD_FILES)
def test_odd_molecules_equal_ogbs(name):
    rows = odd_smiles(name)
    rows = rows[:: max(1, len(rows) // 150)]
    assert check_rows(rows) >= 0.99 * len(rows)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ODD_FILES)
def test_all_odd_molecules_equal_ogbs(name):
    rows = odd_smiles(name)
    assert check_rows(rows) >= 0.99 * len(rows)


@pytest.mark.parametrize(
    "smiles",
    [
        "[Na+].[Cl-]",  # a salt
        "[NH3+]CC([O-])=O",
        "[13CH4]",
        "[2H]O[2H]",
        "[H]/N=C(/C)CC",
        "[HH]",
        "[CH3]",  # a radical
        "[O][O]",
        "*c1ccccc1*",
        "[Fe+2].c1cc[cH-]c1.c1cc[cH-]c1",
        "N->[Pt](Cl)(Cl)<-N",
        "C$C",
        "[H][H]",
        "[H+]",
        "[U]",
        "[Og]",
        "[Fe@OH10](F)(Cl)(Br)(N)(O)C",
        "F[P-](F)(F)(F)(F)F",
        "F/C=C\\F",
        "C/C=N/O",
        "[Fe+6]",  # a charge beyond the vocabulary
        "[CH2]C |^1:0|",
    ],
)
def test_unusual_molecules_go_through(smiles):
    assert check_rows([smiles]) == 1


def test_values_beyond_the_vocabulary_are_its_last_entries():
    atom = molecule_arrays("[Fe+6]").atoms[0]
    assert atom[3] == 11
    assert molecule_arrays("*").atoms[0, 0] == 118
    assert molecule_arrays("C$C").bonds[0, 2] == 4


def test_an_atropisomer_counts_as_without_stereo_where_ogb_raises():
    mol = Chem.MolFromSmiles("Cc1cccc(O)c1-c1c(C)cccc1Br")
    axis = mol.GetBondBetweenAtoms(7, 8)
    assert not axis.GetIsAromatic()
    axis.SetStereoAtoms(5, 9)
    axis.SetStereo(Chem.BondStereo.STEREOATROPCW)
    assert arrays_by_getters(mol).bonds[axis.GetIdx(), 3] == 0
    with pytest.raises(ValueError, match="not in list"):
        import_ogb("ogb.utils.features").bond_to_feature_vector(axis)


def test_what_must_fail_fails():
    with rdBase.BlockLogs():
        for smiles in odd_smiles("rdkit_should_fail.smi.gz"):
            with pytest.raises(ChemError):
                molecule_arrays(smiles)


def test_the_largest_molecule_fits_into_bytes():
    arrays = molecule_arrays("C" * 256)
    assert arrays.atoms.shape == (256, 9)
    assert arrays.bonds[:, :2].max() == 255


def test_a_single_atom_has_no_bonds():
    assert molecule_arrays("C").bonds.shape == (0, 5)


def test_options_are_checked():
    assert molecule_arrays("CCC", max_atoms=3).atoms.shape == (3, 9)
    with pytest.raises(ChemError, match="3 atoms"):
        molecule_arrays("CCC", max_atoms=2)
    with pytest.raises(MolsliceError, match="between 1 and 256"):
        molecule_arrays("C", max_atoms=257)
    with pytest.raises(MolsliceError, match="canonical, input"):
        molecule_arrays("C", atom_order="random")


def test_rdkit_is_silent_inside_and_as_loud_as_before_outside(capfd):
    with pytest.raises(ChemError):
        molecule_arrays("CO(C)C")
    assert capfd.readouterr().err == ""
    Chem.MolFromSmiles("CO(C)C")
    assert "valence" in capfd.readouterr().err
