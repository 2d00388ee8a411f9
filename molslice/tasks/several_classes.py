"""Targets of three and more classes, as several targets of two classes."""

from dataclasses import dataclass

import numpy as np

from molslice.tasks.metrics import mean_absolute_error, roc_auc

SMALLEST = 1e-15  # of a probability in the log loss, as in scikit-learn before version 1.5


@dataclass(frozen=True, slots=True)
class SeveralClasses:
    """K classes, which are learned as P binary parts.

    Without an order, part c is whether a molecule has class c (P = K, one class against the others). With an
    order, part k is whether its class is above class k (P = K - 1).

    Attributes:
        names: Names of the classes, in their order if they have one.
        ordered: Whether the classes have an order.

    Source: Frank and Hall 2001, "A Simple Approach to Ordinal Classification" (the parts of ordered classes);
    Chernozhukov, Fernández-Val and Galichon 2010, "Quantile and Probability Curves Without Crossing" (sorting
    estimates of a monotone curve does not increase their error).
    """

    names: tuple[str, ...]
    ordered: bool = False

    @property
    def part_names(self) -> tuple[str, ...]:
        """What each part says, such as `low` or `above low`."""
        return tuple(f"above {name}" for name in self.names[:-1]) if self.ordered else self.names

    def split(self, classes: np.ndarray) -> np.ndarray:
        """Return the parts 0 and 1 of classes [n], NaN where missing, float64 [n, P]."""
        numbers = np.arange(len(self.part_names))
        parts = classes[:, None] > numbers if self.ordered else classes[:, None] == numbers
        return np.where(np.isnan(classes)[:, None], np.nan, parts)

    def parts_of(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the probabilities of the parts, [..., P], from probabilities of the classes, [..., K]."""
        if not self.ordered:
            return probabilities
        return probabilities[..., ::-1].cumsum(-1)[..., -2::-1]

    def combine(self, parts: np.ndarray) -> np.ndarray:
        """Return probabilities of the classes [..., K] that add up to one, from positive parts [..., P].

        Without an order, they are divided by their sum. With an order, they are sorted first, so that no
        class has a negative probability.
        """
        if not self.ordered:
            return parts / parts.sum(-1, keepdims=True)
        above = -np.sort(-parts, axis=-1)
        return -np.diff(above, axis=-1, prepend=1.0, append=0.0)

    def choose(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the most probable class; for ordered classes their median, which has the least error.

        It is an index; of equals the first.
        """
        if self.ordered:
            return (probabilities.astype(np.float64).cumsum(-1) < 0.5).sum(-1).clip(max=len(self.names) - 1)
        return probabilities.argmax(-1)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, the primary one first.

        Without an order it is the macro ROC-AUC: as for two classes, it does not depend on a threshold or on
        the shares of the classes, whereas a rare class is hardly ever the most probable one.
        """
        first = "class_error" if self.ordered else "macro_roc_auc"
        return (first, "balanced_accuracy", "accuracy", "log_loss")

    def measure(self, metric: str, probabilities: np.ndarray, truth: np.ndarray) -> float:
        """Compute one of `metrics`.

        Args:
            metric: `macro_roc_auc`, the mean over the classes of the ROC-AUC of a class against the others;
                `class_error`, the mean absolute difference of the indices of the chosen and the true class;
                `accuracy`, the share of rows whose class is chosen; `balanced_accuracy`, the mean of this
                share over the classes; or `log_loss`, the mean of -ln(probability of the true class).
            probabilities: Probability of each class, float [n, K]. A row that is not finite is wrong.
            truth: Index of the class, float [n], NaN where missing.

        Returns:
            The metric; NaN if it is not defined, because a class is missing in the rows or there are none.
        """
        known = np.isfinite(truth)
        rows, labels = probabilities[known].astype(np.float64), truth[known].astype(np.int64)
        present = np.isin(np.arange(len(self.names)), labels)
        if not len(labels) or (metric in ("macro_roc_auc", "balanced_accuracy") and not present.all()):
            return float("nan")
        if metric == "macro_roc_auc":
            areas = [roc_auc(rows[:, index], labels == index) for index in range(len(self.names))]
            return float(np.mean(areas))
        broken = ~np.isfinite(rows).all(1)
        if metric == "log_loss":
            return float(np.where(broken, np.inf, self.losses(rows, labels)).mean())
        chosen = np.where(broken, np.nan, self.choose(rows))
        if metric == "class_error":
            return mean_absolute_error(chosen, labels)
        right = chosen == labels
        if metric == "accuracy":
            return float(right.mean())
        return float(np.mean([right[labels == index].mean() for index in range(len(self.names))]))

    def measure_all(self, probabilities: np.ndarray, truth: np.ndarray) -> dict[str, float]:
        """Compute all `metrics` by name; see `measure`."""
        return {metric: self.measure(metric, probabilities, truth) for metric in self.metrics}

    @staticmethod
    def losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return -ln(probability of the true class) of each row, float64 [n]."""
        return -np.log(np.maximum(probabilities[np.arange(len(labels)), labels], SMALLEST))
