"""Explanations of predictions: contributions of atoms, and attention maps.

A trained model and SMILES come in; numbers for each atom go out, also as JSON and as pictures.

Modules:
    explain: Explains predictions for molecules.
    score: The number that is explained.
    masked_molecule: The arrays of a molecule whose atoms can be masked, for networks.
    gradients: Integrated gradients.
    shapley: Shapley values, exact and sampled.
    surrogate: A smooth approximation of a game, whose Shapley values are known.
    attention: The attention maps of all layers.
    result: The explanations, as JSON and as pictures.
    overview: What a model depends on over many molecules.
    picture_folder: Explains many molecules to a folder.

Imports: `inference` and the packages below it.

To add a method, write a module that computes a number for each atom from a `Score` and a `MaskedMolecule`,
and a branch in `explain`. The package is not called `explain` because `molslice.explain` is the function.
"""
