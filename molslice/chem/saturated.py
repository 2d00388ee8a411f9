"""The saturated hydrocarbon with the skeleton of a molecule."""

import numpy as np

from molslice.chem.vocabulary import (
    ATOMIC_NUMBER,
    BOND_TYPES,
    CHARGE,
    CHIRALITIES,
    HYBRIDIZATIONS,
    HYDROGENS,
    STEREOS,
)
from molslice.types import MoleculeArrays

CARBON, VALENCE = 6, 4
RING = 8  # column of the ring membership, which belongs to the skeleton


def saturated_hydrocarbon(molecule: MoleculeArrays) -> MoleculeArrays:
    """Replace each atom by carbon with hydrogens, and each bond by a single bond, in the same order.

    The graph and the membership in rings stay, so that the number of hydrogens is 4 minus the number of
    neighbors. Stereochemistry is dropped. Unless an atom has more than four neighbors, the result has the
    arrays of a real molecule: benzene becomes cyclohexane, and water becomes methane.
    """
    neighbors = np.bincount(molecule.bonds[:, :2].flatten(), minlength=len(molecule.atoms))
    hydrogens = np.maximum(VALENCE - neighbors, 0)
    atoms = np.zeros_like(molecule.atoms)
    atoms[:, 0] = ATOMIC_NUMBER[CARBON]
    atoms[:, 1] = CHIRALITIES.index("CHI_UNSPECIFIED")
    atoms[:, 2] = np.minimum(neighbors + hydrogens, 11)  # more than ten are the unknown
    atoms[:, 3] = CHARGE[0]
    atoms[:, 4] = [HYDROGENS[count] for count in hydrogens]
    atoms[:, 6] = HYBRIDIZATIONS.index("SP3")
    atoms[:, RING] = molecule.atoms[:, RING]
    bonds = np.zeros_like(molecule.bonds)
    bonds[:, :2] = molecule.bonds[:, :2]
    bonds[:, 2] = BOND_TYPES.index("SINGLE")
    bonds[:, 3] = STEREOS.index("STEREONONE")
    return MoleculeArrays(atoms, bonds)
