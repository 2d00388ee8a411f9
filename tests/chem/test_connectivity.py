"""Tests of the skeleton that is the same for all forms of a molecule."""

import pytest
from rdkit import Chem

from molslice.chem.connectivity import connectivity, main_connectivity


def named(name, smiles):
    return name(Chem.MolFromSmiles(smiles))


@pytest.mark.parametrize("name", [connectivity, main_connectivity])
@pytest.mark.parametrize(
    "forms",
    [
        ("CC(=O)CC(C)=O", "CC(O)=CC(C)=O"),
        ("C[C@H](N)C(=O)O", "C[C@@H]([NH3+])C(=O)[O-]", "[2H]C([2H])([2H])C(N)C(O)=O"),
        ("Oc1ccccn1", "O=c1cccc[nH]1"),
        ("C/C=C/C", "C/C=C\\C"),
    ],
)
def test_forms_of_one_molecule_share_their_skeleton(name, forms):
    assert len({named(name, form) for form in forms}) == 1
    assert named(name, forms[0]) != named(name, "CCCCCl")


def test_another_place_of_an_atom_is_another_skeleton():
    assert len({named(connectivity, smiles) for smiles in ("CCCN", "CC(C)N", "CCNC", "CCCO")}) == 4


def test_a_salt_has_the_main_skeleton_of_its_parent():
    salts = ["CCN", "CC[NH3+].[Cl-]", "CC[NH3+].CC[NH3+].[O-]S(=O)(=O)[O-].CCN.CCCCCN"]
    assert named(main_connectivity, salts[0]) == named(main_connectivity, salts[1])
    assert named(connectivity, salts[0]) != named(connectivity, salts[1])
    assert named(main_connectivity, salts[2]) == named(main_connectivity, "CCCCCN")


def test_of_equally_large_fragments_the_order_in_the_text_does_not_matter():
    assert named(main_connectivity, "CCN.CCO") == named(main_connectivity, "OCC.NCC")


def test_a_molecule_without_heavy_atoms_has_no_skeleton():
    assert named(main_connectivity, "[H][H]") == named(connectivity, "[H][H]") == ""
