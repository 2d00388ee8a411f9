"""The float64 reference of `identity`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.identity import Identity


def reference_sequence(
    attention: Identity,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Apply both maps, with the full matrix softmax(S + E) between them if there is a pair bias."""
    values = attention.value(tokens)
    if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
        size = attention.spec.head_dim
        heads = [
            bias.exp() @ values[:, h * size : (h + 1) * size] / bias.exp().sum(1, keepdim=True)
            for h, bias in enumerate(pair_bias)
        ]
        values = torch.cat(heads, -1)
    return attention.output(values), None, None
