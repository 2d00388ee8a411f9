"""Properties of whole molecules: regression or classification, one target or several."""

from typing import Any, Literal

import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from molslice.tasks.base import Task
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError

_REGRESSION_LOSSES = {"mae": F.l1_loss, "mse": F.mse_loss, "huber": F.huber_loss}


class Molecule(Task):
    """Standardized targets under `loss` (mae, mse, huber), classes under binary cross-entropy.

    Missing targets (NaN) take no part, neither in the loss nor in its gradient.

    Raises:
        MolsliceError: targets of another kind, or an unknown loss.
    """

    def __init__(
        self, model: nn.Module, targets: TargetInfo, *, loss: Literal["mae", "mse", "huber"] = "mae"
    ) -> None:
        super().__init__(model, targets)
        if targets.kind not in ("regression", "classification"):
            raise MolsliceError(
                f"the task molecule is about numbers and yes or no, the data hold a {targets.kind}; choose "
                "another: task: sequence (classes), language or decision"
            )
        if loss not in _REGRESSION_LOSSES:
            raise MolsliceError(f"unknown loss {loss!r}; choices: {', '.join(_REGRESSION_LOSSES)}")
        classes = targets.kind == "classification"
        self.elementwise = F.binary_cross_entropy_with_logits if classes else _REGRESSION_LOSSES[loss]

    def loss_sum(self, prediction: Float[Tensor, "B T"], batch: Any) -> Float[Tensor, ""]:  # noqa: ANN401
        """Summed over the targets that are there; see `Task.loss_sum`."""
        targets = batch.targets
        present = ~targets.isnan()
        # NaN is replaced before the loss: a NaN times a zero mask would still be NaN in the gradient
        wanted = ((targets - self.target_mean) / self.target_std).masked_fill(~present, 0.0)
        return (self.elementwise(prediction, wanted, reduction="none") * present).sum()
