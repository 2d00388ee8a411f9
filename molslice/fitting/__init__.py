"""Fit: from a table of molecules and measurements to a folder with a stacked model.

Modules, in the order in which `fit` uses them:
    fit: `fit`, one whole fit.
    table, limits, precision, concentrations, duplicates, split: From the table to the rows, `data`.
    folds: The divisions into folds.
    learner_fits: Fits the learners of each fold and their weights.
    networks: Fine-tunes the encoder for each fold.
    errors: Held-out errors and their standard errors.
    record, card: Writes the folder and its card.

The learners are in `molslice.learners`, the folder is read by `molslice.folders.fitted`, and
`molslice.inference.fitted` predicts with it: these are below this package, because `fit` itself predicts.

Imports: `training` and the packages below it.
"""
