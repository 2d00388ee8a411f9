"""Wildcards, R-groups and bonds of any order are no molecules."""

import pytest

from molslice.chem.fragments import find_wildcard


@pytest.mark.parametrize(
    "smiles", ["*", "*CC", "[*]CC", "[*:1]CC", "[1*]CC", "[#0]C", "[0*]C", "[*H]", "CC.*", "*CC |$R1;;$|"]
)
def test_wildcards_are_named(smiles):
    assert find_wildcard(smiles) == (
        "wildcard or R-group (*); keep such rows with --wildcards keep (data.wildcards: keep)"
    )


@pytest.mark.parametrize("smiles", ["C~C", "c1ccccc1~C"])
def test_bonds_of_any_order_are_named(smiles):
    assert find_wildcard(smiles) == (
        "bond of any order (~); keep such rows with --wildcards keep (data.wildcards: keep)"
    )


@pytest.mark.parametrize(
    "smiles", ["C", "C$C", "N->[Pt]", "C:C", "[#6]C", "*C(", "", "CC |$*;$|", "[2H]C~[H]"]
)
def test_molecules_and_what_cannot_be_read_are_not(smiles):
    assert find_wildcard(smiles) is None
