"""Offline reinforcement learning: predict recorded actions from returns-to-go, states and earlier actions."""

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from molslice.tasks.base import Task


class Decision(Task):
    """Mean squared error of the actions, over all components of all real steps of a batch.

    Source: Decision Transformer (Chen et al. 2021, arXiv 2106.01345, algorithm 1).
    """

    kinds: ClassVar = ("actions",)

    def loss_sum(self, prediction: Float[Tensor, "B S T"], batch: Any) -> Float[Tensor, ""]:  # noqa: ANN401
        """Sum over steps and action components; see `Task.loss_sum`."""
        return _squared_errors(prediction, batch).sum()

    @property
    def num_results(self) -> int:
        """The number 1: the mean squared error of a window."""
        return 1

    def results(self, prediction: Float[Tensor, "B S T"], batch: Any) -> Float[Tensor, "B 1"]:  # noqa: ANN401
        """Return the mean squared error of each window, in the squared unit of the actions [B, 1]."""
        errors = _squared_errors(prediction.float(), batch).mean(2)
        if batch.step_mask is None:
            return errors.mean(1, keepdim=True)
        return errors.sum(1, keepdim=True) / batch.step_mask.sum(1, keepdim=True).clamp(min=1)


def _squared_errors(prediction: Float[Tensor, "B S T"], batch: Any) -> Float[Tensor, "B S T"]:  # noqa: ANN401
    """Return squared errors [B, S, T], zero at padding whatever its values."""
    difference = prediction - batch.actions
    if batch.step_mask is not None:
        difference = difference.masked_fill(~batch.step_mask[..., None], 0.0)
    return difference.square()
