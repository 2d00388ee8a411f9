"""Properties of texts, images and series: one of several classes, or several labels that are 0 or 1."""

from typing import Any, ClassVar

import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from molslice.tasks.base import Task
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError


class Sequence(Task):
    """Cross-entropy over the classes, or binary cross-entropy of each of several labels.

    Missing labels (NaN) are left out.

    Args:
        model: The model to train.
        targets: The description of the classes or labels.
        label_smoothing: Label smoothing in [0, 1); 0 unless the targets are of kind multiclass.

    Raises:
        MolsliceError: The targets are of another kind, or `label_smoothing` is invalid.
    """

    kinds: ClassVar = ("multiclass", "classification")
    advice: ClassVar[str] = "; for numbers, use task molecule"

    def __init__(self, model: nn.Module, targets: TargetInfo, *, label_smoothing: float = 0.0) -> None:
        super().__init__(model, targets)
        if not 0.0 <= label_smoothing < 1.0 or (label_smoothing and targets.kind != "multiclass"):
            raise MolsliceError(
                "label_smoothing must be in [0, 1), and 0 unless the targets are of kind multiclass, got "
                f"{label_smoothing}"
            )
        self.label_smoothing = label_smoothing

    def loss_sum(self, prediction: Float[Tensor, "B K"], batch: Any) -> Float[Tensor, ""]:  # noqa: ANN401
        """Sum over the rows or labels that are not missing; see `Task.loss_sum`.

        The loss of a mixed row is the mean of its losses with both targets, weighted by their shares.
        """
        losses = self._losses(prediction, batch.targets)
        if batch.other_targets is not None:
            losses = losses.lerp(self._losses(prediction, batch.other_targets), batch.other_share[:, None])
        return losses.sum()

    def _losses(
        self, prediction: Float[Tensor, "B K"], targets: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """Return the loss of each class or label, zero where it is missing."""
        present = ~targets.isnan()
        wanted = targets.masked_fill(~present, 0.0)
        if self.targets.kind == "classification":
            return F.binary_cross_entropy_with_logits(prediction, wanted, reduction="none") * present
        losses = F.cross_entropy(
            prediction, wanted[:, 0].long(), reduction="none", label_smoothing=self.label_smoothing
        )
        return losses[:, None] * present
