"""Sorts and permutes columns on a GPU by Triton.

As in `numpy_sort.py`, the bits of a value, made monotone, and its token are packed into one integer, 32 bits
for a value of 16 and 64 for one of 32. A network that sorts plain integers is then stable and returns values
and tokens. `tl.sort` is a bitonic network. Padding is the largest key, and the entries up to a power of two
are larger still. A program sorts several neighboring columns, to use whole memory transactions.

Imported only if Triton is installed and the columns are on a GPU. The torch forms in `column_ops.py` are the
reference, and the tests compare with them under TRITON_INTERPRET=1 on the CPU.
"""
# ruff: noqa: ANN001, ANN201, ANN202 (in a kernel an annotation would fix a type)

from typing import no_type_check

# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
# triton is installed only with a GPU; its kernels are launched by subscript
import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 512  # maximum number of tokens; torch sorts and permutes more tokens faster
WARPS = 4  # of a program
_BITS = {2: torch.int16, 4: torch.int32}
LARGEST = {2: 2**15 - 1, 4: 2**31 - 1}  # sorts after infinity, and is the key of no value


def supports(columns: Tensor) -> bool:
    """Return whether the kernels sort and permute columns [B, G, C, N] like these."""
    floats = (torch.float32, torch.bfloat16, torch.float16)
    return columns.dtype in floats and columns.shape[-1] <= LONGEST and columns.numel() > 0


def sort_into(
    values: Tensor,
    token_mask: Tensor,
    descending: Tensor | None,
    to_front: bool,
    ranked: Tensor,
    order: Tensor | None,
) -> None:
    """Write `sort_op` of columns in float32, bfloat16 or float16 to given tensors; no order if it is None."""
    batch, groups, columns, length = values.shape
    width = values.element_size()
    padded, per_program = _tile(length, columns)
    source, out = bits_as_integers(values), bits_as_integers(ranked)
    flags = None if descending is None else descending.expand(batch, groups, columns).view(torch.uint8)
    with torch.cuda.device_of(values):
        _sort_kernel[(batch * groups * triton.cdiv(columns, per_program),)](
            source,
            token_mask.view(torch.uint8),
            flags,
            out,
            order,
            groups,
            columns,
            length,
            *source.stride(),
            *token_mask.stride(),
            *((0, 0, 0) if flags is None else flags.stride()),
            *out.stride(),
            *((0, 0, 0, 0) if order is None else order.stride()),
            TO_FRONT=to_front,
            LARGEST_RANK=LARGEST[width],
            SHIFT=8 * width,
            COLUMNS=per_program,
            LENGTH=padded,
            THREADS=32 * WARPS,
            num_warps=WARPS,
        )


def permute_into(values: Tensor, order: Tensor, inverse: bool, out: Tensor) -> None:
    """Write `permute_op` to a given tensor."""
    batch, groups, columns, length = values.shape
    source, target, index = bits_as_integers(values), bits_as_integers(out), order.expand(values.shape)
    tokens, per_program = min(triton.next_power_of_2(length), 256), 16
    with torch.cuda.device_of(values):
        _permute_kernel[(batch * groups * triton.cdiv(columns, per_program), triton.cdiv(length, tokens))](
            source,
            index,
            target,
            groups,
            columns,
            length,
            *source.stride(),
            *index.stride(),
            *target.stride(),
            INVERSE=inverse,
            COLUMNS=per_program,
            LENGTH=tokens,
        )


def bits_as_integers(columns: Tensor) -> Tensor:
    """Return the memory of columns as integers of the same width."""
    return columns.view(_BITS[columns.element_size()])


