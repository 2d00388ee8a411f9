"""Statistics of uncertainty: conformal intervals and sets, calibrated probabilities, and their evaluation.

Modules:
    conformal: Intervals and sets of classes with a stated coverage, from held-out rows.
    distribution: The distribution whose quantiles the intervals are.
    probabilities: Calibration of probabilities.
    scores: Rank correlation, miscalibration area and calibration error.
    tails: What is unusual among errors and probabilities.
    difficulty: The expected error of a row.
    similarity_rule: How similar a molecule is to training molecules whose errors are as usual.
    calibration: Held-out predictions of a model, and their file in its folder.

Imports: numpy, `molslice.files`, `molslice.types`. The package knows no models and no molecules.

A conformal interval or set covers the truth with the stated probability, on average over new rows, if new
rows and held-out rows are exchangeable: drawn from the same distribution, in any order. Nothing else is
assumed of the model or of the errors. The probability does not hold for molecules unlike the held-out ones.
"""
