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
    saved, all in float32. The weights of the copy are always these, rounded. Embeddings, pair bias, readout
    and loss stay in float32; norms and softmaxes of the layers compute in float32 inside.

    Args:
        task: The task, on its device.

    Raises:
        MolsliceError: The model has no encoder layers.
    """

    def __init__(self, task: Task) -> None:
        shared: dict[int, Any] = {id(buffer): buffer for buffer in task.buffers()}
        self.task = copy.deepcopy(task, shared)
        layers = [module for module in self.task.modules() if isinstance(module, EncoderLayer)]
        if not layers:
            raise MolsliceError(
                "trainer.precision bf16-weights needs a model with encoder layers; choices here: 32, bf16"
            )
        for layer in layers:
            layer.bfloat16()
        pairs = zip(task.parameters(), self.task.parameters(), strict=True)
        self._pairs = [(whole, half) for whole, half in pairs if whole.requires_grad]

    def hand_over_gradients(self) -> None:
        """Move the gradients of the copy to the weights in float32."""
        used = [(whole, half) for whole, half in self._pairs if half.grad is not None]
        for whole, half in used:
            whole.grad = half.grad if half.dtype == whole.dtype else torch.empty_like(whole)
        rounded = [(whole.grad, half.grad) for whole, half in used if half.dtype != whole.dtype]
        _copy(rounded)
        for _, half in used:
            half.grad = None

    @torch.no_grad()
    def take_weights(self) -> None:
        """Copy the weights in float32 to the copy."""
        _copy([(half.detach(), whole.detach()) for whole, half in self._pairs])


def _copy(pairs: list[tuple[Any, Any]]) -> None:
    """Copy the second tensor of each pair to the first, all at once."""
    targets: list[Tensor] = [target for target, _ in pairs]
    sources: list[Tensor] = [source for _, source in pairs]
    if pairs:
        torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateImportUsage]
