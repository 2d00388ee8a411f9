"""The float64 reference of `key_sort`."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.attention.key_sort import KeySort


def reference_sequence(
    attention: KeySort,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute each weight of each token by its formula."""
    size = attention.spec.head_dim
    heads = []
    for h in range(attention.spec.num_heads):
        places, keys, weights = (f(x)[:, h] for f, x in _numbers(attention, tokens, memory))
        value = attention.value(memory)[:, h * size : (h + 1) * size]
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            value = pair_bias[h].exp() @ value / pair_bias[h].exp().sum(-1, keepdim=True)
        rows = []
        for i in range(len(tokens)):
            shares = (weights - attention.slope * (places[i] - keys).abs()).exp()
            if attention.spec.pair_bias_mode == "logits" and pair_bias is not None:
                shares = shares * pair_bias[h, i].exp()
            rows.append(shares @ value / shares.sum())
        heads.append(torch.stack(rows))
    mixed = torch.cat(heads, -1)
    if attention.gate is not None:
        opening = attention.gate[0] * attention.value(tokens) + attention.gate[1]
        mixed = mixed * opening / (1 + (-opening).exp())
    return attention.output(mixed), None, None


def _numbers(attention: KeySort, tokens: Tensor, memory: Tensor) -> list[tuple[nn.Module, Tensor]]:
    return [(attention.query, tokens), (attention.key, memory), (attention.weight, memory)]
