"""Convert a SMILES to the compact arrays of its molecular graph, equal to OGB's `smiles2graph`.

With `atom_order="input"` the arrays equal `ogb.utils.smiles2graph(smiles)`, atom by atom and bond by bond,
with each bond once; hydrogens that RDKit keeps are atoms. With `atom_order="canonical"` they equal
`smiles2graph(canonical SMILES)`, so that all SMILES of a molecule give the same arrays. Renumbering the
atoms would not be sufficient, because a chirality tag (clockwise, counterclockwise) refers to the order of
the neighbors. Before that, atom-map numbers and isotopes are removed, and hydrogens join their heavy atoms;
see `molslice.chem.hydrogens`. `molslice.chem.canonical` computes the canonical order.
"""

import functools
from collections.abc import Sequence
from typing import Literal

import numpy as np
from rdkit import Chem, rdBase

from molslice.chem.binary import read_binaries
from molslice.chem.canonical import canonical_unguarded
from molslice.chem.smiles import HARD_MAX_ATOMS, ChemError, parse_unguarded, quiet_rdkit, rdkit_reason
from molslice.chem.vocabulary import (
    ATOMIC_NUMBER,
    BOND_TYPE,
    CHARGE,
    CHIRALITY,
    DEGREE,
    HYBRIDIZATION,
    HYDROGENS,
    RADICALS,
    STEREO,
)
from molslice.types import ManyArrays, MoleculeArrays, MolsliceError

AtomOrder = Literal["canonical", "input"]
ATOM_ORDERS: tuple[AtomOrder, ...] = ("canonical", "input")
CHECKED_SMILES = (  # every feature that the binary form holds
    "CC(=O)Oc1ccccc1C(=O)O",
    "C[C@H](N)C(=O)[O-].[Na+]",
    "F/C=C/C#N",
    "F/C=C\\Cl",
    "[CH2]C[CH]",
    "C[S@](=O)c1ccsc1",
    "[13CH3][N+](C)(C)C",
    "[2H]O",
    "[NH4+].F[P-](F)(F)(F)(F)F",
    "[Fe+2].[cH-]1cccc1",
    "N->[Pt]",
    "C1CC2CCC1C2",
    "O=S(=O)(O)O",
    "CC#[N+][O-]",
    "[H][H]",
)


def molecule_arrays(
    smiles: str, *, max_atoms: int = HARD_MAX_ATOMS, atom_order: AtomOrder = "canonical"
) -> MoleculeArrays:
    """Convert one SMILES to arrays. Hydrogens are implicit. RDKit's log is silenced.

    Args:
        smiles: Any SMILES that RDKit can parse, including salts, isotopes, radicals, wildcards and metals.
        max_atoms: Maximum number of atoms, at most 256.
        atom_order: `canonical`, or `input` for the atoms of the SMILES as OGB has them.

    Returns:
        Atoms uint8 [n, 9] and bonds uint8 [m, 5].

    Raises:
        ChemError: The SMILES is not a string, is empty or invalid, or has no atoms or too many.
        MolsliceError: `max_atoms` or `atom_order` is invalid.

    Source: `ogb.utils.mol.smiles2graph` of ogb 1.3.
    """
    check_options(max_atoms, atom_order)
    with quiet_rdkit():
        if atom_order == "input":
            return arrays_by_getters(parse_unguarded(smiles, max_atoms, as_written=True))
        return arrays_by_getters(canonical_unguarded(parse_unguarded(smiles, max_atoms), smiles).mol)


def check_options(max_atoms: int, atom_order: str) -> None:
    """Refuse invalid options of `molecule_arrays`."""
    if not 1 <= max_atoms <= HARD_MAX_ATOMS:
        raise MolsliceError(f"max_atoms must be between 1 and {HARD_MAX_ATOMS}, got {max_atoms}")
    if atom_order not in ATOM_ORDERS:
        raise MolsliceError(f"atom_order must be one of {', '.join(ATOM_ORDERS)}, got {atom_order!r}")


