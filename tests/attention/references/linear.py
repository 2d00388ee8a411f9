"""The float64 reference of `linear`."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.attention.linear import Linear


def reference_sequence(
    attention: Linear,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute the full row of weights, head by head and token by token."""
    size, causal = attention.spec.head_dim, attention.spec.causal
    queries, keys, values = attention.query(tokens), attention.key(memory), attention.value(memory)
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
            query = nn.functional.elu(queries[i, part]) + 1
            weights = (nn.functional.elu(keys[:last, part]) + 1) @ query
            rows.append(weights @ value[:last] / weights.sum())
        heads.append(torch.stack(rows))
    return attention.output(torch.cat(heads, -1)), None, None
