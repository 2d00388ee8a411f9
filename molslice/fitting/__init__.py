"""Fit: from a table of molecules and measurements to a folder with a stacked model.

Modules, in the order in which `fit` uses them:
    first_checks: What a fit is refused for at once.
    fit: `fit`, one whole fit.
    table: From the table to the rows, `data`.
    columns, classes, limits, precision, concentrations, conditions: What it reads.
    duplicates, groups, split: Which rows are merged, stay together, and are held out.
    target_checks: Whether each target can be learned.
    folds: The divisions into folds.
    stacks: Fits and weighs the learners of all targets, as `quality` says.
    related: Predicts measured targets of other tables, as features.
    learner_fits: Fits the learners of each fold.
    networks: Fine-tunes the encoder for each fold.
    errors: Held-out errors and their standard errors.
    domain: The training molecules, and which others are like them.
    record, card: Writes the folder and its card.
    compared_fits: Several fits in one table.

The learners are in `molslice.learners`, the folder is read by `molslice.folders.fitted`, and
`molslice.inference.fitted` predicts with it: these are below this package, because `fit` itself predicts.

Imports: `training` and the packages below it.
"""
