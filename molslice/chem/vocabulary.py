"""OGB's vocabularies as lookup tables from RDKit's values to OGB's indices.

A table is a tuple indexed by the integer value of RDKit's property. This is several times faster than OGB's
search in lists of strings. The last index of a vocabulary is the unknown.

Source: `ogb.utils.features.allowable_features` of ogb 1.3.
"""

from collections.abc import Sequence

from rdkit import Chem

CHIRALITIES = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER")
HYBRIDIZATIONS = ("SP", "SP2", "SP3", "SP3D", "SP3D2")
BOND_TYPES = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
STEREOS = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")
BYTE = 256  # RDKit stores degrees, charges, hydrogen and radical counts in one byte each


def name_of(names: Sequence[str], code: int, other: str = "") -> str:
    """Return the name of a code; `other` for a code beyond the names."""
    return names[code] if code < len(names) else other


def _by_name(enum: type, names: tuple[str, ...], unknown: int) -> tuple[int, ...]:
    """Build the table of an RDKit enumeration: the index of a member's name in `names`, else `unknown`."""
    members = enum.values  # type: ignore[attr-defined]  # members of Boost enumerations
    size = max(members) + 1
    labels = {int(value): str(member) for value, member in members.items()}
    return tuple(names.index(labels[i]) if labels.get(i) in names else unknown for i in range(size))


def _counts(largest: int) -> tuple[int, ...]:
    """Build the table of a count: the count itself up to `largest`, the unknown above it."""
    return tuple(min(count, largest + 1) for count in range(BYTE))


# element 1 has index 0; the wildcard, element 0, is unknown
ATOMIC_NUMBER = (118, *range(118))
CHIRALITY = _by_name(Chem.ChiralType, CHIRALITIES, unknown=len(CHIRALITIES))
DEGREE = _counts(10)
# a negative charge indexes the tuple from its end
CHARGE = tuple(charge + 5 if -5 <= charge <= 5 else 11 for charge in (*range(128), *range(-128, 0)))
# from OGB's indices back to RDKit's values; the unknown is missing
ELEMENTS = {code: number for number, code in enumerate(ATOMIC_NUMBER) if number}
CHARGES = {CHARGE[charge]: charge for charge in range(-5, 6)}
HYDROGENS = _counts(8)
RADICALS = _counts(4)
HYBRIDIZATION = _by_name(Chem.HybridizationType, HYBRIDIZATIONS, unknown=len(HYBRIDIZATIONS))

BOND_TYPE = _by_name(Chem.BondType, BOND_TYPES, unknown=len(BOND_TYPES))
# OGB's list of stereo has no unknown and raises for atropisomers (STEREOATROPCW, STEREOATROPCCW), which plain
# SMILES cannot express; here such a bond is STEREONONE, as in its plain SMILES
STEREO = _by_name(Chem.BondStereo, STEREOS, unknown=STEREOS.index("STEREONONE"))
