"""Standard errors of metrics over samples of groups."""

from dataclasses import dataclass, field

import numpy as np

from molslice.tasks.metrics import (
    METRIC_NAMES,
    average_precision,
    fold_error,
    fold_orders,
    mean_absolute_error,
    roc_auc,
)
from molslice.tasks.several_classes import SeveralClasses
from molslice.tasks.target_types import TargetType
from molslice.tasks.targets import Kind

NEGLIGIBLE = 1e-12  # influence of a group relative to the value: what rounding of sums leaves


@dataclass(frozen=True, slots=True)
class MeasuredMetric:
    """An error and how precisely a sample of compounds tells it.

    Attributes:
        value: The metric, such as the mean absolute error; NaN if it is not defined.
        standard_error: Standard deviation of `value` over samples of groups, from this sample alone; NaN with
            fewer than two groups, or if all have the same errors, as with a perfect score: these say nothing
            of other samples.
        rows: Effective number of rows: their number, or 1 / (1 / positives + 1 / negatives).
        influences: Influence of each group on `value`, float64 [groups].
    """

    value: float
    standard_error: float
    rows: float
    influences: np.ndarray = field(default_factory=lambda: np.zeros(0), compare=False, repr=False)

    @classmethod
    def of(
        cls,
        kind: Kind,
        predicted: np.ndarray,
        truth: np.ndarray,
        groups: np.ndarray,
        metric: str = "",
        classes: SeveralClasses | None = None,
    ) -> "MeasuredMetric":
        """Measure predictions.

        Args:
            kind: Kind of the target.
            predicted: Predictions in the unit of the target, or probabilities of class 1, float64 [n]; of
                each of several classes, float64 [n, K].
            truth: The measured values, or indices of classes, float64 [n], NaN where missing.
            groups: Number of the compound or scaffold of each row, int [n]. Rows of a group are drawn
                together.
            metric: `mae`, `fold_error`, `roc_auc`, `pr_auc`, or one of `classes`; by default the primary
                one of the kind.
            classes: The classes if there are more than two.

        Source: the variance of a mean of clusters; DeLong, DeLong and Clarke-Pearson 1988, "Comparing the
        areas under two or more correlated receiver operating characteristic curves", with clusters as in
        Obuchowski 1997, "Nonparametric analysis of clustered ROC curve data"; Efron 1982, "The Jackknife, the
        Bootstrap and Other Resampling Plans", chapter 6 (the infinitesimal jackknife, for the mean
        precision).
        """
        known = np.isfinite(truth)
        predicted, truth, groups = predicted[known], truth[known], groups[known]
        if classes is None:
            measure, influence = METRICS[metric or METRIC_NAMES[kind]]
            value = measure(predicted, truth)
        else:
            value = classes.measure(metric, predicted, truth.astype(np.int64))
        if not np.isfinite(value):
            return cls(value, float("nan"), 0.0)
        if classes is None:
            influences = influence(predicted, truth, value)
        else:
            influences = _class_influences(classes, metric, predicted, truth.astype(np.int64), value)
        sums = _sums(influences, groups)
        is_constant = np.abs(sums).max() <= NEGLIGIBLE * abs(value)
        spread = float("nan") if is_constant else _standard_error(sums)
        return cls(value, spread, _effective_rows(kind, truth), sums)

    def difference_error(self, other: "MeasuredMetric") -> float:
        """Return the standard error of the difference of the values of two models on the same rows."""
        return _standard_error(self.influences - other.influences)


def measure_rows(
    of_target: TargetType, predicted: np.ndarray, truth: np.ndarray, groups: np.ndarray, metric: str
) -> MeasuredMetric:
    """Measure predictions of a target; see `MeasuredMetric.of`."""
    return MeasuredMetric.of(of_target.kind, predicted, truth, groups, metric, of_target.several)


def error_of_mean(values: np.ndarray, groups: np.ndarray) -> float:
    """Return the standard error of the mean of values [n], drawn in whole groups.

    NaN with fewer than two groups. `groups` is the number of the group of each value, int [n].
    """
    return _standard_error(_sums((values - values.mean()) / len(values), groups))


