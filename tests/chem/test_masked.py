import numpy as np
import pytest

from molslice.chem.masked import MaskableMolecule
from molslice.chem.smiles import parse_smiles
from tests.explanation.models import ODD
from tests.inference.models import embedded_smiles


def canonical(smiles):
    from rdkit import Chem

    return Chem.MolToSmiles(parse_smiles(smiles))


@pytest.mark.parametrize(
    ("smiles", "groups", "without"),
    [
        ("CCCO", [[3]], ["CCCC"]),
        ("CC(=O)OC", [[1, 2], [3]], ["CC(C)OC", "CCC(C)=O"]),
        ("CC#N", [[1, 2]], ["CCC"]),
        ("C[N+](=O)[O-]", [[1, 2, 3]], ["CC(C)C"]),
        ("CS(=O)(=O)N", [[1, 2, 3], [4]], ["CC(C)(C)N", "CS(C)(=O)=O"]),
        ("C=CC=C", [[0, 1], [2, 3]], ["C=CCC", "C=CCC"]),
        ("c1ccncc1", [[0, 1, 2, 4, 5], [3]], ["C1CCCCC1", "c1ccccc1"]),
        ("c1ccoc1", [[0, 1, 2, 4], [3]], ["C1CCCC1", "C1CCCC1"]),
        ("c1cc[nH]c1", [[0, 1, 2, 4], [3]], ["C1CCCC1", "C1CCCC1"]),
        ("c1nc[nH]c1", [[0, 2, 4], [1], [3]], ["C1CCCC1", "c1cc[nH]c1", "C1CCCC1"]),
        ("c1ccc2[nH]ccc2c1", [[0, 1, 2, 3, 5, 6, 7, 8], [4]], ["C1CCC2CCCC2C1", "c1ccc2c(c1)CCC2"]),
        ("O=c1cccc[nH]1", [[0, 1], [2, 3, 4, 5], [6]], ["CC1CCCCC1", "O=C1CCCCC1", "O=C1CCCCC1"]),
        ("[O-][n+]1ccccc1", [[0, 1], [2, 3, 4, 5, 6]], ["Cc1ccccc1", "CC1CCCCC1"]),
        ("FS(F)(F)(F)(F)F", [[k] for k in (0, 2, 3, 4, 5, 6)], None),  # sulfur stays
        ("[Na+].[Cl-]", [[0], [1]], ["C.[Cl-]", "C.[Na+]"]),
        ("C[C@H](F)Cl", [[1], [2], [3]], ["CC(F)Cl", "CC(C)Cl", "CC(C)F"]),
    ],
)
def test_groups_are_masked_together(smiles, groups, without):
    molecule = MaskableMolecule(smiles)
    assert [list(group) for group in molecule.groups] == groups
    if without is not None:
        masks = ~np.eye(len(groups), dtype=bool)
        assert [canonical(molecule.masked(mask)) for mask in masks] == [canonical(text) for text in without]


@pytest.mark.parametrize("smiles", ["O=C(O)c1ccccc1", "Cn1c(=O)c2c(ncn2C)n(C)c1=O", "C[N+](C)(C)CC(=O)[O-]"])
def test_the_baseline_is_the_saturated_hydrocarbon(smiles):
    molecule = MaskableMolecule(smiles)
    mol = parse_smiles(molecule.masked(np.zeros(len(molecule.groups), bool)))
    assert mol.GetNumAtoms() == molecule.num_atoms
    assert {(atom.GetAtomicNum(), atom.GetFormalCharge()) for atom in mol.GetAtoms()} == {(6, 0)}
    assert {str(bond.GetBondType()) for bond in mol.GetBonds()} == {"SINGLE"}


def test_every_choice_of_visible_atoms_is_a_molecule():
    generator = np.random.default_rng(0)
    whole = r"CC(C)/N=c/1\cc-2n(c3ccccc3nc2cc1Nc4ccc(cc4)Cl)c5ccc(cc5)Cl"  # aromatic only as a whole
    for smiles in [*embedded_smiles(60), *ODD, "c1ccc2cccc-2cc1", "c1cc2ccccn2c1", whole]:
        molecule = MaskableMolecule(smiles)
        count = len(molecule.groups)
        assert canonical(molecule.masked(np.ones(count, bool))) == canonical(smiles)
        for share in np.linspace(0, 0.9, 10):
            assert parse_smiles(molecule.masked(generator.random(count) < share)).GetNumAtoms()


def test_the_order_of_the_atoms_changes_nothing():
    one, two = MaskableMolecule("OC(=O)c1ccncc1"), MaskableMolecule("n1ccc(cc1)C(O)=O")
    choices = np.array([[n >> k & 1 for k in range(4)] for n in range(16)], bool)
    masked = [{canonical(molecule.masked(mask)) for mask in choices} for molecule in (one, two)]
    assert masked[0] == masked[1]


def test_a_group_has_the_name_of_what_it_is_in():
    molecule = MaskableMolecule("CC(=O)Nc1ccc(Cl)nc1[C@H](F)CO")
    names = [molecule.name(group) for group in molecule.groups]
    assert names == ["CC(N)=O", "cNC=O", "c1ccncc1", "cCl", "cnc", "", "CF", "CO"]
