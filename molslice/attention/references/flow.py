"""The float64 reference of `flow`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.flow import EPS, Flow


def reference_sequence(
    attention: Flow,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute the full matrix of capacities of each head, which the fast form avoids without a pair bias."""
    size, causal = attention.spec.head_dim, attention.spec.causal
    queries, keys, values = attention.query(tokens), attention.key(memory), attention.value(memory)
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        capacity = queries[:, part].sigmoid() @ keys[:, part].sigmoid().T
        factor, value = torch.ones_like(capacity), values[:, part]
        if attention.spec.pair_bias_mode != "none" and pair_bias is not None:
            scale = pair_bias[h].exp()
            if attention.spec.pair_bias_mode == "logits":
                capacity, factor = capacity * scale, scale.detach()
            else:
                scale = scale.tril() if causal else scale
                value = scale @ value / scale.sum(1, keepdim=True)
        heads.append(_reference_head(attention, capacity, factor, value))
    return attention.output(torch.cat(heads, -1)), None, None


def _reference_head(
    attention: Flow,
    capacity: Float[Tensor, "n m"],
    factor: Float[Tensor, "n m"],
    value: Float[Tensor, "m C"],
) -> Tensor:
    """Return a head; eps is multiplied by the largest of the factors exp(S + E) of its sum."""
    causal = attention.spec.causal
    n, m = capacity.shape
    # The tokens that token t sums over: all, or in the causal form those up to itself.
    sources = [range(t + 1) if causal else range(m) for t in range(n)]
    sinks = [range(t + 1) if causal else range(n) for t in range(m)]
    count = [t + 1.0 if causal else 1.0 for t in range(max(n, m))]
    incoming = [sum(capacity[t, j] for j in sources[t]) for t in range(n)]
    incoming = [incoming[t] + EPS * max(factor[t, j] for j in sources[t]) for t in range(n)]
    outgoing = [sum(capacity[i, t] for i in sinks[t]) for t in range(m)]
    outgoing = [outgoing[t] + EPS * max(factor[i, t] for i in sinks[t]) for t in range(m)]
    sink = [sum(capacity[t, j] / outgoing[j] * count[j] for j in sources[t]) / count[t] for t in range(n)]
    source = [sum(capacity[i, t] / incoming[i] * count[i] for i in sinks[t]) / count[t] for t in range(m)]
    weight = [
        (s if attention.clamp is None else s.clamp(-attention.clamp, attention.clamp)).exp()
        for s in map(torch.as_tensor, source)
    ]
    rivals = [range(t + 1) if causal else range(m) for t in range(m)]
    won = [weight[t] / sum(weight[j] for j in rivals[t]) * len(rivals[t]) for t in range(m)]
    rows = []
    for t in range(n):
        row = sum(capacity[t, j] / incoming[t] * won[j] * value[j] for j in sources[t])
        rows.append(row * (torch.as_tensor(sink[t]) * n / m).sigmoid())
    return torch.stack([torch.as_tensor(row) for row in rows])
