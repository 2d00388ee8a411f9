"""The float64 reference of `sparse`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.sparse import Sparse


def reference_sequence(
    attention: Sparse,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute one token and one head at a time."""
    size, causal, mode, n = (
        attention.spec.head_dim,
        attention.spec.causal,
        attention.spec.pair_bias_mode,
        len(tokens),
    )
    queries, keys, values = attention.query(tokens), attention.key(memory), attention.value(memory)
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        query, key, value = queries[:, part], keys[:, part], values[:, part]
        if mode == "mix" and pair_bias is not None:
            share = pair_bias[h].exp().tril() if causal else pair_bias[h].exp()
            value = share @ value / share.sum(1, keepdim=True)
        rows = []
        for i in range(n):
            seen = [j for j in range(i + 1 if causal else n) if _reference_sees(attention, h, i, j)]
            scores = key[seen] @ query[i] / size**0.5
            if mode == "logits" and pair_bias is not None:
                scores = scores + pair_bias[h, i, seen]
            total = scores.exp().sum() if seen else 1.0
            rows.append(scores.exp() @ value[seen] / total)
        heads.append(torch.stack(rows))
    return attention.output(torch.cat(heads, -1)), None, None


def _reference_sees(attention: Sparse, head: int, i: int, j: int) -> bool:
    stride, heads = attention.stride, attention.spec.num_heads
    if attention.pattern == "strided":
        near, far = abs(i - j) <= stride, (i - j) % stride == 0
    else:
        summaries = [(stride - 1 - head * attention.summary - k) % stride for k in range(attention.summary)]
        near, far = i // stride == j // stride, j % stride in summaries
    if attention.factors == "merged":
        return near or far
    if attention.factors == "heads":
        return near if head < heads // 2 else far
    return near if attention.spec.layer % 2 == 0 else far
