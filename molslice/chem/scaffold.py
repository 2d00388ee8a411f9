"""Bemis-Murcko scaffolds: the ring systems of a molecule and the chains between them.

Source: Bemis and Murcko, J. Med. Chem. 39 (1996) 2887, in RDKit's implementation.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from rdkit.Chem.Scaffolds import MurckoScaffold

from molslice.chem.canonical import CanonicalMolecule, canonical_molecule, canonical_unguarded
from molslice.chem.rebuild import rebuild
from molslice.chem.smiles import ChemError, quiet_rdkit
from molslice.types import MoleculeArrays

SCAFFOLD_GROUPS = ("known scaffold", "new scaffold", "no rings")


def scaffolds(smiles: Iterable[str | None]) -> list[str]:
    """Find the scaffold of each molecule, as SMILES without stereochemistry, isotopes and atom maps.

    The scaffold is empty for a molecule without rings and for an invalid SMILES.
    """
    return [_scaffold(canonical_molecule, text) for text in smiles]


def scaffolds_of_arrays(molecules: Iterable[MoleculeArrays]) -> list[str]:
    """Find the scaffold of each molecule from its arrays; see `scaffolds`."""
    return [
        _scaffold(lambda arrays: canonical_unguarded(rebuild(arrays).mol, None), molecule)
        for molecule in molecules
    ]


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


def _scaffold(read: Callable[[Any], CanonicalMolecule], source: object) -> str:
    # the molecule is canonical, because a side chain that is cut from an atom in brackets may leave a radical
    try:
        with quiet_rdkit():  # RDKit cannot sanitize the scaffolds of some radicals and metals
            return MurckoScaffold.MurckoScaffoldSmiles(mol=read(source).mol, includeChirality=False)
    except ChemError:
        return ""