def _tile(length: int, columns: int) -> tuple[int, int]:
    """Return padded tokens and columns of a program; few keys per thread were fastest on an H200."""
    padded = triton.next_power_of_2(length)
    wanted = max(4, 32 * WARPS // padded) if padded <= 128 else 2
    return padded, min(triton.next_power_of_2(columns), wanted)


@triton.jit
@no_type_check
def ranks_of(bits, LARGEST_RANK: tl.constexpr):
    """Map bits of floats to integers of the same order: minus the magnitude if the sign bit is set."""
    bits = bits.to(tl.int32)
    sign = bits >> 31
    return ((bits & LARGEST_RANK) ^ sign) - sign


@triton.jit
@no_type_check
def bits_of(ranks, LARGEST_RANK: tl.constexpr):
    """Invert `ranks_of`."""
    return tl.abs(ranks) | (ranks & (-1 - LARGEST_RANK))


@triton.jit
@no_type_check
def sort_ranks(
    ranks, SHIFT: tl.constexpr, COLUMNS: tl.constexpr, LENGTH: tl.constexpr, THREADS: tl.constexpr
):
    """Return ranks [COLUMNS, LENGTH] sorted along the tokens, and the token of each."""
    tokens = tl.arange(0, LENGTH)[None, :]
    if SHIFT == 16:
        keys = (ranks << 16) | tokens
    else:
        keys = (ranks.to(tl.int64) << 32) | tokens.to(tl.int64)
    if LENGTH > THREADS:
        # Neighboring tokens were loaded by neighboring threads. The network compares neighbors most often
        # and may start from any order, so let neighbors be the keys of one thread.
        keys = tl.reshape(keys, (COLUMNS, LENGTH // THREADS, THREADS))
        keys = tl.reshape(tl.trans(keys, 0, 2, 1), (COLUMNS, LENGTH))
    keys = tl.sort(keys, dim=1)
    return (keys >> SHIFT).to(tl.int32), (keys & ((1 << SHIFT) - 1)).to(tl.int32)


@triton.jit
@no_type_check
def positions(is_real, length, TO_FRONT: tl.constexpr, LENGTH: tl.constexpr):
    """Return the position of each rank: the real tokens in their order, then padding in its own."""
    tokens = tl.arange(0, LENGTH)
    if TO_FRONT:
        places = tokens
    else:
        behind = tl.where(tokens < length, LENGTH + tokens, 2 * LENGTH + tokens)
        places = tl.sort(tl.where(is_real, tokens, behind)) & (LENGTH - 1)
    return places


# What depends on the number of tokens is not specialized: a multiple of 16 would be compiled again.
@triton.jit(do_not_specialize=["length", "mask_b", "value_b", "ranked_b", "order_b", "order_g", "order_c"])
@no_type_check
def _sort_kernel(
    values,
    token_mask,
    flags,
    ranked,
    order,
    groups,
    columns,
    length,
    value_b,
    value_g,
    value_c,
    value_n,
    mask_b,
    mask_n,
    flag_b,
    flag_g,
    flag_c,
    ranked_b,
    ranked_g,
    ranked_c,
    ranked_n,
    order_b,
    order_g,
    order_c,
    order_n,
    TO_FRONT: tl.constexpr,
    LARGEST_RANK: tl.constexpr,
    SHIFT: tl.constexpr,
    COLUMNS: tl.constexpr,
    LENGTH: tl.constexpr,
    THREADS: tl.constexpr,
):
    per_group = tl.cdiv(columns, COLUMNS)
    program = tl.program_id(0)
    b = (program // (groups * per_group)).to(tl.int64)
    g = program // per_group % groups
    c = (program % per_group * COLUMNS + tl.arange(0, COLUMNS))[:, None]
    n = tl.arange(0, LENGTH)
    tokens = n[None, :]
    is_inside = (c < columns) & (tokens < length)
    is_real = tl.load(token_mask + b * mask_b + n * mask_n, mask=n < length, other=0) != 0
    count = tl.sum(is_real.to(tl.int32))
    values += b * value_b + g * value_g + c * value_c
    ranks = ranks_of(tl.load(values + tokens * value_n, mask=is_inside, other=0), LARGEST_RANK)
    if flags is not None:
        is_descending = tl.load(flags + b * flag_b + g * flag_g + c * flag_c, mask=c < columns, other=0)
        ranks = tl.where(is_descending != 0, -ranks, ranks)
    ranks, taken = sort_ranks(
        tl.where(is_real[None, :], ranks, LARGEST_RANK), SHIFT, COLUMNS, LENGTH, THREADS
    )
    where = positions(is_real, length, TO_FRONT, LENGTH)[None, :]
    if flags is not None:
        ranks = tl.where(is_descending != 0, -ranks, ranks)
    # Padding was sorted by the largest key, not by its value.
    kept = tl.load(values + taken * value_n, mask=is_inside & (tokens >= count), other=0)
    bits = tl.where(tokens < count, bits_of(ranks, LARGEST_RANK), kept.to(tl.int32))
    ranked += b * ranked_b + g * ranked_g + c * ranked_c
    tl.store(ranked + where * ranked_n, bits.to(ranked.dtype.element_ty), mask=is_inside)
    if order is not None:
        order += b * order_b + g * order_g + c * order_c
        tl.store(order + where * order_n, taken.to(order.dtype.element_ty), mask=is_inside)


@triton.jit(do_not_specialize=["length", "value_b", "order_b", "order_g", "order_c", "out_b"])
@no_type_check
def _permute_kernel(
    values,
    order,
    out,
    groups,
    columns,
    length,
    value_b,
    value_g,
    value_c,
    value_n,
    order_b,
    order_g,
    order_c,
    order_n,
    out_b,
    out_g,
    out_c,
    out_n,
    INVERSE: tl.constexpr,
    COLUMNS: tl.constexpr,
    LENGTH: tl.constexpr,
):
    per_group = tl.cdiv(columns, COLUMNS)
    program = tl.program_id(0)
    b = (program // (groups * per_group)).to(tl.int64)
    g = program // per_group % groups
    c = (program % per_group * COLUMNS + tl.arange(0, COLUMNS))[:, None]
    n = (tl.program_id(1) * LENGTH + tl.arange(0, LENGTH))[None, :]
    is_inside = (c < columns) & (n < length)
    order += b * order_b + g * order_g + c * order_c + n * order_n
    taken = tl.load(order, mask=is_inside, other=0).to(tl.int32)
    values += b * value_b + g * value_g + c * value_c
    out += b * out_b + g * out_g + c * out_c
    if INVERSE:
        tl.store(out + taken * out_n, tl.load(values + n * value_n, mask=is_inside), mask=is_inside)
    else:
        tl.store(out + n * out_n, tl.load(values + taken * value_n, mask=is_inside), mask=is_inside)
