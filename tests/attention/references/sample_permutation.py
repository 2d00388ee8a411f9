"""The float64 reference of `sample_permutation`."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.sample_permutation import ROUNDING, SamplePermutation


def reference_sequence(
    attention: SamplePermutation,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute column by column with Python's own sort."""
    value, count = attention.value(tokens), len(tokens)
    columns = []
    for c in range(attention.spec.inner_dim):
        column = value[:, c]
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            shares = pair_bias[c // attention.spec.head_dim].exp()
            column = shares @ column / shares.sum(1)
        step = attention.group_size * c
        if attention.shift == "power":
            part = (attention.spec.layer + c / attention.spec.inner_dim) / attention.spec.num_layers
            step = math.ceil(count**part - ROUNDING)
        column = column[[(i - step) % count for i in range(count)]]
        values = column.tolist()
        places = []
        for start in range(0, count, attention.group_size):
            group = range(start, min(start + attention.group_size, count))
            places += sorted(group, key=values.__getitem__)
        columns.append(column[places])
    return attention.output(torch.stack(columns, -1)), None, None
