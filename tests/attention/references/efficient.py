"""The float64 reference of `efficient`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.efficient import Efficient


def reference_sequence(
    attention: Efficient,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute the n x m matrix of weights that the fast form avoids."""
    size = attention.spec.head_dim
    queries, keys, values = (
        attention.query(tokens).exp(),
        attention.key(memory).exp(),
        attention.value(memory),
    )
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        query, key, value = queries[:, part], keys[:, part], values[:, part]
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            value = pair_bias[h].exp() @ value / pair_bias[h].exp().sum(1, keepdim=True)
        weights = (query / query.sum(1, keepdim=True)) @ (key / key.sum(0, keepdim=True)).T
        heads.append(weights @ value)
    return attention.output(torch.cat(heads, -1)), None, None
