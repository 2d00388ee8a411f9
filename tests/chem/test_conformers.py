"""Coordinates of a conformer: in the order of the arrays, the same for all spellings, NaN where unknown."""

import numpy as np
import pytest
from rdkit import Chem

from molslice.chem import conformers
from molslice.chem.canonical import canonical_molecule
from molslice.chem.conformers import coordinates
from molslice.chem.featurize import molecule_arrays


def embedded(smiles):
    return coordinates(smiles, len(molecule_arrays(smiles).atoms))


def test_bonded_atoms_are_as_far_apart_as_bonds_are_long():
    smiles = "CC(=O)Oc1ccccc1C(=O)O"
    positions = embedded(smiles).astype(float)
    for bond in canonical_molecule(smiles).mol.GetBonds():
        length = np.linalg.norm(positions[bond.GetBeginAtomIdx()] - positions[bond.GetEndAtomIdx()])
        assert 1.15 < length < 1.6
    for begin, end, *_ in molecule_arrays(smiles).bonds.tolist():
        assert np.linalg.norm(positions[begin] - positions[end]) < 1.6
    apart = np.linalg.norm(positions[:, None] - positions, axis=-1)
    assert apart.max() > 4.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CC(=O)Oc1ccccc1C(=O)O", "OC(=O)c1ccccc1OC(C)=O"),
        ("C[C@H](N)C(=O)O", "[CH3:3][C@H](N)C(=O)O"),
        ("[2H]OCC", "CCO"),
        ("c1ccccc1[O-].[Na+]", "[Na+].[O-]c1ccccc1"),
    ],
)
def test_all_spellings_have_the_same_coordinates(one, other):
    np.testing.assert_array_equal(embedded(one), embedded(other))


def test_stereo_centers_differ():
    one, other = embedded("C[C@H](N)C(=O)O").astype(float), embedded("C[C@@H](N)C(=O)O").astype(float)

    def volume(positions):
        return np.sign(np.linalg.det(positions[1:4] - positions[0]))

    chiral = [canonical_molecule(text).mol for text in ("C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O")]
    assert [atom.GetAtomicNum() for atom in chiral[0].GetAtoms()] == [
        atom.GetAtomicNum() for atom in chiral[1].GetAtoms()
    ]
    center = next(atom.GetIdx() for atom in chiral[0].GetAtoms() if atom.GetDegree() == 3)
    around = [atom.GetIdx() for atom in chiral[0].GetAtomWithIdx(center).GetNeighbors()]
    assert volume(one[[center, *around]]) == -volume(other[[center, *around]]) != 0


def test_only_the_largest_fragment_of_a_mixture_has_coordinates():
    smiles = "c1ccccc1[O-].[Na+]"
    known = np.isfinite(embedded(smiles)).all(1)
    mol = canonical_molecule(smiles).mol
    assert known.tolist() == [atom.GetSymbol() != "Na" for atom in mol.GetAtoms()]


def test_unknown_positions_are_nan(monkeypatch):
    assert np.isnan(embedded("C" * (conformers.MOST_ATOMS + 1))).all()
    assert np.isfinite(embedded("*C")).all()
    monkeypatch.setattr(conformers.rdDistGeom, "EmbedMolecule", lambda mol, parameters: -1)
    assert np.isnan(embedded("CCO")).all()

    def fail(mol, parameters):
        raise RuntimeError("no bounds")

    monkeypatch.setattr(conformers.rdDistGeom, "EmbedMolecule", fail)
    positions = embedded("CCO")
    assert positions.shape == (3, 3)
    assert positions.dtype == np.float16
    assert np.isnan(positions).all()


def test_a_molecule_that_cannot_be_embedded_does_not_end_the_preparation():
    smiles = "[Fe+2].[cH-]1cccc1.[cH-]1cccc1"
    assert len(embedded(smiles)) == Chem.MolFromSmiles(smiles).GetNumAtoms()
