"""The float64 reference of `synthesizer`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.synthesizer import Synthesizer


def reference_sequence(
    attention: Synthesizer,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute one score at a time."""
    size, count, values = attention.spec.head_dim, len(tokens), attention.value(tokens)
    mode = attention.spec.pair_bias_mode
    heads = []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        seen = [range(i + 1) if attention.spec.causal else range(count) for i in range(count)]
        value = values[:, part]
        if mode == "mix" and pair_bias is not None:
            value = _average(value, [[pair_bias[h, i, j] for j in seen[i]] for i in range(count)])
        scores = [[_reference_score(attention, tokens[i], h, i, j) for j in seen[i]] for i in range(count)]
        if mode == "logits" and pair_bias is not None:
            scores = [[row[j] + pair_bias[h, i, j] for j in seen[i]] for i, row in enumerate(scores)]
        heads.append(_average(value, scores))
    return attention.output(torch.cat(heads, -1)), None, None


def _reference_score(attention: Synthesizer, token: Float[Tensor, " D"], h: int, i: int, j: int) -> Tensor:
    if attention.kind == "dense":
        size = attention.spec.head_dim
        hidden = attention.hidden(token).clamp(min=0)[h * size : (h + 1) * size]
        return (hidden * attention.score_weight[h, :, j]).sum() + attention.score_bias[h, j]
    if attention.kind == "random":
        return attention.scores[h, i, j]
    return (attention.row_factor[h, i] * attention.column_factor[h, j]).sum()


def _average(values: Float[Tensor, "n C"], scores: list[list[Tensor]]) -> Float[Tensor, "n C"]:
    """Average the first rows of `values` by the exponentials of each row of scores."""
    rows = []
    for row in scores:
        weights = torch.stack(row).exp()
        rows.append(weights @ values[: len(row)] / weights.sum())
    return torch.stack(rows)
