"""The float64 reference of `softmax`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.softmax import Softmax


def reference_sequence(
    attention: Softmax,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute one token and one head at a time."""
    size = attention.spec.head_dim
    queries, keys, values = attention.query(tokens), attention.key(memory), attention.value(memory)
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        query, key, value = queries[:, part], keys[:, part], values[:, part]
        rows, mixed = [], []
        for i in range(len(tokens)):
            if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
                last = i + 1 if attention.spec.causal else len(tokens)
                share = pair_bias[h, i, :last].exp()
                mixed.append(share @ value[:last] / share.sum())
        value = torch.stack(mixed) if mixed else value
        for i in range(len(tokens)):
            last = i + 1 if attention.spec.causal else len(memory)
            scores = key[:last] @ query[i] / size**0.5
            if attention.spec.pair_bias_mode == "logits" and pair_bias is not None:
                scores = scores + pair_bias[h, i, :last]
            rows.append(scores.exp() @ value[:last] / scores.exp().sum())
        heads.append(torch.stack(rows))
    return attention.output(torch.cat(heads, -1)), None, None
