"""Bemis-Murcko scaffolds: the ring systems of a molecule and the chains between them.

Source: Bemis and Murcko, J. Med. Chem. 39 (1996) 2887, in RDKit's implementation.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from rdkit import Chem
from rdkit.Chem.Scaffolds import MurckoScaffold

from molslice.chem.rebuild import rebuild
from molslice.chem.smiles import ChemError, drop_atom_maps, parse_unguarded, quiet_rdkit
from molslice.types import MoleculeArrays

SCAFFOLD_GROUPS = ("known scaffold", "new scaffold", "no rings")


def scaffolds(smiles: Iterable[str | None]) -> list[str]:
    """Find the scaffold of each molecule, as SMILES without stereochemistry, isotopes and atom maps.

    The scaffold is empty for a molecule without rings and for an invalid SMILES.
    """
    return [_scaffold(_parse, text) for text in smiles]


def scaffolds_of_arrays(molecules: Iterable[MoleculeArrays]) -> list[str]:
    """Find the scaffold of each molecule from its arrays; see `scaffolds`."""
    return [_scaffold(lambda arrays: rebuild(arrays).mol, molecule) for molecule in molecules]


def scaffold_groups(tested: Iterable[str], training: Iterable[str]) -> dict[str, np.ndarray]:
    """Group molecules by whether a training molecule has their scaffold.

    Args:
        tested: Scaffold of each of n molecules; empty without rings.
        training: Scaffolds of the training molecules.

    Returns:
        Whether each molecule is in each of `SCAFFOLD_GROUPS`, bool [n]. Each molecule is in one group.
    """
    known, new, ringless = SCAFFOLD_GROUPS
    seen = set(training)
    kinds = np.array([ringless if not text else known if text in seen else new for text in tested], object)
    return {group: kinds == group for group in SCAFFOLD_GROUPS}


def _parse(smiles: str | None) -> Chem.Mol:
    mol = parse_unguarded(smiles)
    drop_atom_maps(mol)
    return mol


def _scaffold(read: Callable[[Any], Chem.Mol], source: object) -> str:
    try:
        with quiet_rdkit():  # RDKit cannot sanitize the scaffolds of some radicals and metals
            return MurckoScaffold.MurckoScaffoldSmiles(mol=read(source), includeChirality=False)
    except ChemError:
        return ""
