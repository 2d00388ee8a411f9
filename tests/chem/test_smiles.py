"""SMILES are read completely or rejected before RDKit spends minutes on them."""

import numpy as np
import pytest
from rdkit import Chem

from molslice.chem.featurize import molecule_arrays
from molslice.chem.smiles import ChemError, parse_smiles


@pytest.mark.parametrize(
    ("smiles", "reason"),
    [
        ("", "empty"),
        (" \t", "empty"),
        (None, "no SMILES"),
        (float("nan"), "no SMILES"),
        (7, "not a string but int"),
        (b"CC", "not a string but bytes"),
        (np.str_("C C"), "text after the SMILES: 'C'"),
        ("XXX", "not valid SMILES"),
        ("C1CC", "not valid SMILES"),
        ("CC(", "not valid SMILES"),
        ("(" * 50_000, "not valid SMILES"),
        ("[" * 50_000, "not valid SMILES"),
        ("CO(C)C", "atom 2, O, has valence 3, more than permitted"),
        ("c1cccn1", "kekulize"),
        ("|$_AV:$|", "not valid SMILES"),
        ("CC |foo|", "invalid CXSMILES block"),
        # RDKit gives another molecule for each of these
        ("C C", "text after the SMILES: 'C'"),
        ("CCO ethanol", "text after the SMILES: 'ethanol'"),
        ("CCO\tethanol", "text after the SMILES: 'ethanol'"),
        ("CC |^1:0| name", "text after the SMILES"),
        ("CC |^1:0|^|", "text after the SMILES"),
        ("CC\nO", "invalid character U+000A (newline) at position 3"),
        ("CC\r\nO", "invalid character U+000D (carriage return) at position 3"),
        ("CC\n|^1:0|", "U+000A (newline) at position 3"),
        ("CC |^1:0|\n|^1:1|", "U+000A (newline) at position 10"),
        ("CC\u0441", "U+0441 (CYRILLIC SMALL LETTER ES) at position 3"),
        ("C\u00e9", "U+00E9 (LATIN SMALL LETTER E WITH ACUTE) at position 2"),
        ("\u0421C", "U+0421 (CYRILLIC CAPITAL LETTER ES) at position 1"),
        ("\ufeffCC", "U+FEFF (ZERO WIDTH NO-BREAK SPACE)"),
        ("CC\u200b", "U+200B (ZERO WIDTH SPACE)"),
        ("\u200fCC", "U+200F (RIGHT-TO-LEFT MARK)"),
        ("CC\u00a0", "U+00A0 (NO-BREAK SPACE)"),
        ("CC |$a\u202e;b$|", "U+202E (RIGHT-TO-LEFT OVERRIDE)"),
        ("C |\t^1:0|", "U+0009 (tab) at position 4"),
        ("CC\0", "U+0000 (null character)"),
        ("CC\x0b", "U+000B (control character)"),
        ("CC\x7f", "U+007F (control character)"),
        ("CC\ud800", "U+D800 (unpaired surrogate)"),
        ("[C+300]", "charge of 300"),
        ("C[C-129]", "charge of 129"),
        ("[Fe+128]", "charge of 128"),
        ("[65537C]", "isotope 65537"),
    ],
)
@pytest.mark.parametrize("atom_order", ["canonical", "input"])
def test_refused_with_a_reason(smiles, reason, atom_order):
    with pytest.raises(ChemError) as caught:
        molecule_arrays(smiles, atom_order=atom_order)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def closures(number):
    """Return a ring closure in SMILES notation."""
    return f"%({number})" if number > 9 else str(number)


def complete_bipartite(size):
    """Return a SMILES of wildcard atoms that form a complete bipartite graph."""
    left = ("*" + "".join(closures(i * size + j + 1) for j in range(size)) for i in range(size))
    right = ("*" + "".join(closures(i * size + j + 1) for i in range(size)) for j in range(size))
    return ".".join([*left, *right])


