"""Convert a SMILES to the compact arrays of its molecular graph, equal to OGB's `smiles2graph`.

With `atom_order="input"` the arrays are those of `ogb.utils.smiles2graph(smiles)`, atom by atom and bond by
bond, with each bond once. With `atom_order="canonical"` they are those of `smiles2graph(canonical SMILES)`,
so that all SMILES of a molecule give the same arrays. Renumbering the atoms would not be sufficient, because
a chirality tag (clockwise, counterclockwise) refers to the order of the neighbors. Atom-map numbers are
removed first. `molslice.chem.canonical` computes the canonical order.
"""

from typing import Literal

import numpy as np
from rdkit import Chem

from molslice.chem.canonical import canonical_unguarded
from molslice.chem.smiles import HARD_MAX_ATOMS, ChemError, parse_unguarded, quiet_rdkit
from molslice.chem.vocabulary import (
    ATOMIC_NUMBER,
    BOND_TYPE,
    BOND_TYPE_BY_ORDER,
    CHARGE,
    CHIRALITY,
    DEGREE,
    HYBRIDIZATION,
    HYDROGENS,
    RADICALS,
    STEREO,
)
from molslice.types import MoleculeArrays, MolsliceError

__all__ = [
    "ATOM_ORDERS",
    "HARD_MAX_ATOMS",
    "AtomOrder",
    "ChemError",
    "arrays_and_molecule",
    "check_options",
    "molecule_arrays",
]

AtomOrder = Literal["canonical", "input"]
ATOM_ORDERS: tuple[AtomOrder, ...] = ("canonical", "input")
NEUTRAL = CHARGE[0]


def molecule_arrays(
    smiles: str, *, max_atoms: int = HARD_MAX_ATOMS, atom_order: AtomOrder = "canonical"
) -> MoleculeArrays:
    """Convert one SMILES to arrays. Hydrogens are implicit as in OGB. RDKit's log is silenced.

    Args:
        smiles: Any SMILES that RDKit can parse, including salts, isotopes, radicals, wildcards and metals.
        max_atoms: Maximum number of atoms, at most 256.
        atom_order: `canonical`, or `input` to keep the order of the atoms in the SMILES.

    Returns:
        Atoms uint8 [n, 9] and bonds uint8 [m, 5].

    Raises:
        ChemError: The SMILES is not a string, is empty or invalid, or has no atoms or too many.
        MolsliceError: `max_atoms` or `atom_order` is invalid.

    Source: `ogb.utils.mol.smiles2graph` of ogb 1.3.
    """
    check_options(max_atoms, atom_order)
    with quiet_rdkit():
        mol = parse_unguarded(smiles, max_atoms)
        if atom_order == "input":
            return _arrays(mol)
        return _arrays(*canonical_unguarded(mol, smiles))


def arrays_and_molecule(
    smiles: str, *, max_atoms: int = HARD_MAX_ATOMS, atom_order: AtomOrder = "canonical"
) -> tuple[MoleculeArrays, Chem.Mol]:
    """Return the arrays of `molecule_arrays`, and the molecule of `canonical_molecule`.

    Raises:
        ChemError: As in `molecule_arrays`.
        MolsliceError: As in `molecule_arrays`.
    """
    check_options(max_atoms, atom_order)
    with quiet_rdkit():
        mol = parse_unguarded(smiles, max_atoms)
        # before the atom-map numbers of `mol` are removed
        arrays = _arrays(mol) if atom_order == "input" else None
        canonical = canonical_unguarded(mol, smiles)
        return arrays or _arrays(*canonical), canonical.mol


def check_options(max_atoms: int, atom_order: str) -> None:
    """Check the options of `molecule_arrays`.

    Raises:
        MolsliceError: An option is invalid. The message names the option, its value and the choices.
    """
    if not 1 <= max_atoms <= HARD_MAX_ATOMS:
        raise MolsliceError(f"max_atoms must be between 1 and {HARD_MAX_ATOMS}, got {max_atoms}")
    if atom_order not in ATOM_ORDERS:
        raise MolsliceError(f"atom_order must be one of {', '.join(ATOM_ORDERS)}, got {atom_order!r}")


def _arrays(mol: Chem.Mol, canonical: str | None = None) -> MoleculeArrays:
    """Compute the arrays of a parsed molecule.

    `canonical` is the SMILES, written by RDKit, from which `mol` was parsed. Features that are impossible
    without a certain character in it are not computed. It must not be a user's SMILES, because RDKit may
    change the molecule when it sanitizes it.
    """
    atoms = bytes(_atom_codes(mol, canonical))
    bonds = bytes(_bond_codes(mol, canonical))
    return MoleculeArrays(
        np.frombuffer(atoms, np.uint8).reshape(-1, 9), np.frombuffer(bonds, np.uint8).reshape(-1, 5)
    )


def _atom_codes(mol: Chem.Mol, canonical: str | None) -> list[int]:
    """Return nine codes per atom, in the order of `ogb.utils.features.atom_to_feature_vector`."""
    chiral = canonical is None or "@" in canonical
    charged = canonical is None or "+" in canonical or "-" in canonical
    bracketed = canonical is None or "[" in canonical  # only an atom in brackets can be a radical
    codes: list[int] = []
    for atom in mol.GetAtoms():
        codes += (
            ATOMIC_NUMBER[atom.GetAtomicNum()],
            CHIRALITY[atom.GetChiralTag()] if chiral else 0,
            DEGREE[atom.GetTotalDegree()],
            CHARGE[atom.GetFormalCharge()] if charged else NEUTRAL,
            HYDROGENS[atom.GetTotalNumHs()],
            RADICALS[atom.GetNumRadicalElectrons()] if bracketed else 0,
            HYBRIDIZATION[atom.GetHybridization()],
            atom.GetIsAromatic(),
            atom.IsInRing(),
        )
    return codes


def _bond_codes(mol: Chem.Mol, canonical: str | None) -> list[int]:
    """Return begin atom, end atom and the codes of `ogb.utils.features.bond_to_feature_vector` per bond."""
    stereo = canonical is None or "/" in canonical or "\\" in canonical
    unusual = canonical is None or any(character in canonical for character in ">$~")
    codes: list[int] = []
    for bond in mol.GetBonds():
        codes += (
            bond.GetBeginAtomIdx(),
            bond.GetEndAtomIdx(),
            BOND_TYPE[bond.GetBondType()] if unusual else BOND_TYPE_BY_ORDER[bond.GetBondTypeAsDouble()],
            STEREO[bond.GetStereo()] if stereo else 0,
            bond.GetIsConjugated(),
        )
    return codes
