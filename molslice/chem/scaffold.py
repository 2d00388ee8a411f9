"""Bemis-Murcko frameworks: the ring systems of a molecule and what links them.

Source: Bemis and Murcko, J. Med. Chem. 39 (1996) 2887, as RDKit computes it.
"""

from collections.abc import Iterable

from rdkit import Chem, rdBase
from rdkit.Chem.Scaffolds import MurckoScaffold


def scaffolds(smiles: Iterable[str | None]) -> list[str]:
    """The framework of each molecule as a SMILES without stereo.

    A molecule without rings, and a SMILES that cannot be read, has the empty framework.
    """
    with rdBase.BlockLogs():
        return [_scaffold(text) for text in smiles]


def _scaffold(smiles: str | None) -> str:
    if not isinstance(smiles, str) or "\0" in smiles:
        return ""
    try:
        mol = Chem.MolFromSmiles(smiles)
        if mol is None:
            return ""
        return MurckoScaffold.MurckoScaffoldSmiles(mol=mol, includeChirality=False)
    except (RuntimeError, ValueError):  # RDKit's invariants; the frameworks of some radicals and metals
        return ""
