"""The domain of a fit: its training molecules, and the rule that its out-of-fold errors give."""

from collections.abc import Sequence

import numpy as np

from molslice.chem.neighbors import CountIndex
from molslice.fitting.data import FitData
from molslice.fitting.learner_fits import TargetFit
from molslice.inference.domain import TrainingDomain
from molslice.uncertainty.similarity_rule import MOST_COMPARED, SimilarityRule, are_covered, mean_of_rows


def describe_domain(
    data: FitData, rows: np.ndarray, outcomes: Sequence[TargetFit], folds: np.ndarray
) -> TrainingDomain:
    """Describe the training molecules of a fit of single molecules.

    Args:
        data: The rows.
        rows: The training rows in the order in which they are kept, int [k].
        outcomes: What is fitted to each target.
        folds: Fold of each row in each assignment, int [A, n]; -1 for held-out rows.
    """
    # a mean over conditions, or the index of a class, would say little
    several = np.array([target_type.several is not None for target_type in data.types])
    values = np.where(several, np.nan, data.targets[rows])
    values = None if data.conditions or several.all() else values
    domain = TrainingDomain.of_smiles([data.molecules.canonical[row] for row in rows], values=values)
    compared = rows
    if len(rows) > MOST_COMPARED:
        compared = np.sort(np.random.default_rng(0).choice(rows, MOST_COMPARED, replace=False))
    errors, covered = _errors(data, outcomes)
    similarities = _similarities(data.molecules.counts, compared, folds)
    molecules = np.array([data.molecules.canonical[row] for row in compared])
    domain.rule = SimilarityRule.choose(
        similarities, errors[compared], covered[compared], threshold=domain.threshold, molecules=molecules
    )
    return domain


def _similarities(counts: np.ndarray, rows: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Find the similarity of rows to the nearest molecule that was learned by the models which predict them.

    It is averaged over the assignments, float64 [k].
    """
    learned = np.flatnonzero(folds[0] >= 0)
    index, of_learned = CountIndex.from_counts(counts[learned]), folds[:, learned]
    nearest = np.empty(len(rows))
    for place, row in enumerate(rows):
        similarities = index.similarities(counts[row])
        nearest[place] = np.mean(
            [
                similarities[of_fold != folds[number, row]].max(initial=0.0)
                for number, of_fold in enumerate(of_learned)
            ]
        )
    return nearest


def _errors(data: FitData, outcomes: Sequence[TargetFit]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean relative out-of-fold error of each row, and the share of its intervals that hold it.

    An error is relative to the mean error of its target. The error of a class is one minus the probability of
    the measured one. A target with fewer rows than an interval needs has no intervals.

    Returns:
        float64 [n] each, NaN for a row without any.
    """
    errors, covered = np.full((2, len(data.smiles), len(outcomes)), np.nan)
    for index, (of_target, fit) in enumerate(zip(data.types, outcomes, strict=True)):
        truth = data.informative(fit.unseen, fit.rows, index)
        if of_target.has_classes:
            of_rows = _class_errors(fit.unseen, truth)
        else:
            of_rows = _number_errors(fit.unseen, truth, logarithmic=data.logarithmic[index])
            expected = 1.0 if fit.expected is None else fit.expected
            covered[fit.rows, index] = are_covered(of_rows / expected)
        if (mean := np.nanmean(of_rows)) > 0:
            errors[fit.rows, index] = of_rows / mean
    return mean_of_rows(errors), mean_of_rows(covered)


def _class_errors(probabilities: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return one minus the probability of each class, [n]: of class 1, [n], or of each class, [n, K]."""
    if probabilities.ndim == 1:
        return np.abs(classes - probabilities)
    return 1.0 - np.take_along_axis(probabilities, classes.astype(np.int64)[:, None], axis=1)[:, 0]


def _number_errors(predicted: np.ndarray, truth: np.ndarray, *, logarithmic: bool) -> np.ndarray:
    """Return absolute errors, [n], of the logarithms if these are learned; NaN where there is none."""
    if not logarithmic:
        return np.abs(predicted - truth)
    positive = (predicted > 0) & (truth > 0)
    ratios = np.divide(predicted, truth, out=np.full(len(truth), np.nan), where=positive)
    return np.abs(np.log10(ratios))
