"""AdamW and its learning rate, which is a function of the step without state."""

import math

import torch
from torch import nn

from molslice.config import OptimizerConfig
from molslice.model.count import lookup_tables


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Divide the trainable parameters into groups for AdamW.

    Norms, biases, other vectors and `lookup_tables` do not decay; all other parameters do.

    Args:
        module: The module.
        weight_decay: Weight decay of the decaying parameters.

    Returns:
        The groups that have parameters, as AdamW takes them.
    """
    tables = {id(table) for table in lookup_tables(module)}
    decayed, kept = [], []
    for parameter in module.parameters():
        if parameter.requires_grad:
            (kept if parameter.ndim < 2 or id(parameter) in tables else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def build_optimizer(module: nn.Module, config: OptimizerConfig, *, fused: bool) -> torch.optim.AdamW:
    """Build AdamW for all trainable parameters.

    Args:
        module: The module.
        config: The learning rate, the weight decay and the betas.
        fused: Whether to use torch's fused kernel.
    """
    groups = parameter_groups(module, config.weight_decay)
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=fused)


def learning_rate(config: OptimizerConfig, step: int, max_steps: int) -> float:
    """Return the learning rate of a step.

    The rate increases linearly to `lr` during the warm-up. Then it is constant, decreases with the inverse
    square root of the step, or decreases linearly or by a cosine so that it would reach
    `end_lr_fraction * lr` one step after the last.

    Args:
        config: The schedule.
        step: The step, from 0.
        max_steps: Number of steps of the training.

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
