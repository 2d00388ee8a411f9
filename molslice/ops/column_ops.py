"""Sorts and permutations of columns as torch operators, for `torch.compile`, vmap and all devices.

Columns are [B, G, C, N], G groups of C, in any memory layout. Each operator has a torch form, which is the
reference, and kernels with equal results: numpy's on the CPU (`numpy_sort.py`), Triton's on CUDA
(`triton_sort.py`); see `kernel_choice.py`.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from molslice.ops import kernel_choice, numpy_sort

_TRITON = kernel_choice.load_kernels("triton_sort")
_NUMPY_SORTS = (torch.float32, torch.bfloat16, torch.float16)
AXES = "BGCN"
_is_exporting = getattr(torch.compiler, "is_exporting", bool)  # torch before 2.7 lacks it
BY_TOKEN, BY_COLUMN = "BNGC", "BGCN"  # memory layouts of columns, with the last axis contiguous


def index_dtype(length: int) -> torch.dtype:
    """Return the smallest integer type for indices of `length` tokens: one byte to 256, two to 32,768.

    In an exported program the length varies, and the type has four bytes.
    """
    if _is_exporting():
        return torch.int32
    if length <= 2**8:
        return torch.uint8
    return torch.int16 if length <= 2**15 else torch.int32


def layout_of(columns: Tensor) -> str:
    """Return the memory layout of columns [B, G, C, N]: its axis letters from the slowest to the fastest."""
    _, group, column, token = columns.stride()
    if token <= column:
        return BY_COLUMN
    return BY_TOKEN if group <= token else "BGNC"


def empty_columns(like: Tensor, layout: str, dtype: torch.dtype) -> Tensor:
    """Return uninitialized columns of the shape [B, G, C, N] of `like`, in a layout such as `BY_TOKEN`."""
    shape = [like.shape[AXES.index(axis)] for axis in layout]
    empty = torch.empty(shape, dtype=dtype, device=like.device)
    return empty.permute([layout.index(axis) for axis in AXES])


def _triton_for(columns: Tensor) -> ModuleType | None:
    """Return Triton's kernels if they sort and permute such columns, else None."""
    if _TRITON is None or not kernel_choice.ENABLED or not columns.is_cuda:
        return None
    return _TRITON if _TRITON.supports(columns) else None


@torch.library.custom_op("molslice::sort_columns", mutates_args=())
def sort_op(
    values: Tensor, token_mask: Tensor, descending: Tensor | None, to_front: bool, order_dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Sort columns [B, G, C, N] as `molslice.ops.sorting.sort_columns`, with flags [B or 1, G, C].

    Args:
        values: The columns.
        token_mask: True at real tokens [B, N].
        descending: The flags of the columns in descending order; None for none.
        to_front: See `molslice.ops.sorting.sort_columns`.
        order_dtype: `index_dtype` of N. An exported program runs with the type that it was traced with.

    Returns:
        The sorted values, in layout by token, and the token of each rank, in layout by column.
    """
    ranked, order = _empty_sorted(values, order_dtype)
    _sort_into(values, token_mask, descending, to_front, ranked, order)
    return ranked, order


@torch.library.custom_op("molslice::sorted_columns", mutates_args=())
def sorted_op(values: Tensor, token_mask: Tensor, descending: Tensor | None, to_front: bool) -> Tensor:
    """Return only the sorted values of `sort_op` [B, G, C, N]."""
    ranked = empty_columns(values, BY_TOKEN, values.dtype)
    _sort_into(values, token_mask, descending, to_front, ranked, None)
    return ranked


def _sort_into(
    values: Tensor,
    token_mask: Tensor,
    descending: Tensor | None,
    to_front: bool,
    ranked: Tensor,
    order: Tensor | None,
) -> None:
    if kernel_choice.ENABLED and values.device.type == "cpu" and values.dtype in _NUMPY_SORTS:
        numpy_sort.sort_blocks(values, token_mask, descending, to_front, ranked, order)
        return
    if triton := _triton_for(values):
        triton.sort_into(values, token_mask, descending, to_front, ranked, order)
        return
    results = sort_by_torch(values, token_mask, descending, to_front)
    ranked.copy_(results[0])
    if order is not None:
        order.copy_(results[1])


def sort_by_torch(
    values: Tensor,
    token_mask: Tensor,
    descending: Tensor | None = None,
    to_front: bool = False,
    padding: float = torch.nan,
) -> tuple[Tensor, Tensor]:
    """Compute `sort_op` by torch's own sort, the reference of the kernels.

    The order is int64. The key of padding must sort after all numbers; NaN sorts after infinity.
    """
    keys = values if descending is None else torch.where(descending[..., None], -values, values)
    order = keys.masked_fill(~token_mask[:, None, None], padding).sort(dim=-1, stable=True).indices
    if not to_front:
        padding_before = (~token_mask).cumsum(-1) - 1 + token_mask.sum(-1, keepdim=True)
        rank = torch.where(token_mask, token_mask.cumsum(-1) - 1, padding_before)
        order = order.gather(-1, rank[:, None, None].expand_as(order))
    return values.gather(-1, order), order


@torch.library.custom_op("molslice::permute_columns", mutates_args=())
def permute_op(values: Tensor, order: Tensor, inverse: bool, layout: str) -> Tensor:
    """Return `values[order]` along the tokens in a memory layout; with `inverse`, undo that permutation.

    The order of columns [B, G, C, N] is [B, G or 1, C or 1, N].
    """
    out = empty_columns(values, layout, values.dtype)
    if triton := _triton_for(values):
        triton.permute_into(values, order, inverse, out)
    else:
        out.copy_(permute_by_torch(values, order, inverse))
    return out


def permute_by_torch(values: Tensor, order: Tensor, inverse: bool) -> Tensor:
    """Compute `permute_op` by torch's gather and scatter: on the CPU, and as the reference of the kernel."""
    index = order.long().expand(values.shape)
    return torch.zeros_like(values).scatter(-1, index, values) if inverse else values.gather(-1, index)


def _empty_sorted(values: Tensor, order_dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    order = empty_columns(values, BY_COLUMN, order_dtype)
    return empty_columns(values, BY_TOKEN, values.dtype), order


sort_op.register_fake(lambda values, *others: _empty_sorted(values, others[-1]))
sorted_op.register_fake(lambda values, *_: empty_columns(values, BY_TOKEN, values.dtype))
permute_op.register_fake(lambda values, *others: empty_columns(values, others[-1], values.dtype))


def vmap_rule(operator: Callable) -> Callable:
    """Return the vmap rule of an operator on tensors with a leading batch axis: it merges the two axes."""

    def rule(info: Any, in_dims: tuple, *args: Any) -> tuple:  # noqa: ANN401
        size = info.batch_size
        lifted = [
            x if not isinstance(x, Tensor) else x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(args, in_dims, strict=True)
        ]
        batch = max(x.shape[1] for x in lifted if isinstance(x, Tensor))
        folded = [
            x.expand(size, batch, *x.shape[2:]).flatten(0, 1) if isinstance(x, Tensor) else x for x in lifted
        ]
        result = operator(*folded)
        if isinstance(result, Tensor):
            return result.unflatten(0, (size, batch)), 0
        return tuple(x.unflatten(0, (size, batch)) for x in result), (0,) * len(result)

    return rule


for _operator in (sort_op, sorted_op, permute_op):
    _operator.register_vmap(vmap_rule(_operator))
