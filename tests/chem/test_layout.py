import numpy as np
import pytest

from molslice.chem.featurize import ChemError, molecule_arrays
from molslice.chem.layout import depict, skeleton
from molslice.types import MoleculeArrays, MolsliceError
from tests.data.molecules.builders import SMILES
from tests.inference.models import embedded_smiles
from tests.real_data import odd_smiles


@pytest.mark.parametrize("order", ["canonical", "input"])
def test_atoms_and_bonds_are_those_of_the_arrays(order):
    covered = 0
    for smiles in embedded_smiles(150):
        arrays = molecule_arrays(smiles, atom_order=order)
        drawn = depict(arrays)
        assert np.array_equal(drawn.bonds, arrays.bonds[:, :2])
        assert drawn.positions.shape == (len(arrays.atoms), 2)
        lengths = np.linalg.norm(np.subtract(*drawn.positions[drawn.bonds].transpose(1, 0, 2)), axis=1)
        assert np.median(lengths) == pytest.approx(1.5, abs=0.05)
        apart = np.linalg.norm(drawn.positions[:, None] - drawn.positions, axis=-1)
        covered += apart[~np.eye(len(apart), dtype=bool)].min() < 0.3
    assert covered <= 1  # atoms upon each other, as RDKit draws one bridged ring system among these


def test_labels_and_orders():
    drawn = depict(molecule_arrays("C[NH2+]CC(=O)[O-]", atom_order="input"))
    assert drawn.labels == ("", "NH2+", "", "", "O", "O-")
    assert drawn.orders.tolist() == [1, 1, 1, 2, 1]
    ring = depict(molecule_arrays("c1cc[nH]c1C#N", atom_order="input"))
    assert ring.labels == ("", "", "", "NH", "", "", "N")
    assert sorted(ring.orders.tolist()) == [1, 1.5, 1.5, 1.5, 1.5, 1.5, 3]
    assert depict(molecule_arrays("C")).labels == ("CH4",)
    assert depict(molecule_arrays("[Na+].[Cl-]", atom_order="input")).labels == ("Na+", "Cl-")
    assert depict(molecule_arrays("[Fe+3]")).labels == ("Fe+3",)
    assert depict(molecule_arrays("*C", atom_order="input")).labels[0].startswith("*")


def test_a_triple_bond_is_straight():
    a, b, c, d = depict(molecule_arrays("CC#CC", atom_order="input")).positions
    assert np.cross(b - a, d - a) == pytest.approx(0, abs=1e-6)
    assert np.linalg.norm(c - a) > np.linalg.norm(b - a)


def test_the_same_arrays_give_the_same_drawing():
    arrays = molecule_arrays(SMILES[6])
    assert np.array_equal(depict(arrays).positions, depict(arrays).positions)


def test_odd_molecules_are_drawn():
    drawn = 0
    for smiles in odd_smiles("rdkit_should_parse.smi.gz") + odd_smiles("rdkit_pubchem_hard_set.smi.gz", 200):
        try:
            arrays = molecule_arrays(smiles)
        except ChemError:
            continue
        assert np.isfinite(depict(arrays).positions).all()
        drawn += 1
    assert drawn > 20


def test_nothing_is_refused():
    with pytest.raises(MolsliceError, match="without atoms"):
        depict(MoleculeArrays(np.empty((0, 9), np.uint8), np.empty((0, 5), np.uint8)))


def test_a_carbon_at_the_end_of_a_chain_has_no_label():
    assert depict(molecule_arrays("CC")).labels == ("", "")
    assert depict(molecule_arrays("C.CO")).labels == ("CH4", "", "OH")


def test_a_charge_beyond_the_vocabulary_is_not_drawn():
    assert [atom.GetFormalCharge() for atom in skeleton(molecule_arrays("[Fe+6]")).GetAtoms()] == [0]
    assert [atom.GetFormalCharge() for atom in skeleton(molecule_arrays("[Fe+5]")).GetAtoms()] == [5]
