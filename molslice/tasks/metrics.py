"""Errors in the units of the targets, computed in float64.

Predictions and targets are float arrays [rows] in the same unit, and the probabilities of classes or labels
[rows, K]. A missing target (NaN) is left out. A prediction that is not finite counts as infinitely wrong:
leaving it out would flatter a broken model. The caller removes rows that have no prediction.
"""

import numpy as np

from molslice.number_text import METRIC_LABELS as METRIC_LABELS
from molslice.number_text import format_metric as format_metric
from molslice.number_text import with_unit as with_unit
from molslice.tasks.targets import TargetInfo

METRIC_NAMES = {
    "regression": "mae",
    "classification": "roc_auc",
    "multiclass": "accuracy",
    "tokens": "perplexity",
    "actions": "mse",
}


def mean_absolute_error(prediction: np.ndarray, truth: np.ndarray) -> float:
    """Compute the mean absolute error [rows] in the unit of the target; NaN if there is no target."""
    known = np.isfinite(truth)
    error = np.abs(prediction[known].astype(np.float64) - truth[known].astype(np.float64))
    return float(np.where(np.isnan(error), np.inf, error).mean()) if known.any() else float("nan")


def fold_error(prediction: np.ndarray, truth: np.ndarray) -> float:
    """Compute the geometric mean of the factors between predictions and measured values; see `fold_orders`.

    The factor is at least 1; NaN if there is no positive target.
    """
    orders = fold_orders(prediction, truth)[truth > 0]
    return float(10.0 ** np.mean(orders)) if len(orders) else float("nan")


