"""The float64 reference of `yoso`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.yoso import Yoso


def reference_sequence(
    attention: Yoso,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute the full matrix E of each head, the sampled one by comparing signs pair by pair."""
    size = attention.spec.head_dim
    queries, keys, values = attention.query(tokens), attention.key(memory), attention.value(memory)
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        query, key, value = queries[:, part], keys[:, part], values[:, part]
        query = query / query.square().sum(1, keepdim=True).sqrt()
        key = key / key.square().sum(1, keepdim=True).sqrt()
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            value = pair_bias[h].exp() @ value / pair_bias[h].exp().sum(1, keepdim=True)
        products = query @ key.T
        with torch.no_grad():
            estimate = _reference_estimate(attention, h, query, key)
        # The value is the estimate; the gradient by the product is the lower bound.
        weights = estimate * (1 + attention.code_length / 2 * (products - products.detach()))
        if attention.spec.pair_bias_mode == "logits" and pair_bias is not None:
            weights = weights * pair_bias[h].exp()
        mixed = weights @ value
        squares = mixed.square().sum(1, keepdim=True)
        heads.append(mixed / torch.where(squares > 0, squares, 1.0).sqrt())
    return attention.output(torch.cat(heads, -1)), None, None


def _reference_estimate(
    attention: Yoso, h: int, query: Float[Tensor, "n C"], key: Float[Tensor, "m C"]
) -> Tensor:
    if attention.form == "expected":
        return (1 - (query @ key.T).clamp(-1, 1).arccos() / torch.pi) ** attention.code_length
    estimate = torch.zeros(len(query), len(key), dtype=query.dtype)
    for planes in attention.planes[h]:
        for i in range(len(query)):
            for j in range(len(key)):
                estimate[i, j] += bool(((query[i] @ planes > 0) == (key[j] @ planes > 0)).all())
    return estimate / len(attention.planes[h])
