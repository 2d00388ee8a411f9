"""Coordinates of the atoms of a molecule in one conformer, from its graph alone."""

import numpy as np
from rdkit import Chem, rdBase
from rdkit.Chem import rdDistGeom

from molslice.chem.canonical import canonical_unguarded
from molslice.chem.fragments import fragment_key
from molslice.chem.smiles import ChemError, parse_unguarded

MOST_ATOMS = 100  # heavy atoms; the embedding of larger molecules takes long and often fails
ATTEMPTS = 10
SEED = 7


def coordinates(smiles: str, num_atoms: int) -> np.ndarray:
    """Embed a molecule by ETKDG, without a force field.

    All spellings of a molecule have the same coordinates, with one version of RDKit.

    Args:
        smiles: A SMILES that `many_molecule_arrays` has read with `atom_order="canonical"`.
        num_atoms: Number n of its atoms in the arrays.

    Returns:
        Coordinates in Angstrom in canonical order, float16 [n, 3]. They are NaN if the embedding failed, if
        the molecule has more than 100 atoms, and outside of the largest fragment of a mixture, as
        `choose_fragment` chooses it.

    Source: Riniker and Landrum 2015, doi 10.1021/acs.jcim.5b00654; version 3 with small rings, Wang et al.
    2020, doi 10.1021/acs.jcim.0c00025.
    """
    positions = np.full((num_atoms, 3), np.nan, np.float16)
    if num_atoms > MOST_ATOMS:
        return positions
    try:
        with rdBase.BlockLogs():
            mol = canonical_unguarded(parse_unguarded(smiles), smiles).mol
            places: list[tuple[int, ...]] = []
            fragments = Chem.GetMolFrags(mol, asMols=True, fragsMolAtomMapping=places)
            largest, atoms = min(zip(fragments, places, strict=True), key=lambda pair: fragment_key(pair[0]))
            with_hydrogens = Chem.AddHs(largest)
            failed = rdDistGeom.EmbedMolecule(with_hydrogens, _parameters()) != 0
            if mol.GetNumAtoms() != num_atoms or failed:
                return positions
            positions[list(atoms)] = with_hydrogens.GetConformer().GetPositions()[: len(atoms)]
    except (ChemError, RuntimeError, ValueError):  # such as an unknown element
        pass
    return positions


def _parameters() -> rdDistGeom.EmbedParameters:
    parameters = rdDistGeom.ETKDGv3()
    parameters.useSmallRingTorsions = True
    parameters.randomSeed, parameters.maxIterations = SEED, ATTEMPTS
    return parameters
