"""Properties of molecules: regression or classification with one or several targets."""

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from molslice.ops.distances import UNKNOWN, distance_bins
from molslice.ops.gaussian import gaussian_losses
from molslice.tasks.base import MicroBatch, Task
from molslice.tasks.targets import Standardizer, TargetInfo
from molslice.types import ModelOutput, MolsliceError

GAUSSIAN = "gaussian"
REGRESSION_LOSSES = {"mae": F.l1_loss, "mse": F.mse_loss, "huber": F.huber_loss}


class Molecule(Task):
    """Loss `mae`, `mse`, `huber` or `gaussian` of standardized targets, cross-entropy for classification.

    With `gaussian` the model predicts the mean and the variance of each target; see `gaussian_losses`.
    Missing targets (NaN) affect neither the loss nor its gradient. If the data have a geometry, the
    cross-entropy of the distances of a molecule, a mean over its pairs of atoms, is added with a weight.

    Args:
        model: The model to train.
        targets: The description of the targets.
        loss: The loss for regression; unused for classification.
        distance_weight: The weight of the loss of the distances.

    Raises:
        MolsliceError: The targets are of another kind, the loss is unknown or does not fit them, or the
            weight is not positive.
    """

    kinds: ClassVar = ("regression", "classification")
    advice: ClassVar[str] = "; choose another task: sequence (classes), language or decision"
    has_fixed_steps: ClassVar[bool] = True

    def __init__(
        self,
        model: nn.Module,
        targets: TargetInfo,
        *,
        loss: Literal["mae", "mse", "huber", "gaussian"] = "mae",
        distance_weight: float = 0.1,
    ) -> None:
        super().__init__(model, targets)
        if loss not in (*REGRESSION_LOSSES, GAUSSIAN):
            choices = ", ".join((*REGRESSION_LOSSES, GAUSSIAN))
            raise MolsliceError(f"unknown loss {loss!r}; choices: {choices}")
        classes = targets.kind == "classification"
        if classes and loss == GAUSSIAN:
            raise MolsliceError("training.loss gaussian is for numbers; the targets are classes")
        if not distance_weight > 0.0:
            raise MolsliceError(f"training.distance_weight must be above 0, got {distance_weight}")
        self.distance_weight = distance_weight
        # None for gaussian, which depends on the predicted variance too
        self.elementwise = F.binary_cross_entropy_with_logits if classes else REGRESSION_LOSSES.get(loss)
        self.standardize = Standardizer(targets)

    def training_step(self, micro_batch: MicroBatch) -> Float[Tensor, ""]:
        """Add the loss of the distances to the loss of the targets; see `Task.training_step`."""
        output, batch = self.model(micro_batch.batch), micro_batch.batch
        loss = self._share_of(output, micro_batch)
        if output.distances is None:
            return loss
        distances = distance_losses(output.distances.float(), batch.coordinates).sum() / micro_batch.rows
        return loss + self.distance_weight * distances

    def loss_sum(self, prediction: Float[Tensor, "B T"], batch: Any) -> Float[Tensor, ""]:  # noqa: ANN401
        """Sum over the targets that are not missing; for `gaussian` with variance 1. See `Task.loss_sum`."""
        return self._loss_sum(prediction, torch.zeros_like(prediction), batch)

    def output_loss_sum(self, output: ModelOutput, batch: Any) -> Float[Tensor, ""]:  # noqa: ANN401
        """Return the loss of the prediction, for `gaussian` with its variance; see `Task.output_loss_sum`."""
        if self.elementwise is not None:
            return super().output_loss_sum(output, batch)
        assert output.log_variance is not None  # `build_model` refuses models without it
        return self._loss_sum(output.prediction.float(), output.log_variance.float(), batch)

    def _loss_sum(self, prediction: Tensor, log_variance: Tensor, batch: Any) -> Float[Tensor, ""]:  # noqa: ANN401
        present = ~batch.targets.isnan()
        wanted = self.standardize(batch.targets, present, prediction.dtype)
        if self.elementwise is None:
            losses = gaussian_losses(prediction, log_variance, wanted)
        else:
            losses = self.elementwise(prediction, wanted, reduction="none")
        return (losses * present).sum()


def distance_losses(
    logits: Float[Tensor, "B P K"], coordinates: Float[Tensor, "B A 3"]
) -> Float[Tensor, " B"]:
    """Return the mean cross-entropy over the known distances of each molecule; 0 without a known one."""
    bins = distance_bins(coordinates)
    losses = F.cross_entropy(logits.transpose(1, 2), bins, ignore_index=UNKNOWN, reduction="none")
    return losses.sum(1) / (bins != UNKNOWN).sum(1).clamp(min=1)