def _class_influences(
    classes: SeveralClasses, metric: str, probabilities: np.ndarray, labels: np.ndarray, value: float
) -> np.ndarray:
    """Return the influence of each row on a metric of several classes, float64 [n]."""
    if metric == "macro_roc_auc":
        pairs = [(column, labels == index) for index, column in enumerate(probabilities.T)]
        return np.mean([_area_influences(*pair, roc_auc(*pair)) for pair in pairs], axis=0)
    if metric == "log_loss":
        return (classes.losses(probabilities, labels) - value) / len(labels)
    chosen = classes.choose(probabilities)
    scores = np.abs(chosen - labels) if metric == "class_error" else chosen == labels
    if metric != "balanced_accuracy":
        return (scores - value) / len(labels)
    counts = np.bincount(labels, minlength=len(classes.names))
    shares = np.bincount(labels, scores, len(counts)) / counts
    return (scores - shares[labels]) / counts[labels] / len(counts)


def _sums(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the sum of the values of each group, float64 [groups]."""
    _, places = np.unique(groups, return_inverse=True)
    return np.bincount(places, values)


def _standard_error(sums: np.ndarray) -> float:
    """Return the standard deviation of a metric from the influence of each group."""
    if len(sums) < 2:
        return float("nan")
    return float(np.sqrt(len(sums) / (len(sums) - 1) * float((sums**2).sum())))


def _effective_rows(kind: Kind, truth: np.ndarray) -> float:
    """Return the number of rows, or for two classes 1 / (1 / positives + 1 / negatives)."""
    if kind != "classification":
        return float(len(truth))
    positives = int((truth > 0.5).sum())
    return 1.0 / (1.0 / positives + 1.0 / (len(truth) - positives))


def _mean_influences(predicted: np.ndarray, truth: np.ndarray, value: float) -> np.ndarray:
    return (np.abs(predicted - truth) - value) / len(truth)


def _fold_influences(predicted: np.ndarray, truth: np.ndarray, value: float) -> np.ndarray:
    """Return the derivative of 10^(mean order) by the weight of each row, float64 [n]."""
    known = truth > 0
    orders = fold_orders(predicted, truth) - np.log10(value)
    return np.where(known, value * np.log(10.0) * orders / known.sum(), 0.0)


def _area_influences(predicted: np.ndarray, truth: np.ndarray, value: float) -> np.ndarray:
    positive = truth > 0.5
    counts = np.where(positive, positive.sum(), (~positive).sum())
    return (_shares_in_order(predicted, positive) - value) / counts


def _precision_influences(predicted: np.ndarray, truth: np.ndarray, value: float) -> np.ndarray:
    """Return the derivative of the mean precision by the weight of each row, float64 [n].

    The precision of positive i is the share of positives among the n_i rows at or above it. A row j among
    them changes it by (y_j - precision_i) / n_i.
    """
    positive = truth > 0.5
    _, place, counts = np.unique(-predicted, return_inverse=True, return_counts=True)
    positives = np.bincount(place, positive)
    above = counts.cumsum()
    precision = positives.cumsum() / above
    # sums over the positives at or below a row, whose precision the row changes
    of_positive = np.cumsum((positives / above)[::-1])[::-1][place]
    of_any = np.cumsum((positives * precision / above)[::-1])[::-1][place]
    direct = positive * (precision[place] - value)
    return (direct + positive * of_positive - of_any) / positive.sum()


def _shares_in_order(predicted: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Return for each row the share of rows of the other class that are on the right side of it, [n]."""
    shares = np.empty(len(predicted))
    for side, sign in ((positive, 1.0), (~positive, -1.0)):
        others = np.sort(sign * predicted[~side])
        below = np.searchsorted(others, sign * predicted[side], "left")
        through = np.searchsorted(others, sign * predicted[side], "right")
        shares[side] = (below + through) / 2 / len(others)
    return shares


METRICS = {
    "mae": (mean_absolute_error, _mean_influences),
    "fold_error": (fold_error, _fold_influences),
    "roc_auc": (roc_auc, _area_influences),
    "pr_auc": (average_precision, _precision_influences),
}
