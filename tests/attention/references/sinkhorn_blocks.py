"""The float64 reference of `sinkhorn_blocks`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.sinkhorn_blocks import MIN_MASS, SinkhornBlocks


def reference_sequence(
    attention: SinkhornBlocks,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute one token and one head at a time, with blocks as lists of tokens."""
    size, count, causal = attention.spec.head_dim, len(tokens), attention.spec.causal
    blocks = [
        list(range(s, min(s + attention.block_size, count))) for s in range(0, count, attention.block_size)
    ]
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        query, key, value = (f(tokens)[:, part] for f in (attention.query, attention.key, attention.value))
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            share = pair_bias[h].exp().tril() if causal else pair_bias[h].exp()
            value = share @ value / share.sum(1, keepdim=True)
        sorting = _reference_sorting(attention, torch.stack([key[block].sum(0) for block in blocks]))
        rows = []
        for i in range(count):
            position = i // attention.block_size
            own = [j for j in blocks[position] if j <= i or not causal]
            keys, values = [key[j] for j in own], [value[j] for j in own]
            shares = [tokens.new_ones(()) for _ in own]
            for p in range(0 if causal and not position else len(blocks[0])):
                sources = [j for j in range(position if causal else len(blocks)) if p < len(blocks[j])]
                mass = sorting[position, sources].sum().clamp(min=MIN_MASS)
                keys.append(sum(sorting[position, j] * key[blocks[j][p]] for j in sources) / mass)
                values.append(sum(sorting[position, j] * value[blocks[j][p]] for j in sources) / mass)
                shares.append(mass)
            weights = (torch.stack(keys) @ query[i] / size**0.5).exp() * torch.stack(shares)
            rows.append(weights @ torch.stack(values) / weights.sum())
        heads.append(torch.stack(rows))
    return attention.output(torch.cat(heads, -1)), None, None


def _reference_sorting(attention: SinkhornBlocks, sums: Float[Tensor, "G C"]) -> Float[Tensor, "G G"]:
    count = len(sums)
    scores = attention.sort(sums).T
    if attention.spec.causal:
        scores = torch.cat([scores[:1], scores])  # the first row is unused
    matrix = (scores[:count] / attention.temperature).exp()
    matrix = matrix.tril(-1) if attention.spec.causal else matrix
    for _ in range(attention.iterations):
        totals = matrix.cumsum(0) if attention.spec.causal else matrix.sum(0, keepdim=True).expand(count, -1)
        matrix = torch.where(matrix > 0, matrix / totals.where(matrix > 0, 1.0), matrix)
        totals = matrix.sum(1, keepdim=True)
        matrix = matrix / totals.where(totals > 0, 1.0)
    return matrix
