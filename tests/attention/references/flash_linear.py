"""The float64 reference of `flash_linear`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.flash_linear import FlashLinear


def reference_sequence(
    attention: FlashLinear,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute one pair of tokens at a time."""
    shared = attention.shared(tokens) * attention.shared(tokens).sigmoid()
    values = attention.value(tokens) * attention.value(tokens).sigmoid()
    gates = attention.gate(tokens) * attention.gate(tokens).sigmoid()
    quad_query, quad_key, query, key = (shared * attention.scale[i] + attention.shift[i] for i in range(4))
    causal, size = attention.spec.causal, attention.chunk_size
    if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
        shares = pair_bias.exp().tril() if causal else pair_bias.exp()
        parts = values.chunk(attention.spec.num_heads, -1)
        values = torch.cat([w @ v / w.sum(1, keepdim=True) for w, v in zip(shares, parts, strict=True)], -1)
    rows = []
    for i in range(len(tokens)):
        members = [j for j in range(len(tokens)) if j // size == i // size and (j <= i or not causal)]
        others = [j for j in range(len(tokens)) if j // size < i // size or not causal]
        mixed = torch.zeros_like(gates[i])
        for j in members:
            score = (quad_query[i] * quad_key[j]).sum() / attention.key_dim**0.5
            mixed = mixed + score.clamp(min=0) ** 2 * values[j] / len(members)
        for j in others:
            mixed = mixed + (query[i] * key[j]).sum() * values[j] / len(others)
        rows.append(gates[i] * mixed)
    return attention.output(torch.stack(rows)), None, None
