"""The float64 reference of `realformer`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.realformer import Realformer


def reference_sequence(
    attention: Realformer,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute one token and one head at a time."""
    size, causal = attention.spec.head_dim, attention.spec.causal
    queries, keys, values = attention.query(tokens), attention.key(memory), attention.value(memory)
    heads, residuals = [], []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        value, rows, residual = values[:, part], [], []
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            shares = pair_bias[h].exp().tril() if causal else pair_bias[h].exp()
            value = shares @ value / shares.sum(1, keepdim=True)
        for i in range(len(tokens)):
            last = i + 1 if causal else len(memory)
            row = keys[:last, part] @ queries[i, part] / size**0.5
            if carry is not None:
                row = row + carry[h, i, :last]
            residual.append(torch.cat([row, row.new_zeros(len(memory) - last)]))
            if attention.spec.pair_bias_mode == "logits" and pair_bias is not None:
                row = row + pair_bias[h, i, :last]
            rows.append(row.exp() @ value[:last] / row.exp().sum())
        heads.append(torch.stack(rows))
        residuals.append(torch.stack(residual))
    return attention.output(torch.cat(heads, -1)), None, torch.stack(residuals)


# The carry holds pairs of tokens, so `apply_reference` removes and restores their padding.
reference_sequence.carries_pairs = True  # pyright: ignore[reportFunctionMemberAccess]
