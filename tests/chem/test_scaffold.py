"""Bemis-Murcko scaffolds."""

import pytest
from rdkit import Chem
from rdkit.Chem.Scaffolds import MurckoScaffold

from molslice.chem.featurize import molecule_arrays
from molslice.chem.scaffold import scaffold_groups, scaffolds, scaffolds_of_arrays
from tests.real_data import embedded_smiles


def test_scaffolds_keep_rings_and_linkers():
    found = scaffolds(["CCO", "Cc1ccccc1", "CCOc1ccccc1", "c1ccccc1Cc1ccccc1C", "C[C@H]1CCCO1"])
    assert found == ["", "c1ccccc1", "c1ccccc1", "c1ccc(Cc2ccccc2)cc1", "C1CCOC1"]


def test_what_cannot_be_read_has_no_scaffold(capfd):
    unreadable = [
        "XXX",
        "",
        None,
        float("nan"),
        b"c1ccccc1",
        "CO(C)C",
        "a\0b",
        "c1ccccc1 benzene",
        "c1ccccc1\u0441",
    ]
    assert scaffolds(unreadable) == [""] * len(unreadable)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("smiles", "scaffold"),
    [
        ("C1CC[C@H]2CCCC[C@H]2C1", "C1CCC2CCCCC2C1"),
        ("c1ccccc1/C=C/c1ccccc1", "C(=Cc1ccccc1)c1ccccc1"),
        ("[13cH]1ccccc1C", "c1ccccc1"),
        ("[cH:1]1ccccc1C", "c1ccccc1"),
    ],
)
def test_stereo_isotopes_and_atom_maps_make_no_other_scaffold(smiles, scaffold):
    assert scaffolds([smiles]) == [scaffold]


def spellings(smiles):
    mol = Chem.MolFromSmiles(smiles)
    yield smiles
    yield Chem.MolToSmiles(mol, allHsExplicit=True)
    yield Chem.MolToSmiles(Chem.AddHs(mol))
    yield from Chem.MolToRandomSmilesVect(mol, 3, randomSeed=11)
    for atom in mol.GetAtoms():
        atom.SetAtomMapNum(atom.GetIdx() + 1)
    yield Chem.MolToSmiles(mol)


@pytest.mark.parametrize(
    ("smiles", "scaffold"),
    [
        ("CC=C1CCCCC1", "C=C1CCCCC1"),
        ("CN=C1CCCCC1", "N=C1CCCCC1"),
        ("CC(=C1CCCC1)c1ccccc1", "C(=C1CCCC1)c1ccccc1"),
        ("CC[C@H]1CCCC1=NO", "N=C1CCCC1"),
        ("CC=[N+]1CCCC1", "C=[N+]1CCCC1"),
    ],
)
def test_a_scaffold_does_not_depend_on_the_spelling(smiles, scaffold):
    written = list(spellings(smiles))
    assert scaffolds(written) == [scaffold] * len(written)
    assert scaffolds_of_arrays([molecule_arrays(smiles)]) == [scaffold]


def test_scaffolds_of_data_do_not_depend_on_the_spelling():
    for smiles in embedded_smiles()[::150]:
        assert len(set(scaffolds(spellings(smiles)))) == 1


@pytest.mark.parametrize("error", [RuntimeError, ValueError])
def test_a_scaffold_that_rdkit_cannot_make_is_empty(error, monkeypatch):
    def fail(**_):
        raise error("broken")

    monkeypatch.setattr(MurckoScaffold, "MurckoScaffoldSmiles", fail)
    assert scaffolds(["c1ccccc1"]) == [""]


def test_a_large_molecule_has_no_scaffold():
    """RDKit needs a minute for a chain of 2,000 atoms, which exceeds the limit of a store."""
    small, large = scaffolds(["C1CC1" + "C" * 253, "C1CC1" + "C" * 254])
    assert (small, large) == ("C1CC1", "")


def test_each_molecule_is_in_one_group_of_scaffolds():
    found = scaffolds(["CCO", "Cc1ccccc1", "C1CCCC1C", "c1ccccc1"])
    groups = scaffold_groups(found, scaffolds(["c1ccccc1O", "CCC"]))
    assert {name: own.tolist() for name, own in groups.items()} == {
        "known scaffold": [False, True, False, True],
        "new scaffold": [False, False, True, False],
        "no rings": [True, False, False, False],
    }
