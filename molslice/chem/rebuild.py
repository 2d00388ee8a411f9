"""Rebuild a molecule and its SMILES from its arrays, the inverse of `molecule_arrays`.

The arrays hold OGB's features and no more. They do not hold isotopes, labels of wildcards, groups of
relative stereo, the kind of a bond of OGB's last type, the form of a stereocenter that is not tetrahedral,
nor charges beyond 5, more than 4 radical electrons or more than 8 hydrogens. Two of these are guessed so that
the arrays are the same again: a hydrogen that is an atom of its own becomes deuterium, which RDKit keeps, and
a bond of the last type becomes dative, or else quadruple.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rdkit import Chem

from molslice.chem.featurize import arrays_by_getters
from molslice.chem.hydrogens import output_order
from molslice.chem.naming import ATOM_FEATURES, BOND_FEATURES
from molslice.chem.smiles import ChemError, quiet_rdkit
from molslice.chem.vocabulary import BOND_TYPES, CHARGES, CHIRALITIES, ELEMENTS, STEREOS, name_of
from molslice.types import MoleculeArrays

UNKNOWN_BONDS = ("DATIVE", "QUADRUPLE")  # what a bond of the last type may be
ROUNDS = 3  # stereo of bonds whose neighbors are ranked by the stereo of other bonds


class RebuiltMolecule(NamedTuple):
    """A molecule from arrays.

    Attributes:
        mol: The molecule, with its atoms and bonds in the order of the arrays.
        smiles: Its canonical SMILES.
        lost: What the SMILES does not reproduce, in one line; None if it gives the arrays again, up to the
            order of the atoms.
    """

    mol: Chem.Mol
    smiles: str
    lost: str | None


def rebuild(molecule: MoleculeArrays) -> RebuiltMolecule:
    """Rebuild a molecule from its arrays.

    Args:
        molecule: Atoms uint8 [n, 9] and bonds uint8 [m, 5], in canonical or any other order of the atoms.

    Raises:
        ChemError: There are no atoms, or RDKit refuses the molecule.
    """
    if not len(molecule.atoms):
        raise ChemError("molecule without atoms")
    with quiet_rdkit():
        has_unknown = (molecule.bonds[:, 2] >= len(BOND_TYPES)).any()
        for unknown in UNKNOWN_BONDS if has_unknown else UNKNOWN_BONDS[:1]:
            mol = assemble(molecule, unknown)
            _mark_isotopes(mol)
            Chem.SanitizeMol(mol)
            _set_bond_stereo(mol, molecule.bonds[:, 3].tolist())
            lost = _difference(molecule, arrays_by_getters(mol))
            if lost is None:
                break
        smiles = Chem.MolToSmiles(mol)
        return RebuiltMolecule(mol, smiles, lost or _lost_in_writing(mol, smiles, molecule))


def assemble(molecule: MoleculeArrays, unknown: str = "SINGLE") -> Chem.RWMol:
    """Build RDKit's molecule without checks and stereo of bonds; a bond of OGB's last type is `unknown`."""
    mol = Chem.RWMol()
    for element, chirality, _, charge, hydrogens, radicals, _, aromatic, _ in molecule.atoms.tolist():
        atom = Chem.Atom(ELEMENTS.get(element, 0))
        atom.SetFormalCharge(CHARGES.get(charge, 0))
        atom.SetNoImplicit(True)
        atom.SetNumExplicitHs(hydrogens)
        atom.SetNumRadicalElectrons(radicals)
        atom.SetIsAromatic(bool(aromatic))
        if chirality in (1, 2):  # clockwise and counterclockwise
            atom.SetChiralTag(getattr(Chem.ChiralType, CHIRALITIES[chirality]))
        mol.AddAtom(atom)
    for begin, end, kind, _, _ in molecule.bonds.tolist():
        name = name_of(BOND_TYPES, kind, unknown)
        mol.AddBond(begin, end, getattr(Chem.BondType, name))
        mol.GetBondWithIdx(mol.GetNumBonds() - 1).SetIsAromatic(name == "AROMATIC")
    return mol


def _mark_isotopes(mol: Chem.RWMol) -> None:
    """Mark hydrogens on a heavier atom as deuterium; RDKit merges plain ones into that atom."""
    for atom in mol.GetAtoms():
        if atom.GetAtomicNum() == 1 and not atom.GetFormalCharge():
            neighbors = [other.GetAtomicNum() for other in atom.GetNeighbors()]
            if len(neighbors) == 1 and neighbors[0] > 1:
                atom.SetIsotope(2)


def _set_bond_stereo(mol: Chem.RWMol, codes: Sequence[int]) -> None:
    """Set the stereo of double bonds, relative to the neighbors that RDKit ranks highest."""
    wanted = {index: getattr(Chem.BondStereo, STEREOS[code]) for index, code in enumerate(codes) if code}
    for _ in range(ROUNDS if wanted else 0):
        Chem.AssignStereochemistry(mol, cleanIt=False, force=True, flagPossibleStereoCenters=True)
        for index, stereo in wanted.items():
            bond = mol.GetBondWithIdx(index)
            one = _highest_neighbor(bond.GetBeginAtom(), bond.GetEndAtom())
            other = _highest_neighbor(bond.GetEndAtom(), bond.GetBeginAtom())
            if one is None or other is None:
                continue  # a stereo that no molecule has; the comparison of the arrays reports it
            bond.SetStereoAtoms(one, other)
            bond.SetStereo(stereo)
        Chem.SetDoubleBondNeighborDirections(mol)
        Chem.AssignStereochemistry(mol, cleanIt=True, force=True)
        if all(mol.GetBondWithIdx(index).GetStereo() == stereo for index, stereo in wanted.items()):
            return


def _highest_neighbor(atom: Chem.Atom, other: Chem.Atom) -> int | None:
    """Return the neighbor of `atom` that ranks highest, except `other`; None without neighbors."""
    neighbors = [neighbor for neighbor in atom.GetNeighbors() if neighbor.GetIdx() != other.GetIdx()]
    ranked = max(neighbors, key=lambda neighbor: neighbor.GetUnsignedProp("_CIPRank"), default=None)
    return None if ranked is None else ranked.GetIdx()


def _difference(wanted: MoleculeArrays, rebuilt: MoleculeArrays) -> str | None:
    """Name the first feature that differs; None if the arrays are equal."""
    for kind, names, expected, actual in (
        ("atom", ATOM_FEATURES, wanted.atoms, rebuilt.atoms),
        ("bond", BOND_FEATURES[2:], wanted.bonds[:, 2:], rebuilt.bonds[:, 2:]),
    ):
        if not np.array_equal(expected, actual):
            index, column = np.argwhere(expected != actual)[0]
            return f"the arrays do not determine the {names[column]} of {kind} {index}"
    return None


def _lost_in_writing(mol: Chem.Mol, smiles: str, molecule: MoleculeArrays) -> str | None:
    """Compare the arrays with the arrays of the SMILES that was just written for `mol`."""
    order = output_order(mol)
    again = Chem.MolFromSmiles(smiles)
    if again is None or again.GetNumAtoms() != len(order):
        return "RDKit cannot read its SMILES back"
    reread = arrays_by_getters(again)
    atoms = molecule.atoms[order].copy()
    # a tag refers to the order of the neighbors, which differs here
    same = ((atoms[:, 1] > 0) == (reread.atoms[:, 1] > 0)).all()
    atoms[:, 1] = reread.atoms[:, 1]
    bonds = molecule.bonds.copy()
    bonds[:, :2] = np.argsort(order)[bonds[:, :2]]
    if same and np.array_equal(atoms, reread.atoms) and np.array_equal(_sorted(bonds), _sorted(reread.bonds)):
        return None
    return "a SMILES without isotopes does not hold its stereochemistry"


def _sorted(bonds: np.ndarray) -> np.ndarray:
    """Put the smaller atom of each bond first, and sort the bonds."""
    bonds = bonds.copy()
    bonds[:, :2].sort(axis=1)
    return bonds[np.lexsort(bonds.T[::-1])]
