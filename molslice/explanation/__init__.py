"""Explanations of predictions: contributions of atoms, and attention maps.

Modules:
    explain: Explains predictions for molecules.
    score: The number that is explained.
    molecule: A molecule whose atoms can be masked, and the baseline.
    gradients: Integrated gradients.
    shapley: Shapley values, exact and sampled.
    surrogate: A smooth approximation of a game, whose Shapley values are known.
    attention: The attention maps of all layers.
    result: What an explanation holds.
    pictures: Pictures of explanations.
    files: Explains many molecules to a folder.

Imports: `inference` and the packages below it.

To add a method, write a module that computes a number for each atom from a `Score` and a `MaskedMolecule`,
and a branch in `explain`. The package is not called `explain` because `molslice.explain` is the function.
"""
