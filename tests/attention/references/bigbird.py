"""The float64 reference of `bigbird`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.bigbird import Bigbird
from molslice.ops.windows import hash_words


def reference_sequence(
    attention: Bigbird,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute one token and one head at a time, over lists of blocks."""
    size, mode, n = attention.spec.head_dim, attention.spec.pair_bias_mode, len(tokens)
    queries, keys, values = attention.query(tokens), attention.key(memory), attention.value(memory)
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        query, key, value = queries[:, part], keys[:, part], values[:, part]
        if mode == "mix" and pair_bias is not None:
            value = pair_bias[h].exp() @ value / pair_bias[h].exp().sum(1, keepdim=True)
        rows = []
        for i in range(n):
            blocks = _reference_blocks(attention, h, i // attention.block, -(-n // attention.block))
            seen = [j for j in range(n) if j // attention.block in blocks]
            scores = key[seen] @ query[i] / size**0.5
            if mode == "logits" and pair_bias is not None:
                scores = scores + pair_bias[h, i, seen]
            rows.append(scores.exp() @ value[seen] / scores.exp().sum())
        heads.append(torch.stack(rows))
    return attention.output(torch.cat(heads, -1)), None, None


def _reference_blocks(attention: Bigbird, head: int, block: int, blocks: int) -> set[int]:
    if block < attention.num_global:
        return set(range(blocks))
    seen = {*range(attention.num_global), block - 1, block, block + 1}
    others = [other for other in range(blocks) if other not in seen]
    for k in range(min(attention.num_random, len(others))):
        number = int(hash_words(attention.seed, attention.spec.layer, head, block, k))
        seen.add(others.pop(number % len(others)))
    return seen
