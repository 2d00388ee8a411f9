"""A SMILES to the compact arrays of its molecular graph, equal to OGB's `smiles2graph`.

With `atom_order="input"` the arrays are those of `ogb.utils.smiles2graph(smiles)`, atom by atom and bond by
bond, each bond once. With `atom_order="canonical"` they are those of `smiles2graph(canonical SMILES)`, so
that one molecule gives the same arrays whichever way it is written. Renumbering the atoms would not do: a
chirality tag (clockwise, counterclockwise) refers to the order in which the neighbors stand. Atom-map
numbers are not chemistry and are dropped before the canonical order is sought. What RDKit's canonical
SMILES does not settle stays open: 1,2,3,4,5,6-hexachlorocyclohexane, for one, has two of them.
"""

import math
from typing import Literal

import numpy as np
from rdkit import Chem, rdBase

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

AtomOrder = Literal["canonical", "input"]
ATOM_ORDERS: tuple[AtomOrder, ...] = ("canonical", "input")
HARD_MAX_ATOMS = 256  # the ends of a bond are stored as bytes
MAX_CHARACTERS = 100_000
NEUTRAL = CHARGE[0]


class ChemError(MolsliceError):
    """A SMILES that cannot become a molecular graph; the message is the reason."""


def molecule_arrays(
    smiles: str, *, max_atoms: int = HARD_MAX_ATOMS, atom_order: AtomOrder = "canonical"
) -> MoleculeArrays:
    """The arrays of one molecule: atoms uint8 [n, 9], bonds uint8 [m, 5].

    Hydrogens are implicit as in OGB. RDKit's log is silent inside.

    Args:
        smiles: what RDKit reads, salts, isotopes, radicals, wildcards and metals included.
        max_atoms: molecules with more atoms are refused; at most 256.
        atom_order: `canonical`, or `input` for the order in which the SMILES lists the atoms.

    Raises:
        ChemError: not a string, empty, not readable, no atoms, or too many.
        MolsliceError: `max_atoms` or `atom_order` is not a choice.
    """
    check_options(max_atoms, atom_order)
    _refuse_what_is_no_text(smiles)
    with rdBase.BlockLogs():
        try:
            mol = _parse(smiles, max_atoms)
            if atom_order == "input":
                return _arrays(mol)
            # an atom-map number, in SMILES or CXSMILES, takes a colon
            if ":" in smiles and _drop_atom_maps(mol):
                # chirality that only the map numbers told apart goes when the SMILES is read again
                mol = Chem.MolFromSmiles(Chem.MolToSmiles(mol)) or mol
            return _canonical_arrays(mol)
        except (RuntimeError, UnicodeError) as error:  # an invariant of RDKit's broken; unpaired surrogates
            raise ChemError(f"RDKit cannot read it: {str(error).strip().splitlines()[0]}") from error


def check_options(max_atoms: int, atom_order: str) -> None:
    """Refuse options that no molecule could satisfy.

    Raises:
        MolsliceError: the message names the option, its value and the choices.
    """
    if not 1 <= max_atoms <= HARD_MAX_ATOMS:
        raise MolsliceError(f"max_atoms must lie between 1 and {HARD_MAX_ATOMS}, got {max_atoms}")
    if atom_order not in ATOM_ORDERS:
        raise MolsliceError(f"atom_order must be one of {', '.join(ATOM_ORDERS)}, got {atom_order!r}")


def _refuse_what_is_no_text(smiles: object) -> None:
    if smiles is None or (isinstance(smiles, float) and math.isnan(smiles)):
        raise ChemError("no SMILES given")
    if not isinstance(smiles, str):
        raise ChemError(f"not a string but {type(smiles).__name__}")
    if not smiles.strip():
        raise ChemError("empty SMILES")
    if len(smiles) > MAX_CHARACTERS:
        raise ChemError(f"SMILES of {len(smiles)} characters, more than {MAX_CHARACTERS}")
    if "\0" in smiles:
        raise ChemError("SMILES with a null character")


def _parse(smiles: str, max_atoms: int) -> Chem.Mol:
    mol = Chem.MolFromSmiles(smiles)
    if mol is None:
        raise ChemError(_why_unreadable(smiles))
    if mol.GetNumAtoms() == 0:
        raise ChemError("molecule without atoms")
    if mol.GetNumAtoms() > max_atoms:
        raise ChemError(f"{mol.GetNumAtoms()} atoms, more than max_atoms={max_atoms}")
    return mol


def _why_unreadable(smiles: str) -> str:
    """What RDKit objects to: the syntax, or the chemistry of a graph whose syntax it can read."""
    lenient = Chem.SmilesParserParams()
    lenient.sanitize = False
    lenient.removeHs = False
    lenient.strictCXSMILES = False
    mol = Chem.MolFromSmiles(smiles, lenient)
    if mol is None:
        return "not valid SMILES"
    problems = [problem.Message().strip() for problem in Chem.DetectChemistryProblems(mol)]
    return "; ".join(problems[:3]) or "RDKit cannot sanitize it"


def _canonical_arrays(mol: Chem.Mol) -> MoleculeArrays:
    canonical = Chem.MolToSmiles(mol)
    again = Chem.MolFromSmiles(canonical)
    if again is None or again.GetNumAtoms() != mol.GetNumAtoms():
        # no such molecule is known; should RDKit not read its own SMILES, the atoms still stand in its order
        order = mol.GetPropsAsDict(includePrivate=True, includeComputed=True)["_smilesAtomOutputOrder"]
        return _arrays(Chem.RenumberAtoms(mol, list(order)))
    return _arrays(again, canonical)


def _drop_atom_maps(mol: Chem.Mol) -> bool:
    mapped = [atom for atom in mol.GetAtoms() if atom.GetAtomMapNum()]
    for atom in mapped:
        atom.SetAtomMapNum(0)
    return bool(mapped)


def _arrays(mol: Chem.Mol, canonical: str | None = None) -> MoleculeArrays:
    """The arrays of a parsed molecule.

    `canonical` is the SMILES, written by RDKit, that `mol` was parsed from: what its characters rule out
    need not be asked of every atom. It must not be a SMILES from outside, which RDKit may change in
    cleaning it up.
    """
    atoms = bytes(_atom_codes(mol, canonical))
    bonds = bytes(_bond_codes(mol, canonical))
    return MoleculeArrays(
        np.frombuffer(atoms, np.uint8).reshape(-1, 9), np.frombuffer(bonds, np.uint8).reshape(-1, 5)
    )


def _atom_codes(mol: Chem.Mol, canonical: str | None) -> list[int]:
    """Nine codes an atom, in the order of `ogb.utils.features.atom_to_feature_vector`."""
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
    """Begin atom, end atom, and three codes a bond, as `ogb.utils.features.bond_to_feature_vector`."""
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
