"""Bemis-Murcko frameworks: the ring systems of a molecule and the chains between them.

Source: Bemis and Murcko, J. Med. Chem. 39 (1996) 2887, in RDKit's implementation.
"""

from collections.abc import Iterable

from rdkit.Chem.Scaffolds import MurckoScaffold

from molslice.chem.smiles import ChemError, drop_atom_maps, parse_unguarded, quiet_rdkit


def scaffolds(smiles: Iterable[str | None]) -> list[str]:
    """Find the framework of each molecule.

    Args:
        smiles: The molecules.

    Returns:
        The frameworks as SMILES without stereochemistry, isotopes and atom maps. The framework is empty for a
        molecule without rings and for an invalid SMILES.
    """
    return [_scaffold(text) for text in smiles]


def _scaffold(smiles: str | None) -> str:
    try:
        with quiet_rdkit():
            mol = parse_unguarded(smiles)
            drop_atom_maps(mol)
            # RDKit cannot sanitize the frameworks of some radicals and metals
            return MurckoScaffold.MurckoScaffoldSmiles(mol=mol, includeChirality=False)
    except ChemError:
        return ""
