"""The float64 reference of `random_feature`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.random_feature import FLOOR, RandomFeature


def reference_sequence(
    attention: RandomFeature,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute each pair of tokens: sin a sin b + cos a cos b = cos(a - b)."""
    size, causal = attention.spec.head_dim, attention.spec.causal
    queries, keys, values = attention.query(tokens), attention.key(memory), attention.value(memory)
    gates = None if attention.gate is None else attention.gate(tokens).sigmoid()
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        value = values[:, part]
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            shares = pair_bias[h].exp().tril() if causal else pair_bias[h].exp()
            value = shares @ value / shares.sum(1, keepdim=True)
        scale = 1.0 if attention.scale is None else attention.scale[h, 0]
        rows = []
        for i in range(len(tokens)):
            query = queries[i, part] / queries[i, part].square().sum().sqrt()
            last, weights = i + 1 if causal else len(memory), []
            for j in range(last):
                key = keys[j, part] / keys[j, part].square().sum().sqrt()
                weights.append((attention.projection[h] @ (scale * (query - key))).cos().mean())
            factors = torch.ones(last, dtype=tokens.dtype)
            if gates is not None:
                factors = torch.stack(
                    [(1 - gates[j, h]) * gates[j + 1 : last, h].prod() for j in range(last)]
                )
            weights = torch.stack(weights) * factors
            rows.append(weights @ value[:last] / weights.sum().clamp(min=FLOOR * factors.sum()))
        heads.append(torch.stack(rows))
    return attention.output(torch.cat(heads, -1)), None, None