def many_molecule_arrays(
    smiles: Sequence[str], *, max_atoms: int = HARD_MAX_ATOMS, atom_order: AtomOrder = "canonical"
) -> ManyArrays:
    """Convert many SMILES to the arrays of `molecule_arrays`, with its options, in less time.

    Raises:
        MolsliceError: `max_atoms` or `atom_order` is invalid.
    """
    check_options(max_atoms, atom_order)
    rows: list[int] = []
    binaries: list[bytes] = []
    errors: dict[int, str] = {}
    with rdBase.BlockLogs():
        for row, text in enumerate(smiles):
            try:
                mol = parse_unguarded(text, max_atoms, as_written=atom_order == "input")
                if atom_order == "canonical":
                    mol = canonical_unguarded(mol, text).mol
                binaries.append(mol.ToBinary(0))
                rows.append(row)
            except ChemError as error:
                errors[row] = str(error)
            except (RuntimeError, ValueError) as error:
                errors[row] = rdkit_reason(error)
    return _assemble(smiles, rows, binaries, errors, max_atoms, atom_order)


def canonical_arrays(smiles: Sequence[str], binaries: Sequence[bytes]) -> ManyArrays:
    """Return the result of `many_molecule_arrays` for molecules that are read already.

    Args:
        smiles: Their canonical SMILES.
        binaries: The molecules of `canonical_molecule`, each as `mol.ToBinary(0)`; an empty one has no atoms.
    """
    rows = [row for row, binary in enumerate(binaries) if binary]
    return _assemble(smiles, rows, [*filter(None, binaries)], {}, HARD_MAX_ATOMS, "canonical")


def _assemble(
    smiles: Sequence[str],
    rows: Sequence[int],
    binaries: Sequence[bytes],
    errors: dict[int, str],
    max_atoms: int,
    atom_order: AtomOrder,
) -> ManyArrays:
    """Read the binary forms of some rows; rows of an unknown form are read with RDKit's getters."""
    counts = np.zeros((2, len(smiles)), np.int64)
    atoms, bonds = np.empty((0, 9), np.uint8), np.empty((0, 5), np.uint8)
    if rows and _binary_is_known():
        atoms, bonds, counts[0, rows], counts[1, rows], _ = read_binaries(binaries)
    unknown = [row for row in rows if not counts[0, row]]
    if unknown:
        ends = counts.cumsum(1)  # a row of an unknown form is empty so far
        arrays = [molecule_arrays(smiles[row], max_atoms=max_atoms, atom_order=atom_order) for row in unknown]
        counts[:, unknown] = np.transpose([[len(molecule.atoms), len(molecule.bonds)] for molecule in arrays])
        places = [np.repeat(ends[kind, unknown], counts[kind, unknown]) for kind in (0, 1)]
        atoms = np.insert(atoms, places[0], np.concatenate([molecule.atoms for molecule in arrays]), axis=0)
        bonds = np.insert(bonds, places[1], np.concatenate([molecule.bonds for molecule in arrays]), axis=0)
    return ManyArrays(atoms, bonds, counts[0], counts[1], errors)


@functools.cache
def _binary_is_known() -> bool:
    """Whether this version of RDKit writes the binary form that `read_binaries` knows."""
    mols = [Chem.MolFromSmiles(smiles) for smiles in CHECKED_SMILES]
    expected = [arrays_by_getters(mol) for mol in mols]
    atoms, bonds, *_ = read_binaries([mol.ToBinary(0) for mol in mols])
    return np.array_equal(atoms, np.concatenate([arrays.atoms for arrays in expected])) and np.array_equal(
        bonds, np.concatenate([arrays.bonds for arrays in expected])
    )


def arrays_by_getters(mol: Chem.Mol) -> MoleculeArrays:
    """Compute the arrays of a parsed molecule with RDKit's getters.

    Source: `ogb.utils.features.atom_to_feature_vector` and `bond_to_feature_vector` of ogb 1.3.
    """
    atoms: list[int] = []
    for atom in mol.GetAtoms():
        atoms += (
            ATOMIC_NUMBER[atom.GetAtomicNum()],
            CHIRALITY[atom.GetChiralTag()],
            DEGREE[atom.GetTotalDegree()],
            CHARGE[atom.GetFormalCharge()],
            HYDROGENS[atom.GetTotalNumHs()],
            RADICALS[atom.GetNumRadicalElectrons()],
            HYBRIDIZATION[atom.GetHybridization()],
            atom.GetIsAromatic(),
            atom.IsInRing(),
        )
    bonds: list[int] = []
    for bond in mol.GetBonds():
        bonds += (
            bond.GetBeginAtomIdx(),
            bond.GetEndAtomIdx(),
            BOND_TYPE[bond.GetBondType()],
            STEREO[bond.GetStereo()],
            bond.GetIsConjugated(),
        )
    return MoleculeArrays(
        np.frombuffer(bytes(atoms), np.uint8).reshape(-1, 9),
        np.frombuffer(bytes(bonds), np.uint8).reshape(-1, 5),
    )
