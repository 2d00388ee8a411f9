"""Sizes of OGB's vocabularies for atoms and bonds, the last entry of each feature being its unknown.

Source: `ogb.utils.features.allowable_features` of ogb 1.3; `chem` tests that they are equal. They stand here
so that the model needs no chemistry to know the size of its tables.
"""

# atomic number, chirality, degree, formal charge, hydrogens, radical electrons, hybridization, aromatic, ring
ATOM_FEATURE_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
# type, stereo, conjugated
BOND_FEATURE_SIZES = (5, 6, 2)
