"""Bemis-Murcko frameworks: the ring systems of a molecule and what links them.

Source: Bemis and Murcko, J. Med. Chem. 39 (1996) 2887, as RDKit computes it.
"""

from collections.abc import Iterable

from rdkit.Chem.Scaffolds import MurckoScaffold

from molslice.chem.smiles import ChemError, drop_atom_maps, parse_unguarded, quiet_rdkit


def scaffolds(smiles: Iterable[str | None]) -> list[str]:
    """Find the framework of each molecule, as a SMILES without stereo, isotopes and atom maps.

    A molecule without rings has the empty framework, and so has a row that cannot be read.
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
