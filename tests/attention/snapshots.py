"""Snapshots of every attention: names and shapes of the state dict, and outputs for fixed weights and tokens.

A refactoring does not change them; a commit that changes one says why. `python -m tests.attention.snapshots`
writes them again.
"""

import json
from dataclasses import replace
from pathlib import Path

import torch

from molslice.testing import Subject
from molslice.types import TokenContext
from tests.attention.subjects import all_subjects

FILE = Path(__file__).with_name("snapshots.json")


def snapshot(subject: Subject) -> dict:
    """Return state and outputs; weights and tokens are fixed, because random streams differ by version."""
    attention = subject.attention()
    with torch.no_grad():
        weights = dict(attention.named_parameters())
        drawn = {name: value for name, value in attention.state_dict().items() if name not in weights}
        for k, weight in enumerate([*weights.values(), *filter(torch.is_floating_point, drawn.values())]):
            steps = torch.arange(weight.numel(), dtype=weight.dtype)
            weight.copy_(torch.sin(steps * (1.3 + k)).view_as(weight))
    tokens = torch.cos(torch.arange(2 * 5 * 8, dtype=torch.float64) * 2.1).view(2, 5, 8)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    bias = torch.sin(torch.arange(2 * 2 * 5 * 5, dtype=torch.float64) * 3.7).view(2, 2, 5, 5)
    context = TokenContext(mask, bias if subject.spec.pair_bias_mode != "none" else None)
    if subject.spec.cross:
        memory = torch.sin(torch.arange(2 * 6 * 8, dtype=torch.float64) * 1.7).view(2, 6, 8)
        context = replace(context, memory=memory, memory_mask=torch.arange(6) < torch.tensor([[6], [4]]))
    with torch.no_grad():
        output = attention(tokens, context)
    picked = output.tokens[mask][::2, ::3].flatten()
    return {
        "state": {name: list(value.shape) for name, value in attention.state_dict().items()},
        "values": [round(value, 9) for value in picked.tolist()],
        "penalty": None if output.penalty is None else round(output.penalty.item(), 12),
    }


def main() -> None:
    """Write the snapshot file."""
    lines = [f"{json.dumps(s.label)}: {json.dumps(snapshot(s))}" for s in all_subjects()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
