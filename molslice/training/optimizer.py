"""AdamW and its schedule; the schedule is a function of the step, without state."""

import math

import torch
from torch import nn

from molslice.config import OptimizerConfig


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Matrices decay; norms, biases, single vectors and tables that are looked up do not."""
    decayed, kept = [], []
    for part in module.modules():
        table = isinstance(part, nn.Embedding) or type(part).__name__.endswith("Embedding")
        for parameter in part.parameters(recurse=False):
            if parameter.requires_grad:
                (kept if table or parameter.ndim < 2 else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def build_optimizer(module: nn.Module, config: OptimizerConfig, *, fused: bool) -> torch.optim.AdamW:
    """AdamW on all trainable parameters; `fused` takes torch's one-kernel form."""
    groups = parameter_groups(module, config.weight_decay)
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=fused)


def learning_rate(config: OptimizerConfig, step: int, max_steps: int) -> float:
    """The rate of the step that has `step` steps before it, of `max_steps`.

    Linear up to `lr` over the warm-up, then linear or cosine, which would reach `end_lr_fraction * lr` one
    step after the last, or constant, or by the inverse square root of the step (counted from 1).
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
