"""The elements of a molecule from its arrays."""

import numpy as np
from rdkit import Chem

from molslice.chem.vocabulary import ELEMENTS
from molslice.types import MoleculeArrays

__all__ = ["element_symbols"]

UNKNOWN = "*"  # a wildcard


def element_symbols(molecule: MoleculeArrays) -> list[str]:
    """Return the symbols of the elements of a molecule, each once, in the order of atomic numbers."""
    table = Chem.GetPeriodicTable()
    codes = np.unique(np.asarray(molecule.atoms)[:, 0]).tolist()
    return [table.GetElementSymbol(ELEMENTS[code]) if code in ELEMENTS else UNKNOWN for code in codes]
