"""One form of a molecule for its salts, charges and tautomers, by RDKit's MolStandardize.

Source: RDKit's port of MolVS (Swain 2014). The canonical tautomer follows Sitzmann, Ihlenfeldt and Nicklaus,
J. Comput. Aided Mol. Des. 24 (2010) 521, in RDKit's implementation.
"""

from functools import cache
from typing import NamedTuple

from rdkit import Chem
from rdkit.Chem.MolStandardize import rdMolStandardize as Standardizer

from molslice.chem.fragments import choose_fragment
from molslice.chem.smiles import (
    MAX_PARSED_ATOMS,
    ChemError,
    parse_unguarded,
    parse_without_maps,
    quiet_rdkit,
)

MOST_TAUTOMERS, MOST_TRANSFORMS = 200, 500  # of one molecule; takes seconds at most


class Standardized(NamedTuple):
    """A standardized molecule.

    Attributes:
        smiles: Its SMILES; the given text if it cannot be read.
        replaced: Whether a mixture was replaced by its largest molecule.
        changed: Whether the molecule is another one than before, apart from this.
        kept: Whether RDKit could not do all steps, because it has too many tautomers or no valid form.
    """

    smiles: str
    replaced: bool = False
    changed: bool = False
    kept: bool = False


def standardize(smiles: str, choice: str, fragment: str = "keep") -> Standardized:
    """Write a molecule in a standard form.

    1. Covalent bonds to metals are broken, functional groups such as nitro groups, N-oxides and sulfoxides
       are written in one way, and protons are moved to the strongest base.
    2. A mixture is replaced or refused, if that is chosen; see `choose_fragment`.
    3. Charges are removed by adding or removing protons, as far as the molecule, or the whole mixture,
       becomes neutral. Sodium acetate is kept, and a quaternary ammonium stays a cation.
    4. The choice `tautomer` takes the canonical tautomer, and `neutral` does not. Stereocenters are kept.

    Isotopes and atom-map numbers are dropped, as everywhere.
    The result does not depend on how the molecule is written. The choice `no` does step 2 alone.

    Returns:
        The molecule. It keeps the form of the step before if a step fails, or if there are more than 200
        tautomers, or 500 transformations between them.

    Raises:
        ChemError: The molecule is a mixture and `fragment` is `refuse`.
    """
    if choice == "no":
        text = choose_fragment(smiles, fragment)
        return Standardized(text, text is not smiles)
    try:
        with quiet_rdkit():
            written = Chem.MolToSmiles(parse_without_maps(smiles))
    except ChemError:
        return Standardized(smiles)
    try:
        with quiet_rdkit():
            mol, kept = Standardizer.Cleanup(parse_without_maps(written)), False
            cleaned = Chem.MolToSmiles(mol)
    except ChemError:
        mol, kept, cleaned = None, True, written
    text = choose_fragment(cleaned, fragment)
    replaced = text is not cleaned
    try:
        with quiet_rdkit():
            mol = parse_without_maps(text) if replaced or mol is None else mol
            text = _settled(_tools().uncharger.uncharge(mol))
            if choice == "tautomer":
                tautomers = _tools().enumerator.Enumerate(parse_without_maps(text))
                if tautomers.status != Standardizer.TautomerEnumeratorStatus.Completed:
                    kept = True
                else:
                    text = _settled(_tools().enumerator.PickCanonical(tautomers))
    except ChemError:
        kept = True
    changed = text not in written.split(".") if replaced else text != written
    return Standardized(text, replaced, changed, kept)


def _settled(mol: Chem.Mol) -> str:
    """Return the SMILES of a changed molecule, parsed again to drop stereo that it no longer has."""
    return Chem.MolToSmiles(parse_unguarded(Chem.MolToSmiles(mol), MAX_PARSED_ATOMS))


class _Tools(NamedTuple):
    uncharger: Standardizer.Uncharger
    enumerator: Standardizer.TautomerEnumerator


@cache
def _tools() -> _Tools:
    """Return RDKit's tools, which take time to make."""
    enumerator = Standardizer.TautomerEnumerator()
    enumerator.SetMaxTautomers(MOST_TAUTOMERS)
    enumerator.SetMaxTransforms(MOST_TRANSFORMS)
    enumerator.SetRemoveSp3Stereo(False)  # an amino acid has no stereocenter otherwise
    return _Tools(Standardizer.Uncharger(canonicalOrder=True), enumerator)
