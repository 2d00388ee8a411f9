"""Texts with several labels each, measured by the Jaccard index of their labels."""

from typing import ClassVar

import numpy as np
from torch import nn

from molslice.tasks.base import Measure
from molslice.tasks.metrics import jaccard_index
from molslice.tasks.sequence import Sequence
from molslice.tasks.targets import TargetInfo


class Labels(Sequence):
    """Binary cross-entropy of each label, as the task `sequence`.

    The metric is the mean Jaccard index of the predicted and the true labels of a row.

    Source: the metric of Singularformer (Wu et al., IJCAI 2023) on MIMIC-III, in the authors' code.
    """

    kinds: ClassVar = ("classification",)

    def __init__(self, model: nn.Module, targets: TargetInfo) -> None:
        super().__init__(model, targets)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """One Jaccard index for all labels."""
        return (Measure("labels", "accuracy", ""),)

    def metrics(self, results: np.ndarray, truth: np.ndarray) -> dict[str, float]:
        """Compute `jaccard_index`; see `Task.metrics`."""
        return {"labels": jaccard_index(results, truth)}

    def score(self, metrics: dict[str, float]) -> float:
        """Return 1 - the Jaccard index."""
        return 1.0 - metrics["labels"]
