"""Training with layers in bfloat16, while the optimizer keeps float32 weights."""

import copy
from typing import Any

import torch
from torch import Tensor

from molslice.model.encoder import EncoderLayer
from molslice.tasks.base import Task
from molslice.types import MolsliceError


class HalfWeights:
    """A copy of a task with the layers of its encoders in bfloat16, which computes the gradients.

    The weights of the task itself are the ones that the optimizer updates, that are averaged, evaluated and
    saved, all in float32. The layers of the copy have these weights, rounded. Both share all other weights:
    embeddings, pair bias and readout are computed in float32, as is the loss. Norms and softmaxes of the
    layers are computed in float32 inside.

    Raises:
        MolsliceError: The model has no encoder layers.
    """

    def __init__(self, task: Task) -> None:
        whole = [weight for layer in _layers(task) for weight in layer.parameters()]
        if not whole:
            raise MolsliceError(
                "trainer.precision bf16-weights needs a model with encoder layers; choices here: 32, bf16"
            )
        copied = {id(weight) for weight in whole}
        shared: dict[int, Any] = {id(one): one for one in (*task.buffers(), *task.parameters())}
        self.task = copy.deepcopy(task, {key: one for key, one in shared.items() if key not in copied})
        for layer in _layers(self.task):
            layer.bfloat16()
        half = [weight for layer in _layers(self.task) for weight in layer.parameters()]
        self._pairs = [pair for pair in zip(whole, half, strict=True) if pair[0].requires_grad]

    def hand_over_gradients(self) -> None:
        """Move the gradients of the copy to the weights in float32."""
        used = [(whole, half) for whole, half in self._pairs if half.grad is not None]
        for whole, _ in used:
            whole.grad = torch.empty_like(whole)
        _copy([(whole.grad, half.grad) for whole, half in used])
        for _, half in used:
            half.grad = None

    @torch.no_grad()
    def take_weights(self) -> None:
        """Copy the weights in float32 to the copy."""
        _copy([(half.detach(), whole.detach()) for whole, half in self._pairs])


def _layers(task: Task) -> list[EncoderLayer]:
    return [module for module in task.modules() if isinstance(module, EncoderLayer)]


def _copy(pairs: list[tuple[Any, Any]]) -> None:
    """Copy the second tensor of each pair to the first, all at once."""
    targets: list[Tensor] = [target for target, _ in pairs]
    sources: list[Tensor] = [source for _, source in pairs]
    if pairs:
        torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateImportUsage]
