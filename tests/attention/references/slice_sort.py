"""The float64 reference of `slice_sort`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.slice_sort import TIE_TOLERANCE, SliceSort
from molslice.ops.sorting import shuffle_order


def reference_sequence(
    attention: SliceSort,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute column by column with Python's own sort."""
    size = attention.spec.head_dim
    value = attention.value(tokens)
    mixed = value
    if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
        weights = pair_bias.exp() / pair_bias.exp().sum(-1, keepdim=True)
        parts = [weights[h] @ value[:, h * size : (h + 1) * size] for h in range(attention.spec.num_heads)]
        mixed = torch.cat(parts, -1)
    source = mixed if attention.form == "sort_of_mix" else value
    columns = []
    for i in range(attention.spec.inner_dim):
        column, lead = source[:, i], source[:, i - i % size]
        if attention.placement == "index":
            columns.append(_reference_column(attention, column, i))
            continue
        by_lead = sorted(range(len(column)), key=lead.tolist().__getitem__)
        arranged = _reference_column(attention, column[by_lead], i)
        placed = torch.zeros_like(column)
        for run in _runs(lead[by_lead].tolist()):
            for rank in run:
                placed[by_lead[rank]] = arranged[run].mean()
        columns.append(placed)
    arranged = torch.stack(columns, -1)
    return attention.output(arranged if attention.form == "sort_of_mix" else mixed + arranged), None, None


def _reference_column(attention: SliceSort, column: Float[Tensor, " n"], i: int) -> Float[Tensor, " n"]:
    values = column.tolist()
    tokens = list(range(len(values)))
    if attention.order == "shuffle":
        mask = torch.ones(1, len(values), dtype=torch.bool, device=column.device)
        return column[shuffle_order(mask, attention.seed * 1024 + attention.spec.layer)[0, 0].long()]
    if attention.order == "max_exchange":
        largest = values.index(max(values))
        tokens[0], tokens[largest] = tokens[largest], tokens[0]
        return column[tokens]
    if attention.order == "multi_permutation":
        by_value = sorted(tokens, key=values.__getitem__)
        total = torch.zeros_like(column)
        for weight in attention.permutation_logits.softmax(-1):
            column = column[by_value]
            total = total + weight * column
        return total
    down = attention.descending_columns()[i]
    return column[sorted(tokens, key=values.__getitem__, reverse=down)]


def _runs(keys: list[float]) -> list[list[int]]:
    """Group the ranks of nearly equal ascending keys."""
    scale = max(abs(key) for key in keys)
    runs = [[0]]
    for rank in range(1, len(keys)):
        if keys[rank] - keys[rank - 1] <= TIE_TOLERANCE * scale:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return runs
