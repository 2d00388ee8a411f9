"""Names of the codes in the arrays of a molecule, for people."""

import numpy as np
from rdkit import Chem

from molslice.chem.vocabulary import BOND_TYPES, CHARGES, CHIRALITIES, ELEMENTS, HYBRIDIZATIONS, STEREOS
from molslice.ops.vocabulary import ATOM_FEATURE_SIZES
from molslice.types import MoleculeArrays

__all__ = ["ATOM_FEATURES", "BOND_FEATURES", "atom_names", "bond_names"]

ATOM_FEATURES = (
    *("element", "chirality", "degree", "charge", "hydrogens", "radicals", "hybridization"),
    *("aromatic", "ring"),
)
BOND_FEATURES = ("begin", "end", "type", "stereo", "conjugated")
OTHER = "other"  # the last code of a feature, which OGB uses for any other value
_YES = ("", "yes")


def atom_names(molecule: MoleculeArrays) -> list[tuple[str, ...]]:
    """Return one row for each atom, with one text for each of `ATOM_FEATURES`."""
    periodic = Chem.GetPeriodicTable()

    def name(code: np.ndarray) -> tuple[str, ...]:
        element, chirality, degree, charge, hydrogens, radicals, hybridization, aromatic, ring = code.tolist()
        return (
            periodic.GetElementSymbol(ELEMENTS[element]) if element in ELEMENTS else "*",
            _named(("", *CHIRALITIES[1:]), chirality).removeprefix("CHI_").lower(),
            _counted(degree, 2),
            f"{CHARGES[charge]:+d}".replace("+0", "0") if charge in CHARGES else OTHER,
            _counted(hydrogens, 4),
            _counted(radicals, 5),
            _named(HYBRIDIZATIONS, hybridization).lower(),
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
            _named(BOND_TYPES, kind).lower(),
            _named(("", *STEREOS[1:]), stereo).removeprefix("STEREO"),
            _YES[conjugated],
        )
        for begin, end, kind, stereo, conjugated in molecule.bonds.tolist()
    ]


def _named(names: tuple[str, ...], code: int) -> str:
    return names[code] if code < len(names) else OTHER


def _counted(code: int, feature: int) -> str:
    """Return a count; the last code of a feature is any larger one."""
    return str(code) if code < ATOM_FEATURE_SIZES[feature] - 1 else OTHER
