"""The sorts of `molslice.ops.column_ops` in torch's own operators, which ONNX has too.

A file with an operator of molslice could be used only where molslice is installed.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from molslice.ops.column_ops import BY_COLUMN, BY_TOKEN

__all__ = ["plain_forms"]

AXES = "BGCN"


def plain_forms() -> dict[Any, Callable]:
    """Return a form of each operator in torch's own operators, for `ExportedProgram.run_decompositions`."""
    operators = torch.ops.molslice
    return {
        operators.sort_columns.default: _sort_columns,
        operators.sorted_columns.default: lambda *given: _sort_columns(*given)[0],
        operators.order_columns.default: _order_columns,
        operators.permute_columns.default: _permute_columns,
    }


def _sort_columns(
    values: Tensor, token_mask: Tensor, descending: Tensor | None, to_front: bool
) -> tuple[Tensor, Tensor]:
    keys = values if descending is None else torch.where(descending[..., None], -values, values)
    # ONNX does not say where NaN is sorted, so padding is infinite here.
    order = keys.masked_fill(~token_mask[:, None, None], torch.inf).sort(dim=-1, stable=True).indices
    if not to_front:
        padding_before = (~token_mask).cumsum(-1) - 1 + token_mask.sum(-1, keepdim=True)
        rank = torch.where(token_mask, token_mask.cumsum(-1) - 1, padding_before)
        order = order.gather(-1, rank[:, None, None].expand_as(order))
    return _arranged(values.gather(-1, order), BY_TOKEN), _arranged(order.int(), BY_COLUMN)


def _order_columns(values: Tensor, token_mask: Tensor, to_front: bool) -> Tensor:
    return _sort_columns(values, token_mask, None, to_front)[1]


def _permute_columns(values: Tensor, order: Tensor, inverse: bool, layout: str) -> Tensor:
    index = order.long().expand(values.shape)
    moved = torch.zeros_like(values).scatter(-1, index, values) if inverse else values.gather(-1, index)
    return _arranged(moved, layout)


def _arranged(columns: Tensor, layout: str) -> Tensor:
    """Give columns [B, G, C, N] the memory layout that the operator has."""
    places = [AXES.index(axis) for axis in layout]
    return columns.permute(places).contiguous().permute([layout.index(axis) for axis in AXES])
