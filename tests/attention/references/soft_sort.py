"""The float64 reference of `soft_sort`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.soft_sort import SoftSort


def reference_sequence(
    attention: SoftSort,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute column by column with the full matrix P."""
    size, value = attention.spec.head_dim, attention.value(tokens)
    columns = []
    for i in range(attention.spec.inner_dim):
        column = value[:, i]
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            shares = pair_bias[i // size].exp()
            column = shares @ column / shares.sum(1)
        by_value = sorted(range(len(column)), key=column.tolist().__getitem__)
        weights = (-(column[by_value][:, None] - column).abs() / attention.temperature).exp()
        columns.append(weights @ column / weights.sum(1))
    return attention.output(torch.stack(columns, -1)), None, None
