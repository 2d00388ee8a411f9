"""Methods to sort columns on a CPU and to compute the gradient of the sort, for `sort_methods.py`.

A forward method takes tokens [B, N, K] and sorts the K columns of each sequence. It returns the sorted values
in the same layout and the token index of each rank [B, K, N] in the smallest integer type. A backward method
takes a gradient and these indices. All methods except those of torch and molslice support only float32
without padding.
"""

import numpy as np
import torch
from torch import Tensor

from molslice.ops import column_ops

BLOCK = 256  # numpy sorts up to 256 64-bit integers in registers
Result = tuple[Tensor, Tensor]


def columns_of(tokens: Tensor) -> Tensor:
    """Convert [B, N, K] to contiguous [B, K, N]."""
    return tokens.transpose(1, 2).contiguous()


def by_torch(tokens: Tensor) -> Result:
    """Sort (value, index) pairs with torch.sort."""
    values, order = columns_of(tokens).sort(dim=-1, stable=True)
    return values.transpose(1, 2).contiguous(), order.to(column_ops.index_dtype(tokens.shape[1]))


def by_argsort(tokens: Tensor) -> Result:
    """Sort with a stable argsort of numpy, then gather."""
    columns = columns_of(tokens)
    order = torch.from_numpy(columns.numpy().argsort(-1, kind="stable"))
    values = columns.gather(-1, order).transpose(1, 2).contiguous()
    return values, order.to(column_ops.index_dtype(tokens.shape[1]))


def pack(columns: np.ndarray) -> np.ndarray:
    """Pack each value, in an order-preserving form, into the upper 32 bits and its token into the lower."""
    bits = (columns + np.float32(0)).view(np.int32)
    ranks = bits ^ ((bits >> 31) & np.int32(2**31 - 1))
    return (ranks.astype(np.int64) << 32) | np.arange(columns.shape[-1])


def unpack(keys: np.ndarray, axis: int) -> Result:
    """Invert `pack`, with tokens along `axis`: return values [B, N, K] and indices [B, K, N]."""
    ranks = (keys >> 32).astype(np.int32)
    values = torch.from_numpy((ranks ^ ((ranks >> 31) & np.int32(2**31 - 1))).view(np.float32))
    order = torch.from_numpy((keys & 0xFFFFFFFF).astype(np.int32)).to(
        column_ops.index_dtype(keys.shape[axis])
    )
    if axis == 2:
        return values.transpose(1, 2).contiguous(), order
    return values, order.transpose(1, 2).contiguous()


def by_torch_packed(tokens: Tensor) -> Result:
    """Sort packed integers with torch.sort."""
    keys = torch.from_numpy(pack(columns_of(tokens).numpy()))
    return unpack(keys.sort(dim=-1).values.numpy(), 2)


def by_numpy_packed(tokens: Tensor) -> Result:
    """Sort packed integers with numpy, all columns in one call, so every step goes through main memory."""
    keys = pack(columns_of(tokens).numpy())
    keys.sort(axis=-1)
    return unpack(keys, 2)


def by_merged_blocks(tokens: Tensor) -> Result:
    """Sort packed integers in blocks of 256 with numpy, and merge the blocks with a bitonic network."""
    keys = pack(columns_of(tokens).numpy())
    shape, keys = keys.shape, keys.reshape(-1)
    other = np.empty_like(keys)

    def compare(source: np.ndarray, target: np.ndarray, size: int, mirror: bool) -> None:
        source, target = source.reshape(-1, 2, size), target.reshape(-1, 2, size)
        second = source[:, 1, ::-1] if mirror else source[:, 1]
        np.minimum(source[:, 0], second, out=target[:, 0])
        np.maximum(source[:, 0], second, out=target[:, 1])

    keys.reshape(-1, BLOCK).sort(axis=-1)
    size = BLOCK
    while size < shape[-1]:
        step = size
        while step >= BLOCK:
            compare(keys, other, step, mirror=step == size)
            keys, other, step = other, keys, step // 2
        keys.reshape(-1, BLOCK).sort(axis=-1)
        size *= 2
    return unpack(keys.reshape(shape), 2)


