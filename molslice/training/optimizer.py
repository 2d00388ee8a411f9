"""The weights in training: the optimizer, the learning rate of a step, the average, layers in bfloat16."""

import copy
import functools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from molslice.config import OptimizerConfig
from molslice.model.count import lookup_tables, stacked_vectors
from molslice.model.encoder import EncoderLayer
from molslice.model.layer_depth import layer_factors
from molslice.model.local_bonds import BondMessages
from molslice.model.pair_state import PairUpdate
from molslice.tasks.base import Task
from molslice.training.fabric import local_part
from molslice.training.muon import Muon
from molslice.types import MolsliceError


def parameter_groups(
    module: nn.Module, weight_decay: float, factors: Mapping[str, float] | None = None
) -> list[dict[str, object]]:
    """Divide the trainable parameters into groups for the optimizer.

    Norms, biases, other vectors, `lookup_tables` and `stacked_vectors` do not decay; all other parameters do.

    Args:
        module: The module.
        weight_decay: Weight decay of the decaying parameters.
        factors: Factor of the learning rate of each parameter, by its name in `module`; None for 1. A group
            has it as `factor`.
    """
    constant = {id(parameter) for parameter in (*lookup_tables(module), *stacked_vectors(module))}
    groups: dict[tuple[float, bool], dict[str, Any]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            decays = parameter.ndim > 1 and id(parameter) not in constant
            factor = 1.0 if factors is None else factors[name]
            group = groups.setdefault((factor, decays), {"params": []})
            group["params"].append(parameter)
            group["weight_decay"] = weight_decay if decays else 0.0
            if factors is not None:
                group["factor"] = factor
    # the largest rates first, and decaying parameters before the others
    return [groups[key] for key in sorted(groups, key=lambda key: (-key[0], not key[1]))]


def build_optimizer(task: Task, config: OptimizerConfig, *, fused: bool) -> torch.optim.Optimizer:
    """Build the optimizer for all trainable parameters, with torch's fused kernel, which RAdam does not have.

    Raises:
        MolsliceError: `layer_decay` is set, and the model has no numbered layers, or `name` is not available.
    """
    factors = None
    if config.layer_decay is not None:
        named = layer_factors(task.model, config.layer_decay)
        factors = {name: named.get(name.removeprefix("model."), 1.0) for name, _ in task.named_parameters()}
    groups = parameter_groups(task, config.weight_decay, factors)
    if config.name == "muon":
        others = [*lookup_tables(task), *stacked_vectors(task)]
        return Muon(groups, others, lr=config.lr, betas=config.betas, fused=fused)
    if config.name == "radam":
        return torch.optim.RAdam(groups, lr=config.lr, betas=config.betas, decoupled_weight_decay=True)
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=fused)


def state_like(group: dict[str, Any], parameter: Tensor) -> dict[str, Tensor]:
    """Return tensors of the types and shapes of an optimizer's state of a parameter in a group."""
    if "momentum" in group:
        return {"momentum_buffer": parameter}
    return {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}


def learning_rate(config: OptimizerConfig, step: int, max_steps: int) -> float:
    """Return the learning rate of a step.

    The rate increases linearly to `lr` during the warm-up. Then it is constant, decreases with the inverse
    square root of the step, or decreases linearly or by a cosine so that it would reach
    `end_lr_fraction * lr` one step after the last.

    Source: `inverse_sqrt` Vaswani et al. 2017, section 5.3; `cosine` Loshchilov and Hutter 2017, arXiv
    1608.03983, equation 5, without restarts.
    """
    given = config.warmup_steps
    warmup = round(config.warmup_fraction * max_steps) if given is None else given
    if step < warmup:
        return config.lr * (step + 1) / warmup
    if config.schedule == "constant":
        return config.lr
    if config.schedule == "inverse_sqrt":
        return config.lr * math.sqrt(max(1, warmup) / (step + 1))
    passed = min(1.0, (step - warmup) / max(1, max_steps - warmup))
    left = 1.0 - passed if config.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * passed))
    return config.lr * (config.end_lr_fraction + (1.0 - config.end_lr_fraction) * left)


class WeightAverage:
    """A copy of a model with averaged weights: average += (1 - decay) (weights - average).

    The decay grows as (1 + t) / (10 + t) up to its value, so that the initial weights are forgotten early.
    Batch norm statistics are averaged too, because the last few batches are a small sample of the data.
    Integer buffers are copied.
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


class HalfWeights:
    """A copy of a task with the layers of its encoders in bfloat16, which computes the gradients.

    The weights of the task itself are the ones that the optimizer updates, that are averaged, evaluated and
    saved, all in float32. The layers of the copy, with their messages along bonds and updates of the pair
    bias, have these weights, rounded. Both share all other weights: embeddings, S + E and readout are
    computed in float32, as is the loss. Norms and softmaxes of the layers are computed in float32 inside.

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
        shared: dict[int, Any] = {id(tensor): tensor for tensor in (*task.buffers(), *task.parameters())}
        self.task = copy.deepcopy(task, {key: tensor for key, tensor in shared.items() if key not in copied})
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


def _layers(task: Task) -> list[nn.Module]:
    """List the layers of the encoders, with what they compute before the attention."""
    return [
        module for module in task.modules() if isinstance(module, EncoderLayer | BondMessages | PairUpdate)
    ]


def _copy(pairs: list[tuple[Any, Any]]) -> None:
    """Copy the second tensor of each pair to the first, all at once."""
    targets: list[Tensor] = [target for target, _ in pairs]
    sources: list[Tensor] = [source for _, source in pairs]
    if pairs:
        torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateImportUsage]
