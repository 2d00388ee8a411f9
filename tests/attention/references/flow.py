"""The float64 reference of `flow`."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

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
        capacity = _phi(attention, queries[:, part]) @ _phi(attention, keys[:, part]).T
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


def _phi(attention: Flow, x: Float[Tensor, "n C"]) -> Tensor:
    if attention.phi == "elu":
        return functional.elu(x) + 1
    return x.sigmoid() if attention.phi == "sigmoid" else x.clamp(min=0.0)


def _factor(activation: str | None, t: int, flow: list[Tensor], rivals: range) -> Tensor:
    """Return the factor of token t; with softmax, among its rivals."""
    if activation == "softmax":
        return flow[t].exp() / sum(flow[j].exp() for j in rivals) * len(rivals)
    if activation == "sigmoid":
        return flow[t].sigmoid()
    return flow[t] if activation == "relu" else torch.ones_like(flow[t])  # a flow is not negative


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
    source = [torch.as_tensor(flow) for flow in source]
    if attention.clamp is not None:
        source = [flow.clamp(-attention.clamp, attention.clamp) for flow in source]
    if attention.competition != "softmax":
        source = [flow * m / n for flow in source]
    sink = [torch.as_tensor(flow) * n / m for flow in sink]
    won = [_factor(attention.competition, t, source, range(t + 1 if causal else m)) for t in range(m)]
    given = [_factor(attention.allocation, t, sink, range(t + 1 if causal else n)) for t in range(n)]
    rows = []
    for t in range(n):
        row = sum(capacity[t, j] / incoming[t] * won[j] * value[j] for j in sources[t])
        rows.append(row * given[t])
    return torch.stack([torch.as_tensor(row) for row in rows])
