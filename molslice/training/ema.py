"""The exponential moving average of the weights."""

import copy
import functools

import torch
from torch import Tensor, nn

from molslice.training.sharding import local_part


class WeightAverage:
    """A copy of a model with averaged weights: average += (1 - decay) (weights - average).

    The decay grows as (1 + t) / (10 + t) up to its value, so that the initial weights are forgotten early.
    Batch norm statistics are averaged too, because a batch holds molecules of similar size and the last few
    batches do not represent the data. Integer buffers are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.source, self.decay = model, decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @functools.cached_property
    def _pairs(self) -> tuple[list[Tensor], list[Tensor]]:
        """Tensors of the average and of the model in training, listed after both have been sharded."""
        averages, weights = (
            [local_part(tensor.detach()) for tensor in (*model.parameters(), *_floating(model))]
            for model in (self.model, self.source)
        )
        return averages, weights

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average after optimizer step `step`, counted from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averages, weights = self._pairs
        torch._foreach_lerp_(averages, weights, 1.0 - decay)  # pyright: ignore[reportPrivateImportUsage]

    @torch.no_grad()
    def take_counters(self) -> None:
        """Copy integer buffers; call this before the average is used."""
        for copied, buffer in zip(self.model.buffers(), self.source.buffers(), strict=True):
            if not copied.is_floating_point():
                copied.copy_(buffer)


def _floating(model: nn.Module) -> list[Tensor]:
    return [buffer for buffer in model.buffers() if buffer.is_floating_point()]
