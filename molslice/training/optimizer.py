"""The optimizer and its learning rate, which is a function of the step without state."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from molslice.config import OptimizerConfig
from molslice.model.count import lookup_tables
from molslice.model.depth import layer_factors
from molslice.tasks.base import Task


def parameter_groups(
    module: nn.Module, weight_decay: float, factors: Mapping[str, float] | None = None
) -> list[dict[str, object]]:
    """Divide the trainable parameters into groups for the optimizer.

    Norms, biases, other vectors and `lookup_tables` do not decay; all other parameters do.

    Args:
        module: The module.
        weight_decay: Weight decay of the decaying parameters.
        factors: Factor of the learning rate of each parameter, by its name in `module`; None for 1.

    Returns:
        The groups that have parameters, as optimizers take them. A group with a factor has it as `factor`.
    """
    tables = {id(table) for table in lookup_tables(module)}
    groups: dict[tuple[float, bool], dict[str, Any]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            decays = parameter.ndim > 1 and id(parameter) not in tables
            factor = 1.0 if factors is None else factors[name]
            group = groups.setdefault((factor, decays), {"params": []})
            group["params"].append(parameter)
            group["weight_decay"] = weight_decay if decays else 0.0
            if factors is not None:
                group["factor"] = factor
    # the largest rates first, and decaying parameters before the others
    return [groups[key] for key in sorted(groups, key=lambda key: (-key[0], not key[1]))]


def build_optimizer(task: Task, config: OptimizerConfig, *, fused: bool) -> torch.optim.Optimizer:
    """Build the optimizer for all trainable parameters.

    Args:
        task: The task with its model.
        config: The name, the learning rate, the weight decay, the betas and the decay from layer to layer.
        fused: Whether to use torch's fused kernel, which RAdam does not have.

    Raises:
        MolsliceError: `layer_decay` is set, and the model has no numbered layers.
    """
    factors = None
    if config.layer_decay is not None:
        named = layer_factors(task.model, config.layer_decay)
        factors = {name: named.get(name.removeprefix("model."), 1.0) for name, _ in task.named_parameters()}
    groups = parameter_groups(task, config.weight_decay, factors)
    if config.name == "radam":
        return torch.optim.RAdam(groups, lr=config.lr, betas=config.betas, decoupled_weight_decay=True)
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=fused)


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
