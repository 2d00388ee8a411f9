"""The float64 reference of `linformer`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.linformer import Linformer


def reference_sequence(
    attention: Linformer,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute each row of the projections, token by token."""
    size = attention.spec.head_dim
    value_projection = attention.project_key if attention.project_value is None else attention.project_value
    queries, keys, values = attention.query(tokens), attention.key(memory), attention.value(memory)
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        key, value = keys[:, part], values[:, part]
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            value = pair_bias[h].exp() @ value / pair_bias[h].exp().sum(1, keepdim=True)
        e, f = (x[h if len(x) > 1 else 0] for x in (attention.project_key, value_projection))
        short_keys = [sum(e[r, j] * key[j] for j in range(len(memory))) for r in range(attention.rank)]
        short_values = [sum(f[r, j] * value[j] for j in range(len(memory))) for r in range(attention.rank)]
        scores = queries[:, part] @ torch.stack([torch.as_tensor(x) for x in short_keys]).T / size**0.5
        weights = scores.exp() / scores.exp().sum(1, keepdim=True)
        heads.append(weights @ torch.stack([torch.as_tensor(x) for x in short_values]))
    return attention.output(torch.cat(heads, -1)), None, None
