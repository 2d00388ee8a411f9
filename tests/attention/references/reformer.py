"""The float64 reference of `reformer`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.reformer import Reformer


def reference_sequence(
    attention: Reformer,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute for each token one softmax over the set of tokens that it meets in any round."""
    size, causal, mode = attention.spec.head_dim, attention.spec.causal, attention.spec.pair_bias_mode
    queries, values, heads = attention.query_key(tokens), attention.value(tokens), []
    for h in range(attention.spec.num_heads):
        query, value = (x[:, h * size : (h + 1) * size] for x in (queries, values))
        if mode == "mix" and pair_bias is not None:
            share = pair_bias[h].exp().tril() if causal else pair_bias[h].exp()
            value = share @ value / share.sum(1, keepdim=True)
        met: list[set[int]] = [set() for _ in range(len(tokens))]
        for rotation in attention.rotations[h]:
            _reference_round(attention, query.detach(), rotation, met)
        rows = []
        for i in range(len(tokens)):
            seen = sorted(met[i] - {i}) or [i]
            keys = torch.stack([query[j] / query[j].square().sum().sqrt() for j in seen])
            scores = keys @ query[i] / size**0.5
            if mode == "logits" and pair_bias is not None:
                scores = scores + pair_bias[h, i, seen]
            rows.append((scores - scores.max()).softmax(0) @ value[seen])
        heads.append(torch.stack(rows))
    return attention.output(torch.cat(heads, -1)), None, None


def _reference_round(
    attention: Reformer, query: Float[Tensor, "n C"], rotation: Float[Tensor, "C K"], met: list[set[int]]
) -> None:
    if attention.is_adaptive:
        rotation = rotation[:, : -(-len(query) // attention.chunk_size)]
    buckets = torch.cat([query @ rotation, -query @ rotation], 1).argmax(1).tolist()
    by_bucket = sorted(range(len(query)), key=lambda i: (buckets[i], i))
    chunk = {i: rank // attention.chunk_size for rank, i in enumerate(by_bucket)}
    for i in range(len(query)):
        members = [j for j in range(len(query)) if buckets[j] == buckets[i]]
        if attention.spec.causal:
            met[i].update([j for j in members if j < i][-attention.chunk_size :])
        else:
            met[i].update(j for j in members if chunk[i] - chunk[j] in (0, 1))
