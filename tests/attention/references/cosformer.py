"""The float64 reference of `cosformer`."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.cosformer import EPS, Cosformer


def reference_sequence(
    attention: Cosformer,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute the full matrix of weights, entry by entry."""
    size, causal = attention.spec.head_dim, attention.spec.causal
    longest = (attention.spec.max_tokens or 1) if causal else max(len(tokens), len(memory))
    queries, keys, values = (
        attention.query(tokens).relu(),
        attention.key(memory).relu(),
        attention.value(memory),
    )
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        value = values[:, part]
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            shares = pair_bias[h].exp().tril() if causal else pair_bias[h].exp()
            value = shares @ value / shares.sum(1, keepdim=True)
        rows = []
        for i in range(len(tokens)):
            last = i + 1 if causal else len(memory)
            near = [math.cos(math.pi * (i - j) / (2 * longest)) for j in range(last)]
            weights = torch.stack([queries[i, part] @ keys[j, part] * near[j] for j in range(last)])
            rows.append(weights @ value[:last] / weights.sum().clamp(min=EPS))
        heads.append(torch.stack(rows))
    return attention.output(torch.cat(heads, -1)), None, None
