"""Canonical SMILES that do not depend on the spelling, and the canonical order of the atoms.

RDKit's canonical SMILES is not unique where stereo centers of a ring depend on each other (spiro compounds,
adamantanes): it can change when it is read and written again. Such a molecule is written until its SMILES
stays the same, or the smallest is taken of SMILES that alternate. What remains depends on the spelling: a few
symmetric rings have two SMILES that both stay the same, such as 1,2,3,4,5,6-hexachlorocyclohexane. Measured
with seven or more spellings each: 3 of the 396 molecules with such centers among 162,881 of ZINC and PubChem
with two stereo centers or more; 23 of 13,134 real ring systems with random stereo (76 before these rounds).
"""

from typing import NamedTuple

import numpy as np
from rdkit import Chem

from molslice.chem.smiles import HARD_MAX_ATOMS, drop_atom_maps, parse_unguarded, quiet_rdkit

__all__ = ["CanonicalMolecule", "canonical_molecule", "canonical_order", "canonical_unguarded"]

MAX_ROUNDS = 5  # two settle all molecules that settle at all
Orders = list[list[int]]


class CanonicalMolecule(NamedTuple):
    """A molecule whose atoms are in canonical order.

    Attributes:
        mol: the molecule.
        smiles: the canonical SMILES that `mol` was parsed from; None if RDKit cannot parse the SMILES that it
            writes for this molecule.
    """

    mol: Chem.Mol
    smiles: str | None


def canonical_molecule(smiles: object, max_atoms: int = HARD_MAX_ATOMS) -> CanonicalMolecule:
    """Parse a SMILES and put its atoms into canonical order, without atom-map numbers.

    Args:
        smiles: the SMILES; see `parse_smiles`.
        max_atoms: maximum number of atoms.

    Raises:
        ChemError: as `parse_smiles`.
    """
    with quiet_rdkit():
        return canonical_unguarded(parse_unguarded(smiles, max_atoms), smiles)


def canonical_order(smiles: str) -> np.ndarray:
    """Find the place in a SMILES of each atom of its canonical molecule.

    Returns:
        int64 [n]: atom k of `canonical_molecule(smiles)` is atom `order[k]` of those that RDKit parses from
            `smiles`, counted from 0.

    Raises:
        ChemError: as `parse_smiles`.
    """
    orders: Orders = []
    with quiet_rdkit():
        mol = parse_unguarded(smiles)
        canonical_unguarded(mol, smiles, orders)
    order = np.arange(mol.GetNumAtoms())
    for step in orders:
        order = order[step]
    return order


def canonical_unguarded(mol: Chem.Mol, smiles: object, orders: Orders | None = None) -> CanonicalMolecule:
    """Put the atoms of a parsed molecule into canonical order, to be called inside `quiet_rdkit`.

    Args:
        mol: the molecule; its atom-map numbers are removed in place.
        smiles: the text that it was parsed from.
        orders: receives the order of the atoms in each SMILES on the way to the result.
    """
    # an atom-map number, in SMILES or CXSMILES, takes a colon
    if ":" in str(smiles) and drop_atom_maps(mol):
        # hydrogens and chirality that only the map numbers kept go when the SMILES is read again
        text = Chem.MolToSmiles(mol)
        again = Chem.MolFromSmiles(text)
        if again is not None:
            _keep_order(mol, orders)
            mol = again
    canonical = Chem.MolToSmiles(mol)
    again = _read_back(canonical, mol)
    _keep_order(mol, orders)
    if again is None:  # no such molecule is known; the atoms still stand in RDKit's order
        return CanonicalMolecule(Chem.RenumberAtoms(mol, _output_order(mol)), None)
    if canonical.replace("@@", "@").count("@") > 1:  # the others, most molecules, need not pay for this
        return _settle(again, canonical, orders)
    return CanonicalMolecule(again, canonical)


def _settle(mol: Chem.Mol, canonical: str, orders: Orders | None) -> CanonicalMolecule:
    """Write and read a molecule until its SMILES stays the same; if SMILES alternate, take the smallest."""
    seen = {canonical: mol}
    for _ in range(MAX_ROUNDS):
        canonical = Chem.MolToSmiles(mol)
        if canonical in seen:
            break
        again = _read_back(canonical, mol)
        if again is None:
            break
        seen[canonical] = mol = again
    found = list(seen)
    canonical = min(found[found.index(canonical) :]) if canonical in seen else found[-1]
    for text in found[: found.index(canonical)]:
        _keep_order(seen[text], orders)
    return CanonicalMolecule(seen[canonical], canonical)


def _read_back(canonical: str, mol: Chem.Mol) -> Chem.Mol | None:
    """The molecule of a SMILES that RDKit wrote for `mol`, None if RDKit cannot parse its own SMILES."""
    again = Chem.MolFromSmiles(canonical)
    return again if again is not None and again.GetNumAtoms() == mol.GetNumAtoms() else None


def _keep_order(mol: Chem.Mol, orders: Orders | None) -> None:
    if orders is not None:
        orders.append(_output_order(mol))


def _output_order(mol: Chem.Mol) -> list[int]:
    """The atoms of the SMILES that was last written for `mol`."""
    return list(mol.GetPropsAsDict(includePrivate=True, includeComputed=True)["_smilesAtomOutputOrder"])
