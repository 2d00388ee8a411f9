"""The float64 reference of `local`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.local import Local


def reference_sequence(
    attention: Local,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute one token and one head at a time."""
    size, causal, mode = attention.spec.head_dim, attention.spec.causal, attention.spec.pair_bias_mode
    queries, keys, values = attention.query(tokens), attention.key(memory), attention.value(memory)
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        query, key, value = queries[:, part], keys[:, part], values[:, part]
        if mode == "mix" and pair_bias is not None:
            share = pair_bias[h].exp().tril() if causal else pair_bias[h].exp()
            value = share @ value / share.sum(1, keepdim=True)
        rows = []
        for i in range(len(tokens)):
            last = i if causal else i + attention.window
            seen = [j for j in range(i - attention.window, last + 1) if 0 <= j < len(memory)]
            scores = key[seen] @ query[i] / size**0.5
            if mode == "logits" and pair_bias is not None:
                scores = scores + pair_bias[h, i, seen]
            rows.append(scores.exp() @ value[seen] / scores.exp().sum())
        heads.append(torch.stack(rows))
    return attention.output(torch.cat(heads, -1)), None, None
