"""Errors in the units of the targets, computed in float64.

A missing target (NaN) is left out. A prediction that is not finite counts as infinitely wrong: leaving it out
would flatter a broken model. The caller drops rows that have no prediction.
"""

import numpy as np

from molslice.tasks.targets import TargetInfo

METRIC_NAMES = {
    "regression": "mae",
    "classification": "roc_auc",
    "multiclass": "accuracy",
    "tokens": "perplexity",
    "actions": "mse",
}
METRIC_LABELS = {
    "mae": "MAE",
    "roc_auc": "ROC-AUC",
    "accuracy": "accuracy",
    "perplexity": "perplexity",
    "mse": "MSE",
}


def mean_absolute_error(prediction: np.ndarray, truth: np.ndarray) -> float:
    """Mean absolute error over the rows with a target, [rows] each; NaN if there is no such row."""
    known = np.isfinite(truth)
    error = np.abs(prediction[known].astype(np.float64) - truth[known].astype(np.float64))
    return float(np.where(np.isnan(error), np.inf, error).mean()) if known.any() else float("nan")


def roc_auc(prediction: np.ndarray, truth: np.ndarray) -> float:
    """Area under the ROC curve, [rows] each; NaN unless both classes occur.

    This is the share of pairs (positive, negative) in the right order, computed from the mean rank of the
    positives. A tie counts as half a pair.

    `sklearn.metrics.roc_auc_score` differs by up to 2e-16 in a third of random cases and refuses NaN.
    """
    known = np.isfinite(truth)
    prediction, positive = prediction[known], truth[known] > 0.5
    # NaN is ranked at the wrong end
    prediction = np.where(np.isnan(prediction), np.where(positive, -np.inf, np.inf), prediction)
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return float("nan")
    _, place, counts = np.unique(prediction, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]  # from 1; tied values share their mean rank
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def accuracy(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """Share of rows whose class, [rows], has the largest probability, [rows, K]; NaN if there is no row.

    Of classes that share the largest probability the first one is taken. A row without a class is left out.
    """
    known = np.isfinite(truth)
    right = (probabilities.argmax(1) == truth) & np.isfinite(probabilities).all(1)
    return float(right[known].mean()) if known.any() else float("nan")


def perplexity(mean_nll: np.ndarray, counts: np.ndarray) -> float:
    """Exponential of the mean negative log-likelihood of a token, from the rows' means and token counts."""
    return float(np.exp(min(weighted_mean(mean_nll, counts), 700.0)))


def weighted_mean(means: np.ndarray, counts: np.ndarray) -> float:
    """Mean over all items of all rows, from the mean and the number of items of each row, [rows] each.

    Returns:
        The mean; NaN if there are no items.
    """
    known = counts > 0
    if not known.any():
        return float("nan")
    values = np.where(np.isnan(means), np.inf, means.astype(np.float64))[known]
    return float(np.average(values, weights=counts[known].astype(np.float64)))


def metric_per_target(targets: TargetInfo, prediction: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Compute the metric of each target in its unit.

    Args:
        targets: The description of the T targets.
        prediction: [rows, T]. For several classes, their probabilities [rows, K]; for tokens, the mean
            negative log-likelihood [rows, 1]; for actions, the mean squared error of a window [rows, 1].
        truth: [rows, T]. For tokens, the number of tokens; for actions, the number of steps.

    Returns:
        By target name: MAE, ROC-AUC, accuracy, perplexity or mean squared error, as the kind of the targets.
    """
    if targets.kind == "multiclass":
        return {targets.names[0]: accuracy(prediction, truth[:, 0])}
    if targets.kind == "tokens":
        return {targets.names[0]: perplexity(prediction[:, 0], truth[:, 0])}
    if targets.kind == "actions":
        return {targets.names[0]: weighted_mean(prediction[:, 0], truth[:, 0])}
    metric = mean_absolute_error if targets.kind == "regression" else roc_auc
    return {name: metric(prediction[:, i], truth[:, i]) for i, name in enumerate(targets.names)}


def selection_score(targets: TargetInfo, metrics: dict[str, float]) -> float:
    """Return one number to choose a model by; lower is better, NaN if no target has a finite metric.

    Regression: the mean over targets of the MAE divided by the spread of the training targets, which does not
    depend on units. Classification: 1 - mean ROC-AUC, or 1 - accuracy. Tokens: perplexity. Actions: mean
    squared error.
    """
    values = np.array([metrics[name] for name in targets.names])
    if targets.kind == "regression":
        values = values / np.array(targets.std)
    elif targets.kind not in ("tokens", "actions"):
        values = 1.0 - values
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")
