"""The float64 reference of `nystrom`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.nystrom import Nystrom


def reference_sequence(
    attention: Nystrom,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute the whole N x N matrix from the segments that have a token."""
    size = attention.spec.head_dim
    queries, keys, values = attention.query(tokens), attention.key(memory), attention.value(memory)
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        query, key, value = queries[:, part], keys[:, part], values[:, part]
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            value = pair_bias[h].exp() @ value / pair_bias[h].exp().sum(1, keepdim=True)
        landmark_queries, landmark_keys = (torch.stack(_segments(attention, x)) for x in (query, key))
        pairs = [(query, landmark_keys), (landmark_queries, landmark_keys), (landmark_queries, key)]
        scores = [(one @ other.T / size**0.5).exp() for one, other in pairs]
        from_landmarks, core, to_landmarks = (score / score.sum(1, keepdim=True) for score in scores)
        inverse = core.T / (core.sum(0).max() * core.sum(1).max())
        unit = torch.eye(len(core), dtype=core.dtype)
        for _ in range(attention.iterations):
            product = core @ inverse
            inner = 13 * unit - product @ (15 * unit - product @ (7 * unit - product))
            inverse = inverse @ inner / 4
        heads.append(from_landmarks @ inverse @ to_landmarks @ value + _slow_residual(attention, value, h))
    return attention.output(torch.cat(heads, -1)), None, None


def _segments(attention: Nystrom, x: Float[Tensor, "n C"]) -> list[Tensor]:
    members: dict[int, list[Tensor]] = {}
    for rank, row in enumerate(x):
        members.setdefault(rank * attention.landmarks // len(x), []).append(row)
    return [torch.stack(rows).mean(0) for rows in members.values()]


def _slow_residual(attention: Nystrom, value: Float[Tensor, "n C"], head: int) -> Tensor | float:
    if attention.conv is None:
        return 0.0
    kernel, count = attention.conv.weight[head, 0, :, 0], len(value)
    half = len(kernel) // 2
    rows = []
    for i in range(count):
        near = range(max(0, i - half), min(count, i + half + 1))
        rows.append(torch.stack([kernel[j - i + half] * value[j] for j in near]).sum(0))
    return torch.stack(rows)
