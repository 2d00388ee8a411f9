"""Chemistry: SMILES in, compact integer arrays out.

Modules:
    smiles: Parse a SMILES to RDKit's molecule, or give the reason why not; SMILES of RDKit molecules.
    hydrogens: One form for a compound, however its hydrogens and isotopes are written.
    isotopes: The weight of isotopes.
    featurize: Convert one SMILES or many to arrays.
    binary: Features of many molecules from RDKit's binary form.
    fragments: The molecules of mixtures and salts; wildcards, R-groups and bonds of any order.
    standardize: One form of a molecule for its charges and tautomers.
    parent: Compounds without counterions, charges and stereochemistry.
    molblock: SMILES of connection tables, as in SD files.
    vocabulary: OGB's vocabularies as lookup tables.
    canonical: Canonical SMILES and the canonical order of the atoms.
    descriptors: RDKit's descriptors and Morgan counts.
    conformers: Coordinates of the atoms of a molecule.
    neighbors: Nearest molecules by the similarity of Morgan counts.
    clusters: Clusters of similar molecules, by which a split keeps chemical series together.
    scaffold: Scaffolds of molecules, by which a split keeps similar molecules together.
    connectivity: Skeletons of molecules, by which forms of one molecule are recognized.
    rebuild: Molecules and SMILES from arrays.
    naming: Names of the codes in the arrays.
    drawing: Drawings of molecules as files.
    coloring: Drawings whose atoms are colored by numbers.
    layout: Positions of atoms in a drawing.
    saturated: The saturated hydrocarbon with the skeleton of a molecule.
    masked: Molecules in which some atoms are replaced by carbon.

Imports: rdkit (in no other package), `molslice.ops`, `molslice.types`, numpy. This module does not import
rdkit, because training from a prepared store and predicting from a prepared batch do not need it.

To add a feature, give it a size in `molslice.ops.vocabulary`, a table in `vocabulary.py`, and a column in
`binary.py` and in `featurize.py`, and increase `FEATURIZER_VERSION`.
"""

FEATURIZER_VERSION = 3
"""Increased when the arrays or the error of any row change, so that older caches are not used."""

_ALIKE = {"2", "3"}

BACKGROUNDS = ("white", "dark", "transparent")
"""What is behind a drawing; `transparent` has dark lines, for light slides."""

FRAGMENTS = ("keep", "largest", "refuse")
"""What to do with a mixture of several molecules; see `molslice.chem.fragments`."""

WILDCARDS = ("refuse", "keep")
"""What to do with wildcards, R-groups and bonds of any order; see `molslice.chem.fragments`."""

STANDARDS = ("no", "neutral", "tautomer")
"""What standard form molecules get; see `molslice.chem.standardize`."""

DESCRIPTORS_VERSION = 1
"""Increased when the list of descriptors or the meaning of a value changes."""

GEOMETRY_VERSION = 1
"""Increased when the coordinates of a molecule change for another reason than a new version of RDKit."""


def check_choices(*, fragment: str = "keep", wildcards: str = "keep") -> None:
    """Check what happens to mixtures and wildcards.

    Raises:
        MolsliceError: `fragment` is not one of `FRAGMENTS`, or `wildcards` is not one of `WILDCARDS`.
    """
    for name, choice, choices in (("fragment", fragment, FRAGMENTS), ("wildcards", wildcards, WILDCARDS)):
        if choice not in choices:
            from molslice.errors import MolsliceError
            from molslice.registry import near_names  # imports torch, which `--help` does not need

            raise MolsliceError(f"unknown {name} {choice!r}; {near_names(str(choice), choices)}")


def have_same_features(then: object, now: object) -> bool:
    """Return whether two versions of the featurizer give the same arrays, except of hydrogens and isotopes.

    Version 2 kept some hydrogens as atoms; see `molslice.chem.hydrogens`. Several versions in one text are
    separated by commas.
    """
    return then == now or {*str(then).split(", "), *str(now).split(", ")} <= _ALIKE
