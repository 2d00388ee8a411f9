r"""One form for a compound, however its hydrogens and isotopes are written.

RDKit makes most hydrogens of a SMILES implicit. It keeps hydrogens with an isotope, on dummy atoms, on stereo
centers that are not tetrahedral, and where they define the stereo of a double bond. Here these join their
heavy atom too:

- Isotopes of all elements are dropped: labeled and plain compounds are one compound.
- Stereo that only a hydrogen or an isotope defines is dropped: `[H]/N=C(/C)CC` is `CCC(C)=N`, which cannot
  be written with stereo without that hydrogen, and `C[C@H]([2H])O` is `CCO`. Stereo that other atoms define
  is kept: `[2H]/C(C)=C/C` is `C/C=C\C`.

A hydrogen remains an atom if it does not belong to one heavy atom: in H2 (`[HH]` and `[2H][2H]` are
`[H][H]`), as an ion, as a bridge between atoms, and as a bonded hydride, whose charge would be lost.
"""

import re

import numpy as np
from rdkit import Chem

HYDROGEN = re.compile(r"\[\d*(?:H(?![a-z])|#0*1(?!\d))")
"""Start of a hydrogen in a SMILES."""

LABELED = re.compile(rf"\[\d|{HYDROGEN.pattern}")
"""Start of a hydrogen or an isotope in a SMILES."""

_JOINED = Chem.RemoveHsParameters()
for _name in (
    "removeDefiningBondStereo",
    "removeDummyNeighbors",
    "removeNontetrahedralNeighbors",
    "updateExplicitCount",  # a dummy atom has no implicit hydrogens
):
    setattr(_JOINED, _name, True)
_JOINED.showWarnings = False
_WITH_HYDROGENS = Chem.SmilesParserParams()
_WITH_HYDROGENS.removeHs = False


def parse_joined(text: str) -> Chem.Mol | None:
    """Parse a SMILES, drop its isotopes and make its hydrogens implicit.

    Returns:
        The molecule, with its other atoms in the same order. None if RDKit cannot read it, with or without
        its hydrogens.
    """
    mol = Chem.MolFromSmiles(text, _WITH_HYDROGENS)
    if mol is None:
        return None
    for atom in mol.GetAtoms():
        atom.SetIsotope(0)
        if atom.GetAtomicNum() == 1:
            atom.SetAtomMapNum(0)
    joined = Chem.RemoveHs(mol, _JOINED)
    short = [atom.GetIdx() for atom in joined.GetAtoms() if atom.GetAtomicNum() == 1 and atom.GetTotalNumHs()]
    if short:  # [HH]
        joined = Chem.AddHs(joined, onlyOnAtoms=short)
    for bond in joined.GetBonds():  # the directions may contradict the stereo without the hydrogens
        bond.SetBondDir(Chem.BondDir.NONE)
    Chem.SetDoubleBondNeighborDirections(joined)
    # parsing again removes stereo that only hydrogens and isotopes defined
    again = Chem.MolFromSmiles(Chem.MolToSmiles(joined), _WITH_HYDROGENS)
    if again is None or again.GetNumAtoms() != joined.GetNumAtoms():
        return None
    return Chem.RenumberAtoms(again, np.argsort(output_order(joined)).tolist())


def output_order(mol: Chem.Mol) -> list[int]:
    """Return the order of the atoms in the SMILES last written for `mol`."""
    return list(mol.GetPropsAsDict(includePrivate=True, includeComputed=True)["_smilesAtomOutputOrder"])
