"""The weight of isotopes, which are dropped from all other molecules; see `molslice.chem.hydrogens`."""

import re

from rdkit import Chem
from rdkit.Chem.MolStandardize import rdMolStandardize as Standardizer

from molslice.chem.fragments import fragment_key
from molslice.chem.smiles import (
    INCHI,
    MAX_PARSED_ATOMS,
    ChemError,
    parse_unguarded,
    parse_without_maps,
    quiet_rdkit,
)

_ISOTOPE = re.compile(rf"\[\d|{INCHI}")


def isotope_excess(smiles: str, fragment: str = "keep", standardize: str = "no") -> float:
    """Return how much heavier a molecule is with the isotopes of its SMILES than without, in g/mol.

    The label of a wildcard (`[1*]`) has no weight.

    Args:
        smiles: The SMILES as in a table.
        fragment: Whether the whole mixture counts, or its `largest` molecule; see `choose_fragment`.
        standardize: The standard form of the molecule, whose bonds to metals are broken before the choice;
            `no` for none.

    Returns:
        The difference; 0 without isotopes, and for a SMILES that cannot be read.
    """
    if not _ISOTOPE.search(smiles):
        return 0.0
    try:
        with quiet_rdkit():
            mol = parse_unguarded(smiles, MAX_PARSED_ATOMS, as_written=True)
            if fragment == "largest":
                whole = mol if standardize == "no" else Standardizer.Cleanup(mol)
                mol = min(Chem.GetMolFrags(whole, asMols=True), key=_key_without_isotopes)
    except ChemError:
        return 0.0
    table = Chem.GetPeriodicTable()
    labeled = [atom for atom in mol.GetAtoms() if atom.GetIsotope() and atom.GetAtomicNum()]
    return sum(atom.GetMass() - table.GetAtomicWeight(atom.GetAtomicNum()) for atom in labeled)


def _key_without_isotopes(mol: Chem.Mol) -> tuple[int, float, str]:
    return fragment_key(parse_without_maps(Chem.MolToSmiles(mol)))
