"""Descriptors, counts, canonical SMILES and scaffolds of many SMILES."""

import numpy as np
import pytest

from molslice.chem.canonical import canonical_molecule
from molslice.chem.descriptors import descriptors, morgan_counts
from molslice.chem.featurize import canonical_arrays, many_molecule_arrays
from molslice.chem.parent import parents
from molslice.chem.scaffold import scaffolds
from molslice.data.molecules.describe import DescribedMolecules, MoleculeDescriber
from molslice.files.tables import Unreadable
from tests.real_data import embedded_smiles

BAD = ["C(C", Unreadable("the row has too few cells")]


@pytest.fixture(scope="module")
def smiles():
    return [*embedded_smiles()[::700], *BAD]


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_are_described_in_order(smiles, workers):
    with MoleculeDescriber(workers, with_groups=True) as describer:
        parts = list(describer.read([smiles[:7], smiles[7:]]))
    assert [len(part) for part in parts] == [7, len(smiles) - 7]
    found, good = DescribedMolecules.concatenate(parts), len(smiles) - len(BAD)
    expected = [canonical_molecule(text) for text in smiles[:good]]
    np.testing.assert_array_equal(found.descriptors[:good], [descriptors(each.mol) for each in expected])
    np.testing.assert_array_equal(found.counts[:good], [morgan_counts(each.mol) for each in expected])
    assert found.canonical[:good] == [each.smiles for each in expected]
    assert found.scaffolds[:good] == scaffolds(found.canonical[:good])
    assert found.parents[:good] == parents(found.canonical[:good])
    assert found.parents[good:] == [""] * len(BAD)
    assert found.errors[:good] == [None] * good


def test_a_row_that_cannot_be_read_has_a_reason(smiles):
    with MoleculeDescriber() as describer:
        (found,) = describer.read([smiles])
    assert [reason is None for reason in found.errors] == [True] * (len(smiles) - 2) + [False] * 2
    assert found.errors[-1] == "the row has too few cells"
    assert np.isnan(found.descriptors[-2:]).all()
    assert not found.counts[-2:].any()
    assert found.canonical[-2:] == ["", ""]
    assert found.scaffolds == found.parents == [""] * len(smiles)  # not asked for


def test_taken_rows_are_those_of_all_fields(smiles):
    with MoleculeDescriber(with_groups=True) as describer:
        (found,) = describer.read([smiles])
    rows = np.array([3, 0, len(smiles) - 1])
    taken = found.take(rows)
    for field in ("descriptors", "counts"):
        np.testing.assert_array_equal(getattr(taken, field), getattr(found, field)[rows])
    for field in ("canonical", "scaffolds", "parents", "errors"):
        assert getattr(taken, field) == [getattr(found, field)[row] for row in rows]


def test_kept_molecules_have_the_arrays_of_their_smiles(smiles):
    with MoleculeDescriber(with_binaries=True) as describer:
        (found,) = describer.read([smiles])
    rows = np.array([5, len(smiles) - 1, 2])
    taken = found.take(rows)
    arrays = canonical_arrays(taken.canonical, taken.binaries)
    expected = many_molecule_arrays(taken.canonical)  # "" has no atoms
    for name in ("atoms", "bonds", "atom_counts", "bond_counts"):
        np.testing.assert_array_equal(getattr(arrays, name), getattr(expected, name))
    assert arrays.atom_counts[1] == 0
    assert DescribedMolecules.concatenate([found, taken]).binaries == [*found.binaries, *taken.binaries]


def test_no_rows_are_no_rows():
    empty = DescribedMolecules.concatenate([])
    assert len(empty) == 0
    assert empty.descriptors.shape[1] > 100
    assert empty.counts.shape == (0, 2048)
