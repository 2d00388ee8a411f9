"""Assignments of rows to folds, and the averages over them.

Rows are divided into K folds once or more often; each division is an assignment. A learner has A K models:
model a K + k has not seen fold k of assignment a. A member of the fitted model is the mean of one model of
each assignment, so there are K^A members. The member of a row is the mean of the models that have not seen
it.
"""

import numpy as np


def left_out(folds: np.ndarray) -> np.ndarray:
    """Return which rows a model must not see: bool [A K, n].

    Args:
        folds: Fold of each row in each assignment, int [A, n]; int [n] for one assignment.
    """
    folds = np.atleast_2d(folds)
    masks = folds[:, None] == np.arange(int(folds.max()) + 1)[:, None]
    return masks.reshape(-1, folds.shape[1])


def average_unseen(predicted: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Average the predictions of each row by the models that have not seen it.

    Args:
        predicted: Prediction of each row by each model, float64 [A K, n].
        folds: See `left_out`.

    Returns:
        The out-of-fold predictions, float64 [n].
    """
    folds = np.atleast_2d(folds)
    by_assignment = np.stack(np.split(predicted, len(folds)))
    return np.take_along_axis(by_assignment, folds[:, None], axis=1).mean((0, 1))


def by_member(predicted: np.ndarray, num_folds: int, num_assignments: int) -> np.ndarray:
    """Average the predictions of one model of each assignment.

    Args:
        predicted: Prediction by each model, float64 [A K, ...]. If there are fewer assignments than the
            members have, these models are of the first ones.
        num_folds: Number K of folds.
        num_assignments: Number A of assignments of the members.

    Returns:
        Prediction by each member, float64 [members, ...], the fold of the last assignment changing fastest.
    """
    assignments = np.split(predicted, len(predicted) // num_folds)
    total = assignments[0]
    for predictions in assignments[1:]:
        total = np.concatenate([first + predictions for first in total])
    return np.repeat(total / len(assignments), num_folds ** (num_assignments - len(assignments)), axis=0)


def member_numbers(folds: np.ndarray, num_folds: int) -> np.ndarray:
    """Return the member that has not seen a row, int [n].

    Args:
        folds: Fold of each row in each assignment, int [A, n].
        num_folds: Number K of folds.
    """
    return np.asarray(np.ravel_multi_index(tuple(folds), (num_folds,) * len(folds)))