def comparators(length: int) -> list[tuple[int, int]]:
    """Return the comparators of Batcher's odd-even merge sort for any length.

    Source: Batcher 1968; Knuth, The Art of Computer Programming, volume 3, section 5.2.2, algorithm M.
    """
    pairs, p = [], 1
    while p < length:
        k = p
        while k >= 1:
            for j in range(k % p, length - k, 2 * k):
                for i in range(j, min(j + k, length - k)):
                    if i // (2 * p) == (i + k) // (2 * p):
                        pairs.append((i, i + k))
            k //= 2
        p *= 2
    return pairs


def run_network(keys: np.ndarray, columns: int = 8192) -> np.ndarray:
    """Sort each column of `keys` [N, columns] with elementwise minima and maxima of whole rows."""
    pairs, result = comparators(len(keys)), np.empty_like(keys)
    for start in range(0, keys.shape[1], columns):
        block = keys[:, start : start + columns].copy()
        rows, spare = list(block), np.empty(block.shape[1], block.dtype)
        for low, high in pairs:
            np.minimum(rows[low], rows[high], out=spare)
            np.maximum(rows[low], rows[high], out=rows[high])
            rows[low], spare = spare, rows[low]
        for row, sorted_row in zip(result, rows, strict=True):
            row[start : start + columns] = sorted_row
    return result


def by_network(tokens: Tensor) -> Result:
    """Sort packed integers with a sorting network over the tokens, without a transpose."""
    batch, length, width = tokens.shape
    rows = np.ascontiguousarray(tokens.numpy().transpose(1, 0, 2)).reshape(length, -1)
    keys = run_network(np.ascontiguousarray(pack(rows.T).T))
    return unpack(np.ascontiguousarray(keys.reshape(length, batch, width).transpose(1, 0, 2)), 1)


def by_molslice(tokens: Tensor) -> Result:
    """Sort like `slice_sort`: numpy's sort of packed integers, block by block."""
    mask = torch.ones(tokens.shape[:2], dtype=torch.bool)
    values, order = column_ops.sort_columns(tokens.transpose(1, 2)[:, None], mask, None, False)
    return values[:, 0].transpose(1, 2), order[:, 0]


def values_by_torch(tokens: Tensor) -> Tensor:
    """Sort with torch.sort and discard the indices."""
    return columns_of(tokens).sort(dim=-1).values.transpose(1, 2).contiguous()


def values_by_molslice(tokens: Tensor) -> Tensor:
    """Sort like `slice_sort` without a gradient: the key has no token index."""
    mask = torch.ones(tokens.shape[:2], dtype=torch.bool)
    values = column_ops.sorted_columns(tokens.transpose(1, 2)[:, None], mask, None, False)
    return values[:, 0].transpose(1, 2)


def back_by_torch(grad: Tensor, order: Tensor) -> Tensor:
    """Scatter with torch and 64-bit indices."""
    columns = columns_of(grad)
    return torch.empty_like(columns).scatter_(-1, order.long(), columns).transpose(1, 2).contiguous()


def back_by_tokens(grad: Tensor, order: Tensor) -> Tensor:
    """Scatter with torch along the tokens, without a transpose of the gradient."""
    return torch.empty_like(grad).scatter_(1, order.transpose(1, 2).long(), grad)


def back_by_numpy(grad: Tensor, order: Tensor) -> Tensor:
    """Scatter with numpy's put_along_axis."""
    columns = columns_of(grad)
    result = np.empty_like(columns.numpy())
    np.put_along_axis(result, order.numpy().astype(np.int64), columns.numpy(), -1)
    return torch.from_numpy(result).transpose(1, 2).contiguous()


def back_by_network(grad: Tensor, order: Tensor) -> Tensor:
    """Sort the gradients by token index with the sorting network."""
    batch, length, width = grad.shape
    keys = order.numpy().transpose(2, 0, 1).reshape(length, -1).astype(np.int64) << 32
    rows = np.ascontiguousarray(grad.numpy().transpose(1, 0, 2)).reshape(length, -1)
    keys = run_network(keys | rows.view(np.uint32))
    values = keys.astype(np.uint32).view(np.float32).reshape(length, batch, width)
    return torch.from_numpy(np.ascontiguousarray(values.transpose(1, 0, 2)))


def back_by_molslice(grad: Tensor, order: Tensor) -> Tensor:
    """Scatter like `slice_sort`: torch's scatter, block by block."""
    columns = grad.transpose(1, 2)[:, None]
    return column_ops.permute_columns(columns, order[:, None], True, "BNGC")[:, 0].transpose(1, 2)
