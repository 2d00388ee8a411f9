"""The parent of a molecule: its compound without counterions, stereochemistry, isotopes and charges.

Source: the charges are neutralized by RDKit's `Uncharger`, by adding or removing protons where possible.
"""

from collections.abc import Iterable

from rdkit import Chem
from rdkit.Chem.MolStandardize.rdMolStandardize import Uncharger

from molslice.chem.counterions import counterions
from molslice.chem.fragments import fragment_key
from molslice.chem.smiles import MAX_PARSED_ATOMS, ChemError, drop_atom_maps, parse_unguarded, quiet_rdkit

__all__ = ["parents"]


def parents(smiles: Iterable[str]) -> list[str]:
    """Find the parent of each molecule.

    The parent of a mixture is that of its largest fragment with carbon that is not a common counterion, or of
    the largest fragment if there is no other.

    Args:
        smiles: The molecules.

    Returns:
        The parents as canonical SMILES: equal for the stereoisomers, the isotopologues and the salts of a
        compound. A SMILES that cannot be read is its own parent.
    """
    uncharger = Uncharger(canonicalOrder=True, force=True)  # also the acid of a quaternary ammonium
    return [_parent(text, uncharger) for text in smiles]


def _parent(smiles: str, uncharger: Uncharger) -> str:
    try:
        with quiet_rdkit():
            mol = parse_unguarded(smiles, MAX_PARSED_ATOMS)
            drop_atom_maps(mol)
            Chem.RemoveStereochemistry(mol)
            fragments = [_neutral(part, uncharger) for part in Chem.GetMolFrags(mol, asMols=True)]
            if len(fragments) == 1:
                return Chem.MolToSmiles(fragments[0])
            keys = {fragment_key(part): _has_carbon(part) for part in fragments}
            known = counterions()
            compounds = [key for key, has_carbon in keys.items() if has_carbon and key[-1] not in known]
            return min(compounds or keys)[-1]
    except (ChemError, ValueError):  # RDKit cannot sanitize some molecules without their hydrogens
        return smiles


def _neutral(mol: Chem.Mol, uncharger: Uncharger) -> Chem.Mol:
    if any(atom.GetFormalCharge() for atom in mol.GetAtoms()):
        try:
            return Chem.RemoveHs(uncharger.uncharge(mol))
        except ValueError:  # an anion such as hexafluorophosphate has no neutral form
            pass
    return Chem.RemoveHs(mol)


def _has_carbon(mol: Chem.Mol) -> bool:
    return any(atom.GetAtomicNum() == 6 for atom in mol.GetAtoms())
