"""Connection tables: blank lines, queries, and RDKit's reason for those that it cannot read."""

import logging

import pytest
from rdkit import Chem

from molslice.chem.fragments import find_wildcard
from molslice.chem.molblock import molblock_to_smiles
from molslice.chem.smiles import ChemError


def block(atom="C", bond=1, properties="", counts="  3  2"):
    """Write a chain of an atom and two carbons."""
    atoms = "".join(
        f"{1.5 * place:10.4f}    0.0000    0.0000 {symbol:<3} 0  0  0  0  0  0  0  0  0  0  0  0\n"
        for place, symbol in enumerate((atom, "C", "C"))
    )
    head = f"name\n  program\n\n{counts}  0  0  0  0            999 V2000\n"
    return f"{head}{atoms}  1  2  {bond}  0  0  0  0\n  2  3  1  0  0  0  0\n{properties}M  END\n"


@pytest.mark.parametrize("properties", ["\n", " \n\n", "\nM  CHG  1   1   0\n\n"])
def test_blank_lines_are_skipped(properties):
    assert molblock_to_smiles(block("O", properties=properties)) == "CCO"


def test_the_first_lines_may_be_blank():
    assert molblock_to_smiles(block("O").replace("name", "").replace("  program", "")) == "CCO"
    modern = Chem.MolToV3KMolBlock(Chem.MolFromSmiles("CCO")).replace(
        "M  V30 BEGIN BOND", "\nM  V30 BEGIN BOND"
    )
    assert molblock_to_smiles(modern) == "CCO"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (block("F", 3), "atom 1, F, has valence 3, more than permitted"),
        (block("Xq"), "Element 'Xq' not found"),
        (block(counts="oddly "), "Cannot convert 'odd' to unsigned int on line 4"),
        (block(properties="odd line\n"), "Cannot convert 'odd' to int on line 10"),
        ("\n".join(block().splitlines()[:6]), "EOF hit while reading atoms"),
    ],
)
def test_the_reason_of_rdkit_is_passed_on(text, reason, capfd):
    with pytest.raises(ChemError) as caught:
        molblock_to_smiles(text)
    assert str(caught.value) == f"RDKit cannot read the connection table: {reason}"
    assert capfd.readouterr() == ("", "")


def test_the_log_of_rdkit_is_as_before(capfd):
    logger = logging.getLogger("rdkit")
    before = [*logger.handlers], logger.propagate
    with pytest.raises(ChemError):
        molblock_to_smiles(block("Xq"))
    assert ([*logger.handlers], logger.propagate) == before
    Chem.MolFromSmiles("C(")
    assert "SMILES Parse Error" in capfd.readouterr().err


def test_no_atoms_have_a_reason():
    with pytest.raises(ChemError, match="without atoms"):
        molblock_to_smiles("\n\n\n  0  0  0  0  0  0            999 V2000\nM  END\n")


@pytest.mark.parametrize("atom", ["A", "Q", "X", "M", "*", "R", "R#", "R1", "L", "AH", "QH", "Pol"])
def test_atoms_of_queries_are_wildcards(atom):
    reason = find_wildcard(molblock_to_smiles(block(atom)))
    assert reason is not None
    assert reason.startswith("wildcard or R-group (*)")


def test_a_list_of_elements_is_a_wildcard():
    text = molblock_to_smiles(block("L", properties="M  ALS   1  2 F C   N   \n"))
    assert text == "*CC"


@pytest.mark.parametrize("bond", [5, 6, 7, 8])
def test_bonds_of_queries_are_of_any_order(bond):
    reason = find_wildcard(molblock_to_smiles(block(bond=bond)))
    assert reason is not None
    assert reason.startswith("bond of any order (~)")
