"""Texts with several labels each, measured by how many labels of a row are right."""

from typing import ClassVar

import numpy as np
from torch import nn

from molslice.tasks.base import Measure
from molslice.tasks.metrics import label_accuracy
from molslice.tasks.sequence import Sequence
from molslice.tasks.targets import TargetInfo


class Labels(Sequence):
    """Binary cross-entropy of each label, as the task `sequence`; the metric is the accuracy of whole rows.

    Source: the metric of Singularformer (Wu et al., IJCAI 2023) on MIMIC-III, in the authors' code.
    """

    kinds: ClassVar = ("classification",)

    def __init__(self, model: nn.Module, targets: TargetInfo) -> None:
        super().__init__(model, targets)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """One accuracy for all labels."""
        return (Measure("labels", "accuracy", ""),)

    def metrics(self, results: np.ndarray, truth: np.ndarray) -> dict[str, float]:
        """Compute `label_accuracy`; see `Task.metrics`."""
        return {"labels": label_accuracy(results, truth)}

    def score(self, metrics: dict[str, float]) -> float:
        """Return 1 - accuracy."""
        return 1.0 - metrics["labels"]
