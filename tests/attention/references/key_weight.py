"""The float64 reference of `key_weight`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.key_weight import KeyWeight


def reference_sequence(
    attention: KeyWeight,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute one token at a time."""
    size = attention.spec.head_dim
    heads = []
    for h in range(attention.spec.num_heads):
        weights = attention.weight(memory)[:, h]
        value = attention.value(memory)[:, h * size : (h + 1) * size]
        last = [i + 1 if attention.spec.causal else len(memory) for i in range(len(tokens))]
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            shares = [pair_bias[h, i, : last[i]].exp() for i in range(len(tokens))]
            value = torch.stack([share @ value[: len(share)] / share.sum() for share in shares])
        rows = []
        for i in range(len(tokens)):
            share = weights[: last[i]].exp()
            if attention.spec.pair_bias_mode == "logits" and pair_bias is not None:
                share = share * pair_bias[h, i, : last[i]].exp()
            rows.append(share @ value[: last[i]] / share.sum())
        heads.append(torch.stack(rows))
    return attention.output(torch.cat(heads, -1)), None, None
