"""The SMILES of RDKit molecules that a program gives instead of texts."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rdkit.Chem import Mol


def is_rdkit_mol(value: object) -> bool:
    """Return whether a value is an RDKit molecule. Does not import rdkit."""
    chem = sys.modules.get("rdkit.Chem")
    return chem is not None and isinstance(value, chem.Mol)


def mol_to_smiles(mol: "Mol") -> str:
    """Return the SMILES of an RDKit molecule, with chirality, charges, isotopes and atom-map numbers.

    Coordinates and properties are not used. Hydrogens that are atoms of their own stay in the SMILES, and the
    parser makes them implicit.

    Args:
        mol: The molecule.

    Raises:
        ChemError: The molecule is not sanitized, is a query, or has no atoms. The message is the reason.
    """
    from rdkit import Chem

    from molslice.chem.smiles import ChemError, quiet_rdkit

    if mol.GetNumAtoms() == 0:
        raise ChemError("molecule without atoms")
    if any(atom.HasQuery() for atom in mol.GetAtoms()):
        raise ChemError("the RDKit molecule is a query (SMARTS), which has no SMILES")
    try:
        with quiet_rdkit():
            mol.GetRingInfo().NumRings()  # fails if the rings are unknown
    except ChemError:
        is_sanitized = False
    else:
        is_sanitized = not mol.NeedsUpdatePropertyCache()
    if not is_sanitized:
        raise ChemError("the RDKit molecule is not sanitized; call Chem.SanitizeMol")
    with quiet_rdkit():
        return Chem.MolToSmiles(mol)
