"""Tests of molecules rebuilt from their arrays: featurizing their SMILES gives the arrays again."""

import gzip
import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from molslice.chem.featurize import ChemError, molecule_arrays
from molslice.chem.rebuild import rebuild
from molslice.types import MoleculeArrays
from tests.real_data import embedded_smiles, odd_smiles, shared


def comes_back(smiles):
    """Return whether a molecule is rebuilt, without a loss that is reported."""
    arrays = molecule_arrays(smiles)
    rebuilt = rebuild(arrays)
    again = molecule_arrays(rebuilt.smiles)
    same = np.array_equal(again.atoms, arrays.atoms) and np.array_equal(again.bonds, arrays.bonds)
    return same and rebuilt.lost is None


def not_rebuilt(rows):
    return [smiles for smiles in rows if is_readable(smiles) and not comes_back(smiles)]


def is_readable(smiles):
    try:
        return bool(len(molecule_arrays(smiles).atoms))
    except ChemError:
        return False


@pytest.mark.parametrize(
    "smiles",
    [
        "C",
        "CC(=O)Oc1ccccc1C(=O)O",
        "C[C@H](N)C(=O)[O-].[Na+]",
        "C[C@@](F)(Cl)Br",
        "F/C=C/C#N",
        "F/C=C\\Cl",
        "C/C=C/C(/C=C\\C)=C/C",
        "OC(/C=C\\C)(/C=C/C)[C@@H](C)O",  # ranked by the stereo of other bonds
        "C/C=C\\C=N\\O",
        "[CH2]C[CH]",
        "[O][O]",
        "C[S@](=O)c1ccsc1",
        "C[N+](C)(C)C",
        "[2H]OC",
        "[2H]C([2H])([2H])C",
        "C[C@]([2H])(F)Cl",
        "[H][H]",
        "[H-]",
        "[H+]",
        "[NH4+].F[P-](F)(F)(F)(F)F",
        "[Fe+2].[cH-]1cccc1",
        "N->[Pt](<-N)(Cl)Cl",
        "C$C",
        "*C(=O)c1cc[nH]c1",
        "c1ccc2[se]ccc2c1",
        "[O-][Cl+3]([O-])([O-])[O-].[K+]",
        "C[C@H]1CC[C@@H](O)CC1",
        "N[C@@H]1[C@@H]2C[C@H]3C[C@@H](C2)C[C@H]1C3",
        "Cn1c(=O)c2[nH]cnc2n(C)c1=O",
        "[Og]",
        "[Si@](F)(Cl)(Br)C",
    ],
)
def test_one_molecule(smiles):
    assert comes_back(smiles)


def test_atoms_and_bonds_keep_their_order():
    smiles = "OC(=O)[C@H](N)Cc1c[nH]c2ccccc12"
    arrays = molecule_arrays(smiles, atom_order="input")
    rebuilt = rebuild(arrays)
    assert rebuilt.lost is None
    assert [atom.GetSymbol() for atom in rebuilt.mol.GetAtoms()][:6] == ["O", "C", "O", "C", "N", "C"]
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in rebuilt.mol.GetBonds()]
    assert bonds == [tuple(bond) for bond in arrays.bonds[:, :2].tolist()]
    again, expected = molecule_arrays(rebuilt.smiles), molecule_arrays(smiles)
    np.testing.assert_array_equal(again.atoms, expected.atoms)
    np.testing.assert_array_equal(again.bonds, expected.bonds)


@pytest.mark.parametrize("order", ["canonical", "input"])
def test_a_mirror_image_stays_one(order):
    left, right = (
        rebuild(molecule_arrays(smiles, atom_order=order)).smiles
        for smiles in ("C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O")
    )
    assert (left, right) == ("C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O")


@pytest.mark.parametrize(
    ("smiles", "lost"),
    [
        ("[Fe+7]", "the arrays do not determine the charge of atom 0"),
        ("C[Fe@SP1](O)(Cl)F", "the arrays do not determine the chirality of atom 1"),
        ("[2H][C@H]([3H])O", "a SMILES without isotopes does not hold its stereochemistry"),
    ],
)
def test_what_is_lost_is_reported(smiles, lost):
    rebuilt = rebuild(molecule_arrays(smiles, atom_order="input"))
    assert rebuilt.lost == lost
    assert rebuilt.smiles


def test_a_hydrogen_that_is_an_atom_is_deuterium():
    assert rebuild(molecule_arrays("[3H]OC", atom_order="input")).smiles == "[2H]OC"


def test_a_plain_isotope_is_lost_silently():
    assert rebuild(molecule_arrays("[13CH3]O")).smiles == "CO"


def test_a_dative_bond_keeps_its_direction():
    assert rebuild(molecule_arrays("N->[Pt]")).smiles == "[NH3]->[Pt]"
    assert rebuild(molecule_arrays("[Fe]->[Pt]")).smiles == "[Fe]->[Pt]"
    assert rebuild(molecule_arrays("[Pt]->[Fe]")).smiles == "[Fe]<-[Pt]"


def test_arrays_of_no_molecule_are_refused():
    with pytest.raises(ChemError, match="without atoms"):
        rebuild(MoleculeArrays(np.empty((0, 9), np.uint8), np.empty((0, 5), np.uint8)))
    ring = molecule_arrays("c1ccccc1")
    with pytest.raises(ChemError, match="RDKit cannot read it: non-ring atom 0 marked aromatic"):
        rebuild(replace(ring, bonds=ring.bonds[:-1]))
    carbon = molecule_arrays("CC")
    with pytest.raises(ChemError, match="RDKit cannot read it: Explicit valence"):
        rebuild(replace(carbon, bonds=np.array([[0, 1, 2, 0, 0]], np.uint8)))


def test_stereo_without_neighbors_is_reported():
    arrays = molecule_arrays("C=C")
    rebuilt = rebuild(replace(arrays, bonds=np.array([[0, 1, 1, 1, 0]], np.uint8)))
    assert rebuilt.lost == "the arrays do not determine the stereo of bond 0"
    assert rebuilt.smiles == "C=C"


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.exhaustive)], ids=["some", "all"])
def test_the_embedded_data_come_back(step):
    assert not_rebuilt(embedded_smiles()[::step]) == []


@pytest.mark.parametrize(
    ("name", "step"),
    [("rdkit_should_parse", 1), ("rdkit_pubchem_hard_set", 12), ("rdkit_zinc_natural_50k", 400)],
)
def test_odd_molecules_come_back(name, step):
    failed = not_rebuilt(odd_smiles(f"{name}.smi.gz", step))
    # the arrays do not hold the form of other stereocenters
    assert [smiles for smiles in failed if not re.search(r"@(SP|TB|OH)", smiles)] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "step"), [("pubchem_mixed", 60), ("smiles_million", 200), ("zinc250k", 42)])
def test_molecules_of_the_corpus_come_back(name, step):
    with gzip.open(shared("corpus", f"{name}.smi.gz"), "rt") as file:
        rows = [line.split()[0] for line in itertools.islice(file, 0, None, step)]
    assert not_rebuilt(rows) == []
