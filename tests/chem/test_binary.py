"""Arrays of many molecules from RDKit's binary form: equal to those of its getters."""

import re

import numpy as np
import pytest
from rdkit import Chem, rdBase

from molslice.chem import featurize
from molslice.chem.binary import BONDS, RINGS, read_binaries
from molslice.chem.featurize import ChemError, arrays_by_getters, many_molecule_arrays, molecule_arrays
from molslice.data.molecules.prepare import Featurizing, featurize_chunk
from molslice.files.tables import Unreadable
from molslice.types import MolsliceError
from tests.chem.test_featurize import ODD_FILES
from tests.real_data import embedded_smiles, odd_smiles

UNKNOWN = "*CC"  # a wildcard has another form
MIXED = [
    UNKNOWN,
    "CCO",
    "not one",
    UNKNOWN,
    "c1ccccc1",
    "",
    "C" * 253,
    "[Na+].[Cl-]",
    "C[C@H](N)C(=O)O",
    UNKNOWN,
]


def parsed(texts):
    with rdBase.BlockLogs():
        mols = [Chem.MolFromSmiles(text) for text in texts]
    return [mol for mol in mols if mol is not None and 0 < mol.GetNumAtoms() <= 256]


def check(mols):
    """Check all molecules, and return how many need the getters."""
    found = read_binaries([mol.ToBinary(0) for mol in mols])
    atoms, bonds = (
        np.split(array, np.cumsum(counts)[:-1])
        for array, counts in ((found.atoms, found.atom_counts), (found.bonds, found.bond_counts))
    )
    for mol, count, own_atoms, own_bonds in zip(mols, found.atom_counts, atoms, bonds, strict=True):
        if count:
            expected = arrays_by_getters(mol)
            assert np.array_equal(own_atoms, expected.atoms), Chem.MolToSmiles(mol)
            assert np.array_equal(own_bonds, expected.bonds), Chem.MolToSmiles(mol)
    return int((found.atom_counts == 0).sum())


def test_this_version_of_rdkit_writes_the_known_form():
    assert featurize._binary_is_known()
    assert check(parsed(featurize.CHECKED_SMILES)) == 0


def test_embedded_molecules():
    assert check(parsed(embedded_smiles()[::5])) == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ODD_FILES)
def test_unusual_molecules(name):
    mols = parsed(odd_smiles(name))
    for start in range(0, len(mols), 5000):
        part = mols[start : start + 5000]
        assert check(part) <= 0.02 * len(part) + 5


def test_each_molecule_is_independent_of_the_others():
    texts = ["C1CC1", UNKNOWN, "C" * 250, "C" * 251, "[H][H]", "C", "C1CC2CCC1C2", "C/C=C/C=C/F"]
    mols = parsed(texts)
    assert check(mols) == 2
    assert check(mols[::-1]) == 2
    assert check([mols[0]]) == 0
    assert check([mols[1]]) == 1


def test_a_form_of_another_version_needs_the_getters():
    good = Chem.MolFromSmiles("CCO").ToBinary(0)
    other = bytearray(good)
    other[8] += 1  # the version
    found = read_binaries([bytes(other), good, b"", good[:35]])
    assert found.atom_counts.tolist() == [0, 3, 0, 0]
    assert found.atoms.shape == (3, 9)
    rng = np.random.default_rng(0)
    for _ in range(300):  # damaged data give wrong or no arrays, but no exception and no endless loop
        odd = np.frombuffer(good, np.uint8).copy()
        odd[rng.integers(28, len(odd), 3)] = rng.integers(0, 256, 3)
        found = read_binaries([odd.tobytes(), good])
        assert found.atom_counts[1] == 3
        assert len(found.atoms) == found.atom_counts.sum()
        assert len(found.bonds) == found.bond_counts.sum()


@pytest.mark.parametrize("marker", [BONDS, RINGS])
def test_a_form_without_a_marker_needs_the_getters(marker):
    good = Chem.MolFromSmiles("CCO").ToBinary(0)
    (place,) = [place for place in range(30, len(good)) if good[place] == marker]
    other = good[:place] + bytes([marker + 1]) + good[place + 1 :]
    assert read_binaries([good, other, good]).atom_counts.tolist() == [3, 0, 3]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("order", featurize.ATOM_ORDERS)
def test_many_rows_are_each_row(order, known, monkeypatch):
    monkeypatch.setattr(featurize, "_binary_is_known", lambda: known)
    for texts in (MIXED, MIXED[::-1], [UNKNOWN], ["x"], [], embedded_smiles()[:50]):
        found = many_molecule_arrays(texts, atom_order=order)
        assert (found.atoms.dtype, found.bonds.dtype) == (np.uint8, np.uint8)
        atom_ends, bond_ends = found.atom_counts.cumsum(), found.bond_counts.cumsum()
        for row, text in enumerate(texts):
            atoms = found.atoms[atom_ends[row] - found.atom_counts[row] : atom_ends[row]]
            bonds = found.bonds[bond_ends[row] - found.bond_counts[row] : bond_ends[row]]
            if row in found.errors:
                assert not len(atoms)
                with pytest.raises(ChemError, match=f"^{re.escape(found.errors[row])}$"):
                    molecule_arrays(text, atom_order=order)
                continue
            expected = molecule_arrays(text, atom_order=order)
            np.testing.assert_array_equal(atoms, expected.atoms)
            np.testing.assert_array_equal(bonds, expected.bonds)


def test_an_exception_of_rdkit_is_the_reason_of_its_row(monkeypatch):
    def fail(mol, smiles):
        raise RuntimeError("Invariant Violation\nat line 1")

    monkeypatch.setattr(featurize, "canonical_unguarded", fail)
    found = many_molecule_arrays(["C", "x"])
    assert found.errors == {
        0: "RDKit cannot read it: Invariant Violation",
        1: "not valid SMILES: unknown symbol 'x' at position 1",
    }
    with pytest.raises(MolsliceError, match="atom_order must be one of"):
        many_molecule_arrays(["C"], atom_order="random")


def test_a_chunk_keeps_the_reason_of_an_unreadable_cell():
    targets = np.array([[1.0], [2.0], [3.0]], np.float32)
    store = featurize_chunk(["CO", Unreadable("2 cells"), "bad"], targets, Featurizing())
    assert store.errors == {1: "2 cells", 2: "not valid SMILES: unknown symbol 'a' at position 2"}
    assert store.num_atoms.tolist() == [2, 0, 0]
    np.testing.assert_array_equal(store.targets, targets)
