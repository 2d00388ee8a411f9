"""Compute the positions of atoms in a drawing from the arrays of a molecule.

Atoms are in the order of the arrays, because no SMILES is parsed. Stereochemistry is not drawn.
"""

from dataclasses import dataclass

import numpy as np
from rdkit import Chem
from rdkit.Chem import rdDepictor

from molslice.chem.rebuild import assemble
from molslice.chem.vocabulary import BOND_TYPES, CHARGES, ELEMENTS, HYBRIDIZATIONS, name_of
from molslice.types import MoleculeArrays, MolsliceError

ORDERS = {"SINGLE": 1.0, "DOUBLE": 2.0, "TRIPLE": 3.0, "AROMATIC": 1.5}


@dataclass(frozen=True, slots=True)
class Depiction:
    """A drawing of one molecule, with n atoms and m bonds in the order of its arrays.

    Attributes:
        positions: Coordinates of the atoms, float64 [n, 2]; a bond has the length 1.5.
        bonds: Begin atom and end atom of each bond, int64 [m, 2].
        orders: Bond orders, float64 [m]: 1, 2, 3, and 1.5 for aromatic bonds; 1 for unknown bond types.
        labels: Text of each atom, such as `NH2`, `O-` and `*`; empty for an uncharged carbon with bonds.
    """

    positions: np.ndarray
    bonds: np.ndarray
    orders: np.ndarray
    labels: tuple[str, ...]


def depict(molecule: MoleculeArrays) -> Depiction:
    """Compute coordinates (with RDKit), labels and bond orders for a drawing.

    Raises:
        MolsliceError: The molecule has no atoms.
    """
    if not len(molecule.atoms):
        raise MolsliceError("cannot draw a molecule without atoms")
    mol = skeleton(molecule)
    rdDepictor.Compute2DCoords(mol, canonOrient=True)
    positions = np.array(mol.GetConformer().GetPositions()[:, :2])
    bonds = np.asarray(molecule.bonds)[:, :2].astype(np.int64)
    orders = np.array([ORDERS[name_of(BOND_TYPES, bond[2], "SINGLE")] for bond in molecule.bonds], np.float64)
    bonded = np.bincount(bonds.flatten(), minlength=len(positions)) > 0
    labels = tuple(_label(atom, bool(has)) for atom, has in zip(molecule.atoms, bonded, strict=True))
    return Depiction(positions, bonds, orders, labels)


def skeleton(molecule: MoleculeArrays) -> Chem.RWMol:
    """Build RDKit's molecule without checks, because RDKit has accepted the molecule before."""
    mol = assemble(molecule)
    for atom, code in zip(mol.GetAtoms(), molecule.atoms[:, 6].tolist(), strict=True):
        if hybridization := name_of(HYBRIDIZATIONS, code):  # a triple bond is drawn straight
            atom.SetHybridization(getattr(Chem.HybridizationType, hybridization))
    mol.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(mol)
    return mol


def _label(atom: np.ndarray, bonded: bool) -> str:
    number, charge, hydrogens = ELEMENTS.get(int(atom[0]), 0), CHARGES.get(int(atom[3]), 0), int(atom[4])
    if number == 6 and bonded and not charge:
        return ""
    symbol = Chem.GetPeriodicTable().GetElementSymbol(number) if number else "*"
    attached = "" if not hydrogens else "H" if hydrogens == 1 else f"H{hydrogens}"
    sign = "" if not charge else ("+" if charge > 0 else "-") if abs(charge) == 1 else f"{charge:+d}"
    return f"{symbol}{attached}{sign}"
