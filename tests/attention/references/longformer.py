"""The float64 reference of `longformer`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.longformer import Longformer


def reference_sequence(
    attention: Longformer,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute one token and one head at a time."""
    size, mode, n = attention.spec.head_dim, attention.spec.pair_bias_mode, len(tokens)
    ordinary = (attention.query(tokens), attention.key(tokens), attention.value(tokens))
    own = (attention.global_query(tokens), attention.global_key(tokens), attention.global_value(tokens))
    heads = []
    for h in range(attention.spec.num_heads):
        rows = []
        for i in range(n):
            is_global = i < attention.num_global
            part = slice(h * size, (h + 1) * size)
            query, key, value = (x[:, part] for x in (own if is_global else ordinary))
            if mode == "mix" and pair_bias is not None:
                value = pair_bias[h].exp() @ value / pair_bias[h].exp().sum(1, keepdim=True)
            seen = [
                j for j in range(n) if is_global or j < attention.num_global or abs(i - j) <= attention.window
            ]
            scores = key[seen] @ query[i] / size**0.5
            if mode == "logits" and pair_bias is not None:
                scores = scores + pair_bias[h, i, seen]
            rows.append(scores.exp() @ value[seen] / scores.exp().sum())
        heads.append(torch.stack(rows))
    return attention.output(torch.cat(heads, -1)), None, None
