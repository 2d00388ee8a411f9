"""Wildcards, R-groups and bonds of any order: parts of a query or a family, not of one molecule.

The atoms A, Q, X, M, R and R#, lists of atoms, and the query bonds of a connection table are written as `*`
and `~` in its SMILES; see `molslice.chem.molblock`.
"""

import re

from molslice.chem import WILDCARDS
from molslice.chem.smiles import ChemError, parse_smiles
from molslice.registry import near_names
from molslice.types import MolsliceError

__all__ = ["check_wildcards", "find_wildcard"]

_MARK = re.compile(r"[*~]|\[\d*#0")
_KEEP = "; keep such rows with --wildcards keep (data.wildcards: keep)"


def check_wildcards(choice: str) -> None:
    """Check a choice of what happens to wildcards.

    Raises:
        MolsliceError: It is not one of `WILDCARDS`.
    """
    if choice not in WILDCARDS:
        raise MolsliceError(f"unknown choice of wildcards {choice!r}; {near_names(str(choice), WILDCARDS)}")


def find_wildcard(smiles: str) -> str | None:
    """Find what keeps a SMILES from being one molecule.

    Returns:
        The reason to refuse it. None for a molecule, and for a SMILES that cannot be read, whose reason is
        found where it is parsed.
    """
    if not _MARK.search(smiles):
        return None
    try:
        mol = parse_smiles(smiles)
    except ChemError:
        return None
    if any(atom.GetAtomicNum() == 0 for atom in mol.GetAtoms()):
        return f"wildcard or R-group (*){_KEEP}"
    if any(bond.HasQuery() for bond in mol.GetBonds()):
        return f"bond of any order (~){_KEEP}"
    return None
