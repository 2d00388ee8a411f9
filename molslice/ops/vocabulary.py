"""Sizes of OGB's vocabularies for atoms and bonds. The last entry of each feature is its unknown.

Source: `ogb.utils.features.allowable_features` of ogb 1.3; a test of `chem` compares them. They are defined
here so that the model does not import chemistry.
"""

# atomic number, chirality, degree, formal charge, hydrogens, radical electrons, hybridization, aromatic, ring
ATOM_FEATURE_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
# type, stereo, conjugated
BOND_FEATURE_SIZES = (5, 6, 2)
