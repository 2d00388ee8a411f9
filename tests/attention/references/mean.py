"""The float64 reference of `mean`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.mean import Mean


def reference_sequence(
    attention: Mean,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Sum over the tokens that each token attends to."""
    size, values = attention.spec.head_dim, attention.value(memory)
    seen = [range(i + 1) if attention.spec.causal else range(len(memory)) for i in range(len(tokens))]
    if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
        mixed = []
        for i in range(len(tokens)):
            row = []
            for h in range(attention.spec.num_heads):
                shares = [pair_bias[h, i, j].exp() for j in seen[i]]
                parts = [
                    share * values[j, h * size : (h + 1) * size]
                    for share, j in zip(shares, seen[i], strict=True)
                ]
                row.append(sum(parts) / sum(shares))
            mixed.append(torch.cat([torch.as_tensor(part) for part in row]))
        values = torch.stack(mixed)
    means = [torch.as_tensor(sum(values[j] for j in seen[i]) / len(seen[i])) for i in range(len(tokens))]
    return attention.output(torch.stack(means)), None, None
