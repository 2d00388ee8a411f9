"""Names of the codes in the arrays of a molecule, for people."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from rdkit import Chem

from molslice.chem.smiles import parse_smiles
from molslice.chem.vocabulary import (
    BOND_TYPES,
    CHARGES,
    CHIRALITIES,
    ELEMENTS,
    HYBRIDIZATIONS,
    STEREOS,
    name_of,
)
from molslice.ops.vocabulary import ATOM_FEATURE_SIZES, BOND_FEATURE_SIZES
from molslice.types import MoleculeArrays

ATOM_FEATURES = (
    *("element", "chirality", "degree", "charge", "hydrogens", "radicals", "hybridization"),
    *("aromatic", "ring"),
)
BOND_FEATURES = ("begin", "end", "type", "stereo", "conjugated")
OTHER = "other"  # the last code of a feature, which OGB uses for any other value
_YES = ("", "yes")
_FLAGS = ("False", "True")
_ATOM_GETTERS = (
    *("GetAtomicNum", "GetChiralTag", "GetTotalDegree", "GetFormalCharge", "GetTotalNumHs"),
    *("GetNumRadicalElectrons", "GetHybridization", "GetIsAromatic", "IsInRing"),
)
_BOND_GETTERS = ("GetBondType", "GetStereo", "GetIsConjugated")


def atom_vocabulary() -> list[dict[str, Any]]:
    """Describe the features of an atom for programs in other languages, as JSON types.

    Returns:
        For each of `ATOM_FEATURES`: `name`; `rdkit`, the method of an RDKit atom that returns the value;
        `codes`, the code of each value, by the text of the value in Python; `other`, the code of any other
        value.
    """
    values: tuple[Mapping[Any, int], ...] = (
        {number: code for code, number in ELEMENTS.items()},
        _in_order(CHIRALITIES),
        _in_order(range(ATOM_FEATURE_SIZES[2] - 1)),
        {charge: code for code, charge in CHARGES.items()},
        _in_order(range(ATOM_FEATURE_SIZES[4] - 1)),
        _in_order(range(ATOM_FEATURE_SIZES[5] - 1)),
        _in_order(HYBRIDIZATIONS),
        _in_order(_FLAGS),
        _in_order(_FLAGS),
    )
    others = [size - 1 for size in ATOM_FEATURE_SIZES]
    return _vocabulary(ATOM_FEATURES, _ATOM_GETTERS, values, others)


def bond_vocabulary() -> list[dict[str, Any]]:
    """Describe the features of a bond after its two atoms, as `atom_vocabulary`."""
    values = (_in_order(BOND_TYPES), _in_order(STEREOS), _in_order(_FLAGS))
    return _vocabulary(BOND_FEATURES[2:], _BOND_GETTERS, values, [BOND_FEATURE_SIZES[0] - 1, 0, 1])


def _in_order(values: Iterable[Any]) -> dict[Any, int]:
    return {value: code for code, value in enumerate(values)}


def _vocabulary(
    names: Sequence[str], getters: Sequence[str], values: Sequence[Mapping[Any, int]], others: Sequence[int]
) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "rdkit": getter,
            "codes": {str(value): code for value, code in codes.items()},
            "other": other,
        }
        for name, getter, codes, other in zip(names, getters, values, others, strict=True)
    ]


def atom_names(molecule: MoleculeArrays) -> list[tuple[str, ...]]:
    """Return one row for each atom, with one text for each of `ATOM_FEATURES`."""

    def name(code: np.ndarray) -> tuple[str, ...]:
        element, chirality, degree, charge, hydrogens, radicals, hybridization, aromatic, ring = code.tolist()
        return (
            element_symbol(element),
            name_of(("", *CHIRALITIES[1:]), chirality, OTHER).removeprefix("CHI_").lower(),
            _counted(degree, 2),
            f"{CHARGES[charge]:+d}".replace("+0", "0") if charge in CHARGES else OTHER,
            _counted(hydrogens, 4),
            _counted(radicals, 5),
            name_of(HYBRIDIZATIONS, hybridization, OTHER).lower(),
            _YES[aromatic],
            _YES[ring],
        )

    return [name(code) for code in molecule.atoms]


def bond_names(molecule: MoleculeArrays) -> list[tuple[str, ...]]:
    """Return one row for each bond, with one text for each of `BOND_FEATURES`."""
    return [
        (
            str(begin),
            str(end),
            name_of(BOND_TYPES, kind, OTHER).lower(),
            name_of(("", *STEREOS[1:]), stereo, OTHER).removeprefix("STEREO"),
            _YES[conjugated],
        )
        for begin, end, kind, stereo, conjugated in molecule.bonds.tolist()
    ]


def element_symbols(smiles: str, *, as_written: bool = False) -> tuple[str, ...]:
    """Return the symbol of each atom of a SMILES, in its order; `*` for a wildcard.

    Raises:
        ChemError: As in `parse_smiles`.
    """
    return tuple(atom.GetSymbol() for atom in parse_smiles(smiles, as_written=as_written).GetAtoms())


def contained_elements(molecule: MoleculeArrays) -> list[str]:
    """Return the symbols of the elements of a molecule, each once, by atomic number; `*` for a wildcard."""
    return [element_symbol(code) for code in np.unique(molecule.atoms[:, 0]).tolist()]


def element_symbol(code: int) -> str:
    """Return the symbol of the index of an element; `*` for a wildcard."""
    return Chem.GetPeriodicTable().GetElementSymbol(ELEMENTS[code]) if code in ELEMENTS else "*"


def _counted(code: int, feature: int) -> str:
    """Return a count; the last code of a feature is any larger one."""
    return str(code) if code < ATOM_FEATURE_SIZES[feature] - 1 else OTHER
