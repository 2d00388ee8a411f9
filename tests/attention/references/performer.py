"""The float64 reference of `performer`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.performer import Performer


def reference_sequence(
    attention: Performer,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute each pair of tokens as a mean over the features, without a stabilizer."""
    size, causal = attention.spec.head_dim, attention.spec.causal
    queries, keys, values = attention.query(tokens), attention.key(memory), attention.value(memory)
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        query, key, value = queries[:, part] / size**0.25, keys[:, part] / size**0.25, values[:, part]
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            shares = pair_bias[h].exp().tril() if causal else pair_bias[h].exp()
            value = shares @ value / shares.sum(1, keepdim=True)
        rows = []
        for i in range(len(tokens)):
            last = i + 1 if causal else len(memory)
            weights = torch.stack([_estimate(attention, query[i], key[j]) for j in range(last)])
            rows.append(weights @ value[:last] / weights.sum())
        heads.append(torch.stack(rows))
    return attention.output(torch.cat(heads, -1)), None, None


def _estimate(
    attention: Performer, query: Float[Tensor, " C"], key: Float[Tensor, " C"]
) -> Float[Tensor, " "]:
    """Return the estimate of exp(query key)."""
    phi_query = (attention.projection @ query - query @ query / 2).exp()
    phi_key = (attention.projection @ key - key @ key / 2).exp()
    return (phi_query * phi_key).mean()
