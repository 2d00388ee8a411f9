"""Convert connection tables, as in SD files, to SMILES."""

from rdkit import Chem

from molslice.chem.smiles import ChemError, quiet_rdkit

__all__ = ["molblock_to_smiles"]


def molblock_to_smiles(block: str) -> str:
    """Return the SMILES of a connection table, V2000 or V3000, with stereochemistry.

    Args:
        block: The lines of the connection table, up to `M  END`.

    Raises:
        ChemError: RDKit cannot read it, or it has no atoms.
    """
    with quiet_rdkit():
        mol = Chem.MolFromMolBlock(block, sanitize=True, removeHs=True)
        if mol is None:
            raise ChemError("RDKit cannot read the connection table")
        if mol.GetNumAtoms() == 0:
            raise ChemError("molecule without atoms")
        if mol.GetNumConformers() and mol.GetConformer().Is3D():
            Chem.AssignStereochemistryFrom3D(mol)
        return Chem.MolToSmiles(mol)
