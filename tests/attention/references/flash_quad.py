"""The float64 reference of `flash_quad`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.flash_quad import FlashQuad


def reference_sequence(
    attention: FlashQuad,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute one pair of tokens at a time, in each head."""
    shared = attention.shared(tokens) * attention.shared(tokens).sigmoid()
    values = attention.value(tokens) * attention.value(tokens).sigmoid()
    gates = attention.gate(tokens) * attention.gate(tokens).sigmoid()
    size = attention.expansion * attention.spec.head_dim
    rows = []
    for i in range(len(tokens)):
        seen = range(i + 1) if attention.spec.causal else range(len(tokens))
        heads = []
        for h in range(attention.spec.num_heads):
            total = values.new_zeros(size)
            for j in seen:
                query, key = (
                    shared[t] * attention.scale[k] + attention.shift[k] for k, t in enumerate((i, j))
                )
                score = (query * key).sum() / attention.key_dim**0.5
                if attention.spec.pair_bias_mode == "logits" and pair_bias is not None:
                    score = score + pair_bias[h, i, j]
                value = _reference_value(attention, values[:, h * size : (h + 1) * size], pair_bias, h, j)
                total = total + score.clamp(min=0) ** 2 * value
            heads.append(total / len(seen))
        rows.append(gates[i] * torch.cat(heads))
    return attention.output(torch.stack(rows)), None, None


def _reference_value(
    attention: FlashQuad,
    values: Float[Tensor, "n C"],
    pair_bias: Float[Tensor, "H n n"] | None,
    h: int,
    j: int,
) -> Float[Tensor, " C"]:
    if attention.spec.pair_bias_mode != "mix" or pair_bias is None:
        return values[j]
    last = j + 1 if attention.spec.causal else len(values)
    shares = pair_bias[h, j, :last].exp()
    return shares @ values[:last] / shares.sum()
