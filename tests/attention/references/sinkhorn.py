"""The float64 reference of `sinkhorn`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.sinkhorn import Sinkhorn


def reference_sequence(
    attention: Sinkhorn,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Divide the matrix of each head by its sums."""
    size = attention.spec.head_dim
    queries, keys, values = attention.query(tokens), attention.key(memory), attention.value(memory)
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        value = values[:, part]
        matrix = (queries[:, part] @ keys[:, part].T / size**0.5).exp()
        if attention.spec.pair_bias_mode != "none" and pair_bias is not None:
            factor = pair_bias[h].exp()
            if attention.spec.pair_bias_mode == "logits":
                matrix = matrix * factor
            else:
                value = factor @ value / factor.sum(1, keepdim=True)
        for step in range(attention.iterations):
            matrix = matrix / matrix.sum(1 - step % 2, keepdim=True)
        heads.append(matrix @ value)
    return attention.output(torch.cat(heads, -1)), None, None
