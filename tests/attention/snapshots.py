"""Snapshots of every attention: names and shapes of its state, and values at fixed weights and tokens.

A refactor leaves them alone; a change that moves one says why. `python -m tests.attention.snapshots` writes
them anew.
"""

import json
from pathlib import Path

import torch

from molslice.types import TokenContext
from tests.attention.subjects import Subject, all_subjects

FILE = Path(__file__).with_name("snapshots.json")


def snapshot(subject: Subject) -> dict:
    """State and a few outputs; weights and tokens by formula, as random streams change between versions."""
    attention = subject.attention()
    with torch.no_grad():
        for k, parameter in enumerate(attention.parameters()):
            steps = torch.arange(parameter.numel(), dtype=parameter.dtype)
            parameter.copy_(torch.sin(steps * (1.3 + k)).view_as(parameter))
    tokens = torch.cos(torch.arange(2 * 5 * 8, dtype=torch.float64) * 2.1).view(2, 5, 8)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    bias = torch.sin(torch.arange(2 * 2 * 5 * 5, dtype=torch.float64) * 3.7).view(2, 2, 5, 5)
    with torch.no_grad():
        output = attention(tokens, TokenContext(mask, bias if subject.spec.pair_bias != "none" else None))
    picked = output.tokens[mask][::2, ::3].flatten()
    return {
        "state": {name: list(value.shape) for name, value in attention.state_dict().items()},
        "values": [round(value, 9) for value in picked.tolist()],
        "penalty": None if output.penalty is None else round(output.penalty.item(), 12),
    }


def main() -> None:
    """Write the file."""
    lines = [f"{json.dumps(s.label)}: {json.dumps(snapshot(s))}" for s in all_subjects()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
