"""The sorts of `molslice.ops.column_ops` in torch's own operators, which ONNX has too.

A file with an operator of molslice could be used only where molslice is installed.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from molslice.ops.column_ops import AXES, BY_COLUMN, BY_TOKEN, order_by_torch, permute_by_torch

__all__ = ["plain_forms"]


def plain_forms() -> dict[Any, Callable]:
    """Return a form of each operator in torch's own operators, for `ExportedProgram.run_decompositions`."""
    operators = torch.ops.molslice
    return {
        operators.sort_columns.default: _sort,
        operators.sorted_columns.default: lambda *given: _sort(*given)[0],
        operators.order_columns.default: lambda values, mask, to_front: _sort(values, mask, None, to_front)[
            1
        ],
        operators.permute_columns.default: lambda values, order, inverse, layout: _arrange(
            permute_by_torch(values, order, inverse), layout
        ),
    }


def _sort(
    values: Tensor, token_mask: Tensor, descending: Tensor | None, to_front: bool
) -> tuple[Tensor, Tensor]:
    # ONNX does not say where NaN is sorted, so padding is infinite here.
    order = order_by_torch(values, token_mask, descending, to_front, torch.inf)
    return _arrange(values.gather(-1, order), BY_TOKEN), _arrange(order.int(), BY_COLUMN)


def _arrange(columns: Tensor, layout: str) -> Tensor:
    """Give columns [B, G, C, N] the memory layout that the operator has."""
    places = [AXES.index(axis) for axis in layout]
    return columns.permute(places).contiguous().permute([layout.index(axis) for axis in AXES])