@pytest.mark.parametrize(
    ("smiles", "reason"),
    [
        ("C" * 257, "257 atoms, more than max_atoms=256"),
        ("c1ccccc1" * 12_500, "75000 atoms"),
        ("BrCl" * 130, "260 atoms"),
        ("[Na+].[13CH3]" * 130, "260 atoms"),
        ("C(" * 20_000 + "C" + ")" * 20_000, "20001 atoms"),
        ("C" + "([H])" * 10_000, "10001 atoms with hydrogens"),
        (complete_bipartite(16), "256 rings, more than"),
        ("C" * 200_000, "200000 characters"),
    ],
)
def test_large_texts_are_refused_before_rdkit_reads_them(smiles, reason, monkeypatch):
    monkeypatch.setattr(Chem, "MolFromSmiles", None)
    with pytest.raises(ChemError, match=reason):
        parse_smiles(smiles)


def test_bounds_leave_the_largest_molecules_alone():
    saturated = "[H]C([H])([H])" + "C([H])([H])" * 254 + "C([H])([H])[H]"
    assert parse_smiles(saturated).GetNumAtoms() == 256
    assert parse_smiles("[Hg+2]." * 255 + "[He]").GetNumAtoms() == 256
    assert parse_smiles(complete_bipartite(11)).GetNumBonds() == 121


@pytest.mark.parametrize(
    "smiles",
    [" CC", "CC\t", "\tCC \r\n", "CC |$a;b$|", "CC\t|$a;b$|", "CC  |$\u00e9;b$| ", "[CH3][65535CH3]"],
)
def test_blanks_at_the_ends_and_a_cxsmiles_block_are_read(smiles):
    assert parse_smiles(smiles).GetNumAtoms() == 2


def test_a_cxsmiles_block_counts():
    assert parse_smiles("CC |^1:0|").GetAtomWithIdx(0).GetNumRadicalElectrons() == 1
    assert molecule_arrays("CC |^1:0|").atoms[:, 5].tolist() == [1, 0]


def test_the_largest_charge_and_isotope_are_read():
    assert [atom.GetFormalCharge() for atom in parse_smiles("[Fe+127].[Fe-127]").GetAtoms()] == [127, -127]
    assert parse_smiles("[65535Fe]", as_written=True).GetAtomWithIdx(0).GetIsotope() == 65_535


INCHI = {
    "CCO": "InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3",
    "C[C@H](N)C(=O)O": "InChI=1S/C3H7NO2/c1-2(4)3(5)6/h2H,4H2,1H3,(H,5,6)/t2-/m0/s1",
    "CC(=O)[O-].[Na+]": "InChI=1S/C2H4O2.Na/c1-2(3)4;/h1H3,(H,3,4);/q;+1/p-1",
    "CO": "InChI=1S/CH4O/c1-2/h2H,1H3/i1D3",  # its deuterium joins the carbon
}


@pytest.mark.parametrize("smiles", INCHI)
def test_an_inchi_is_its_molecule(smiles):
    read = Chem.MolToSmiles(parse_smiles(f" {INCHI[smiles]}\n"))
    assert read == Chem.MolToSmiles(parse_smiles(smiles))


@pytest.mark.parametrize("text", ["InChI=", "InChI=1S/nothing", "InChI=1S/CH4O/c1-2/h2H,1H3 name"])
def test_an_invalid_inchi_has_a_reason(text):
    with pytest.raises(ChemError, match="InChI"):
        parse_smiles(text)


def test_a_long_inchi_is_refused_before_rdkit_reads_it(monkeypatch):
    monkeypatch.setattr("molslice.chem.smiles.Chem.MolFromInchi", None)  # a call fails
    with pytest.raises(ChemError, match="InChI of 20,?007 characters, more than 10,?000"):
        parse_smiles("InChI=1" + "C" * 20_000)