def fold_orders(prediction: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Compute |log10(prediction / truth)|, float [rows].

    It is infinite for a prediction that is not positive, and 0 for a target that is not positive.
    """
    known = truth > 0
    with np.errstate(divide="ignore"):  # the logarithm of 0 is infinite
        orders = np.log10(np.where(prediction > 0, prediction, 0.0) / np.where(known, truth, 1.0))
    return np.where(known, np.abs(orders), 0.0)


def median_factor(prediction: np.ndarray, truth: np.ndarray) -> float:
    """Compute the median factor between predictions and measured values, whichever is larger.

    See `fold_orders`. Rows without a positive target are left out. The factor is at least 1, NaN without
    rows.
    """
    known = truth > 0
    if not known.any():
        return float("nan")
    return float(10.0 ** np.median(fold_orders(prediction, truth)[known]))


def roc_auc(prediction: np.ndarray, truth: np.ndarray) -> float:
    """Compute the area under the ROC curve of scores or probabilities of class 1, for classes 0 and 1.

    This is the share of pairs (positive, negative) in the right order, computed from the mean rank of the
    positives. A tie counts as half a pair. `sklearn.metrics.roc_auc_score` differs by up to 2e-16 in a third
    of random cases and refuses NaN. The area is NaN unless both classes occur.

    Source: Mann and Whitney 1947, the U statistic.
    """
    known = np.isfinite(truth)
    prediction, positive = prediction[known], truth[known] > 0.5
    # NaN is ranked at the wrong end
    prediction = np.where(np.isnan(prediction), np.where(positive, -np.inf, np.inf), prediction)
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return float("nan")
    _, index, counts = np.unique(prediction, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[index]  # from 1; tied values share their mean rank
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def average_precision(prediction: np.ndarray, truth: np.ndarray) -> float:
    """Compute the area under the precision-recall curve as the mean precision over the positives.

    The precision of a positive is the share of positives among the rows that are predicted at least as high.
    Unlike `roc_auc`, it depends on the share of positives, which is the value of random predictions. A
    prediction of NaN counts as the lowest. The mean is NaN unless both classes occur.

    Source: Davis and Goadrich 2006, "The Relationship Between Precision-Recall and ROC Curves" (curves are
    not interpolated linearly, so the mean is not taken by trapezoids).
    """
    known = np.isfinite(truth)
    prediction, positive = prediction[known], truth[known] > 0.5
    if positive.all() or not positive.any():
        return float("nan")
    _, place = np.unique(-np.where(np.isnan(prediction), -np.inf, prediction), return_inverse=True)
    above, right = np.bincount(place).cumsum(), np.bincount(place, positive).cumsum()
    return float((right / above)[place[positive]].mean())


def accuracy(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """Compute the share of rows whose class has the largest probability.

    The first of several classes with the same probability counts. A row without a class is left out. NaN
    if no row has a class.
    """
    known = np.isfinite(truth)
    right = (probabilities.argmax(1) == truth) & np.isfinite(probabilities).all(1)
    return float(right[known].mean()) if known.any() else float("nan")


def jaccard_index(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """Compute the mean over rows of |predicted and true labels| / |predicted or true labels|.

    A label is predicted if its probability is above one half. A row with neither predicted nor true labels
    counts as right. The authors of Singularformer count every row without a true label as right. A
    probability of NaN counts as wrong. The mean is NaN if no row has a label that is not missing.

    Source: Godbole and Sarawagi 2004, the accuracy of multi-label classification (Jaccard index).
    """
    known = np.isfinite(truth)
    true = truth > 0.5
    predicted = np.where(np.isnan(probabilities), ~true, probabilities > 0.5)
    both, either = (true & predicted & known).sum(1), ((true | predicted) & known).sum(1)
    shares = np.where(either > 0, both / np.maximum(either, 1), 1.0)[known.any(1)]
    return float(shares.mean()) if len(shares) else float("nan")


def perplexity(mean_nll: np.ndarray, counts: np.ndarray) -> float:
    """Compute the exponential of the mean negative log-likelihood of a token.

    The means of the rows are in nats. It is at most e^700; NaN without tokens.
    """
    return float(np.exp(min(weighted_mean(mean_nll, counts), 700.0)))


def weighted_mean(means: np.ndarray, counts: np.ndarray) -> float:
    """Compute the mean over all items of all rows from the mean of each row; NaN without items.

    A mean of NaN counts as infinite.
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
        prediction: Predictions [rows, T]. For several classes, their probabilities [rows, K]; for tokens, the
            mean negative log-likelihood [rows, 1]; for actions, the mean squared error of a window [rows, 1].
        truth: Targets [rows, T]. For tokens, the number of tokens; for actions, the number of steps.

    Returns:
        MAE, ROC-AUC, accuracy, perplexity or mean squared error, depending on the kind of the targets, by
        target name.
    """
    if targets.kind == "multiclass":
        return {targets.names[0]: accuracy(prediction, truth[:, 0])}
    if targets.kind == "tokens":
        return {targets.names[0]: perplexity(prediction[:, 0], truth[:, 0])}
    if targets.kind == "actions":
        return {targets.names[0]: weighted_mean(prediction[:, 0], truth[:, 0])}
    metric = mean_absolute_error if targets.kind == "regression" else roc_auc
    return {name: metric(prediction[:, i], truth[:, i]) for i, name in enumerate(targets.names)}


def labels_per_target(targets: TargetInfo, truth: np.ndarray) -> np.ndarray:
    """Return what the metric of each target is over, float64 [T]: rows with a label, tokens or steps.

    `truth` is as in `metric_per_target`.
    """
    if targets.kind in ("tokens", "actions"):
        return truth.sum(0, dtype=np.float64)
    return np.isfinite(truth).sum(0, dtype=np.float64)


def selection_score(targets: TargetInfo, metrics: dict[str, float]) -> float:
    """Return one number to select a model by; lower is better.

    For regression it is the mean over targets of the MAE divided by the spread of the training targets, which
    does not depend on units. For classification it is 1 - mean ROC-AUC, or 1 - accuracy. For tokens it is the
    perplexity, and for actions the mean squared error. NaN if no target has a finite metric.
    """
    values = np.array([metrics[name] for name in targets.names])
    if targets.kind == "regression":
        values = values / np.array(targets.std)
    elif targets.kind not in ("tokens", "actions"):
        values = 1.0 - values
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")
