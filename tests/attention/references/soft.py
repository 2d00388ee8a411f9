"""The float64 reference of `soft`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.soft import Soft


def reference_sequence(
    attention: Soft,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute the full n x n matrix per head, with segments as lists of tokens."""
    size, count = attention.spec.head_dim, len(tokens)
    segments = [
        [r for r in range(count) if r * attention.num_landmarks // count == k]
        for k in range(attention.num_landmarks)
    ]
    segments = [segment for segment in segments if segment]
    queries, values, heads = attention.query(tokens), attention.value(tokens), []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        query, value = queries[:, part], values[:, part]
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            value = pair_bias[h].exp() @ value / pair_bias[h].exp().sum(1, keepdim=True)
        landmarks = torch.stack([query[segment].mean(0) for segment in segments])

        def gaussian(one: Tensor, other: Tensor) -> Tensor:
            return (-((one[:, None] - other[None]) ** 2).sum(-1) / (2 * size**0.5)).exp()

        square = gaussian(landmarks, landmarks)
        inverse = square.T / (square.sum(0).max() * square.sum(1).max())
        for _ in range(attention.iterations):
            inverse = inverse @ (2 * torch.eye(len(square), dtype=square.dtype) - square @ inverse)
        heads.append(gaussian(query, landmarks) @ inverse @ gaussian(landmarks, query) @ value)
    return attention.output(torch.cat(heads, -1)), None, None
