"""Properties of molecules: regression or classification with one or several targets."""

from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from molslice.tasks.base import Task
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError

REGRESSION_LOSSES = {"mae": F.l1_loss, "mse": F.mse_loss, "huber": F.huber_loss}


class Molecule(Task):
    """Loss `mae`, `mse` or `huber` of standardized targets, binary cross-entropy for classification.

    Missing targets (NaN) affect neither the loss nor its gradient.

    Args:
        model: The model to train.
        targets: The description of the targets.
        loss: The loss for regression; unused for classification.

    Raises:
        MolsliceError: The targets are of another kind, or the loss is unknown.
    """

    def __init__(
        self, model: nn.Module, targets: TargetInfo, *, loss: Literal["mae", "mse", "huber"] = "mae"
    ) -> None:
        super().__init__(model, targets)
        if targets.kind not in ("regression", "classification"):
            raise MolsliceError(
                f"task molecule needs targets of kind regression or classification, got {targets.kind}; "
                "choose another task: sequence (classes), language or decision"
            )
        if loss not in REGRESSION_LOSSES:
            raise MolsliceError(f"unknown loss {loss!r}; choices: {', '.join(REGRESSION_LOSSES)}")
        classes = targets.kind == "classification"
        self.elementwise = F.binary_cross_entropy_with_logits if classes else REGRESSION_LOSSES[loss]
        self.target_mean: Tensor
        self.target_std: Tensor
        for name, values in (("target_mean", targets.mean), ("target_std", targets.std)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64), persistent=False)

    def loss_sum(self, prediction: Float[Tensor, "B T"], batch: Any) -> Float[Tensor, ""]:  # noqa: ANN401
        """Sum over the targets that are not missing; see `Task.loss_sum`."""
        targets = batch.targets
        present = ~targets.isnan()
        # In float32 a mean that is large relative to the spread would lose digits.
        standardized = ((targets.double() - self.target_mean) / self.target_std).to(prediction.dtype)
        # NaN is replaced before the loss: a NaN times a zero mask would still be NaN in the gradient.
        wanted = standardized.masked_fill(~present, 0.0)
        return (self.elementwise(prediction, wanted, reduction="none") * present).sum()
