"""The parent of a molecule: its largest fragment without stereochemistry, isotopes and charges.

Source: the charges are neutralized by RDKit's `Uncharger`, by adding or removing protons where possible.
"""

from collections.abc import Iterable

from rdkit import Chem
from rdkit.Chem.MolStandardize.rdMolStandardize import Uncharger

from molslice.chem.fragments import choose_fragment
from molslice.chem.smiles import ChemError, drop_atom_maps, parse_unguarded, quiet_rdkit

__all__ = ["parents"]


def parents(smiles: Iterable[str]) -> list[str]:
    """Find the parent of each molecule.

    Args:
        smiles: The molecules.

    Returns:
        The parents as canonical SMILES: equal for the stereoisomers, the isotopologues and the salts of a
        compound. A SMILES that cannot be read is its own parent.
    """
    uncharger = Uncharger()
    return [_parent(text, uncharger) for text in smiles]


def _parent(smiles: str, uncharger: Uncharger) -> str:
    try:
        largest = choose_fragment(smiles, "largest")
        with quiet_rdkit():
            mol = parse_unguarded(largest)
            drop_atom_maps(mol)
            Chem.RemoveStereochemistry(mol)
            for atom in mol.GetAtoms():
                atom.SetIsotope(0)
            if any(atom.GetFormalCharge() for atom in mol.GetAtoms()):
                mol = uncharger.uncharge(mol)
            return Chem.MolToSmiles(Chem.RemoveHs(mol))
    except (ChemError, ValueError):  # RDKit cannot sanitize some molecules without their hydrogens
        return smiles
