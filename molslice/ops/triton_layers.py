"""What is between the matrix products of an encoder layer, in one Triton kernel for each direction.

A program computes rows in float32 and stores them in the type of its tensors. In the backward pass it also
sums its rows for the gradients of weights and biases; the sums of the programs are added afterwards.

Imported only if Triton is installed and the tensors are on a GPU.
"""
# ruff: noqa: ANN001, ANN201, ANN202 (in a kernel an annotation would fix a type)

from typing import no_type_check

# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
# triton is installed only with a GPU; its kernels are launched by subscript
import torch
import triton
import triton.language as tl
from torch import Tensor

from molslice.ops.triton_draws import kept_factor
from molslice.ops.triton_mix import INTERPRETED

WIDEST = 4096  # maximum number of channels
ROWS = 2  # of a program at a time
BLOCK, BLOCK_ROWS = 256, 16  # channels and rows at a time without a sum along a row
# warps of the backward pass of a norm at most: 16 for each processor of an H100
WARPS = 16 * 132
# there; with fewer channels for each warp, warps would share rows, and each sum of rows would need a barrier
CHANNELS_OF_WARP = 256
BLOCK_PROGRAMS = 3 if INTERPRETED else 8 * 132  # the same without a sum along a row

SUMMED_ROWS, SUMMED_CHANNELS = 256, 16  # of a program that sums parts


def supports(tokens: Tensor) -> bool:
    """Return whether the kernels are used for rows [..., D] like these."""
    return 0 < tokens.shape[-1] <= WIDEST and tokens.numel() > 0


def _settings(tokens: Tensor) -> dict[str, int]:
    width = tokens.shape[-1]
    channels = max(16, triton.next_power_of_2(width))
    return {"WIDTH": width, "ROWS": ROWS, "CHANNELS": channels, "num_warps": 4 if channels <= 1024 else 8}


def _blocks(tokens: Tensor) -> tuple[int, dict[str, int]]:
    """Return the number of blocks of channels, and the settings of a kernel that has no sum along a row."""
    width = tokens.shape[-1]
    channels = min(max(16, triton.next_power_of_2(width)), BLOCK)
    settings = {"WIDTH": width, "ROWS": BLOCK_ROWS, "CHANNELS": channels, "num_warps": 4}
    return triton.cdiv(width, channels), settings


def _rows(tokens: Tensor) -> int:
    return tokens.numel() // tokens.shape[-1]


def _partial_sums(tokens: Tensor, kinds: int, rows: int, most: int) -> Tensor:
    programs = min(most, triton.cdiv(_rows(tokens), rows))
    return torch.empty(programs, kinds, tokens.shape[-1], dtype=torch.float32, device=tokens.device)


def add_and_norm_into(
    tokens: Tensor | None,
    change: Tensor,
    bias: Tensor | None,
    norm: tuple[Tensor, Tensor],
    eps: float,
    seed: Tensor | None,
    dropout: float,
    results: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Write tokens + dropout(change + bias), its layer norm, and mean and reciprocal deviation of each row.

    Args:
        tokens: Rows [..., D], contiguous as all other tensors; None for zeros.
        change: What is added to them.
        bias: Bias of the change [D]; None without one.
        norm: Weight and bias of the norm [D].
        eps: Added to the variance.
        seed: Seed of the dropped entries, int64 [1]; None without dropout.
        dropout: Dropout rate.
        results: Receive the sum, its norm, and the statistics [2, rows], float32.
    """
    rows = _rows(change)
    with torch.cuda.device_of(change):
        _norm_forward[(triton.cdiv(rows, ROWS),)](
            tokens, change, bias, *norm, seed, *results, rows, dropout, eps, **_settings(change)
        )


def add_and_norm_gradients_into(
    by_total: Tensor | None,
    by_normed: Tensor,
    total: Tensor,
    statistics: Tensor,
    weight: Tensor,
    seed: Tensor | None,
    dropout: float,
    results: tuple[Tensor | None, Tensor],
) -> Tensor:
    """Write the gradients of tokens and change, and return the other gradients in parts.

    Args:
        by_total: Gradient of the sum; None if it is zero.
        by_normed: Gradient of the norm.
        total: The sum, from the forward pass.
        statistics: The statistics, from the forward pass.
        weight: Weight of the norm [D].
        seed: Seed of the dropped entries.
        dropout: Dropout rate.
        results: Receive the gradients of tokens, None if unused, and change.

    Returns:
        Gradients of the weight and the bias of the norm, and of the bias of the change [P, 3, D], float32,
        to be summed over the P programs.
    """
    settings = _settings(total)
    warps = min(8, max(1, settings["CHANNELS"] // CHANNELS_OF_WARP))
    settings["num_warps"] = warps
    sums = _partial_sums(total, 3, ROWS, 3 if INTERPRETED else WARPS // warps)
    with torch.cuda.device_of(total):
        _norm_backward[(len(sums),)](
            by_total,
            by_normed,
            total,
            statistics,
            weight,
            seed,
            *results,
            sums,
            _rows(total),
            dropout,
            **settings,
        )
    return sums


def gelu_into(hidden: Tensor, bias: Tensor | None, seed: Tensor | None, dropout: float, out: Tensor) -> None:
    """Write dropout(gelu(hidden + bias)).

    Args:
        hidden: Rows [..., D], contiguous as all other tensors.
        bias: Bias [D]; None without one.
        seed: Seed of the dropped entries, int64 [1]; None without dropout.
        dropout: Dropout rate.
        out: Receives the result.
    """
    rows, (blocks, settings) = _rows(hidden), _blocks(hidden)
    grid = (triton.cdiv(rows, settings["ROWS"]), blocks)
    with torch.cuda.device_of(hidden):
        _gelu_forward[grid](hidden, bias, seed, out, rows, dropout, **settings)


def gelu_gradients_into(
    grad: Tensor, hidden: Tensor, bias: Tensor | None, seed: Tensor | None, dropout: float, out: Tensor
) -> Tensor:
    """Write the gradient of `hidden`, and return the gradient of the bias in parts [P, 1, D], float32.

    Args:
        grad: Gradient of the result.
        hidden: Rows, as in the forward pass.
        bias: Bias.
        seed: Seed of the dropped entries.
        dropout: Dropout rate.
        out: Receives the gradient of `hidden`.
    """
    rows, (blocks, settings) = _rows(hidden), _blocks(hidden)
    sums = _partial_sums(hidden, 1, settings["ROWS"], BLOCK_PROGRAMS)
    with torch.cuda.device_of(hidden):
        _gelu_backward[(len(sums), blocks)](grad, hidden, bias, seed, out, sums, rows, dropout, **settings)
    return sums


def sum_rows_into(parts: Tensor, out: Tensor) -> None:
    """Write the sums over the rows of contiguous parts [P, D] to a given tensor [D]."""
    rows, width = parts.shape
    settings = {"ROWS": SUMMED_ROWS, "CHANNELS": SUMMED_CHANNELS, "num_warps": 8}
    with torch.cuda.device_of(parts):
        _sum_rows[(triton.cdiv(width, SUMMED_CHANNELS),)](parts, out, rows, width, **settings)


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def _sum_rows(parts, out, rows, width, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    for first in range(0, rows, ROWS):
        r = first + tl.arange(0, ROWS)
        place = r.to(tl.int64)[:, None] * width + c[None, :]
        total += tl.load(parts + place, mask=(r < rows)[:, None] & (c < width)[None, :], other=0.0)
    tl.store(out + c, tl.sum(total, 0).to(out.dtype.element_ty), mask=c < width)


@triton.jit
@no_type_check
def _place(first, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Return the row numbers, the places of their entries and which of them exist."""
    r = first + tl.arange(0, ROWS)
    c = tl.arange(0, CHANNELS)
    place = r.to(tl.int64)[:, None] * WIDTH + c[None, :]
    return r, place, (r < rows)[:, None] & (c < WIDTH)[None, :]


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def _norm_forward(
    tokens,
    change,
    bias,
    weight,
    norm_bias,
    seed,
    total,
    normed,
    statistics,
    rows,
    dropout,
    eps,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    r, place, is_inside = _place(tl.program_id(0) * ROWS, rows, WIDTH, ROWS, CHANNELS)
    c = tl.arange(0, CHANNELS)
    is_channel = c < WIDTH
    added = tl.load(change + place, mask=is_inside, other=0.0).to(tl.float32)
    if bias is not None:
        added += tl.load(bias + c, mask=is_channel, other=0.0).to(tl.float32)[None, :]
    if seed is not None:
        added *= kept_factor(tl.load(seed), place, dropout)
    if tokens is not None:
        added += tl.load(tokens + place, mask=is_inside, other=0.0).to(tl.float32)
    stored = added.to(total.dtype.element_ty)
    tl.store(total + place, stored, mask=is_inside)
    x = tl.where(is_inside, stored.to(tl.float32), 0.0)
    mean = tl.sum(x, 1) / WIDTH
    centered = tl.where(is_inside, x - mean[:, None], 0.0)
    deviation = 1.0 / tl.sqrt(tl.sum(centered * centered, 1) / WIDTH + eps)
    tl.store(statistics + r, mean, mask=r < rows)
    tl.store(statistics + rows + r, deviation, mask=r < rows)
    scale = tl.load(weight + c, mask=is_channel, other=0.0).to(tl.float32)[None, :]
    shift = tl.load(norm_bias + c, mask=is_channel, other=0.0).to(tl.float32)[None, :]
    result = centered * deviation[:, None] * scale + shift
    tl.store(normed + place, result.to(normed.dtype.element_ty), mask=is_inside)


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def _norm_backward(
    by_total,
    by_normed,
    total,
    statistics,
    weight,
    seed,
    by_tokens,
    by_change,
    sums,
    rows,
    dropout,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    c = tl.arange(0, CHANNELS)
    is_channel = c < WIDTH
    scale = tl.load(weight + c, mask=is_channel, other=0.0).to(tl.float32)[None, :]
    weight_sum = tl.zeros([CHANNELS], tl.float32)
    norm_sum = tl.zeros([CHANNELS], tl.float32)
    bias_sum = tl.zeros([CHANNELS], tl.float32)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        r, place, is_inside = _place(first, rows, WIDTH, ROWS, CHANNELS)
        mean = tl.load(statistics + r, mask=r < rows, other=0.0)[:, None]
        deviation = tl.load(statistics + rows + r, mask=r < rows, other=0.0)[:, None]
        x = tl.load(total + place, mask=is_inside, other=0.0).to(tl.float32)
        grad = tl.load(by_normed + place, mask=is_inside, other=0.0).to(tl.float32)
        unit = tl.where(is_inside, (x - mean) * deviation, 0.0)
        weight_sum += tl.sum(grad * unit, 0)
        norm_sum += tl.sum(grad, 0)
        scaled = grad * scale
        along = tl.sum(scaled * unit, 1)[:, None] / WIDTH
        result = (scaled - tl.sum(scaled, 1)[:, None] / WIDTH - unit * along) * deviation
        if by_total is not None:
            result += tl.load(by_total + place, mask=is_inside, other=0.0).to(tl.float32)
        result = tl.where(is_inside, result, 0.0)
        if by_tokens is not None:
            tl.store(by_tokens + place, result.to(by_tokens.dtype.element_ty), mask=is_inside)
        if seed is not None:
            result *= kept_factor(tl.load(seed), place, dropout)
        bias_sum += tl.sum(result, 0)
        tl.store(by_change + place, result.to(by_change.dtype.element_ty), mask=is_inside)
    sums += tl.program_id(0) * 3 * WIDTH + c
    tl.store(sums, weight_sum, mask=is_channel)
    tl.store(sums + WIDTH, norm_sum, mask=is_channel)
    tl.store(sums + 2 * WIDTH, bias_sum, mask=is_channel)


@triton.jit
@no_type_check
def _block(first, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Return the channels of this program, which of them exist, and the same for entries of some rows."""
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    r = first + tl.arange(0, ROWS)
    place = r.to(tl.int64)[:, None] * WIDTH + c[None, :]
    return c, c < WIDTH, place, (r < rows)[:, None] & (c < WIDTH)[None, :]


@triton.jit
@no_type_check
def _normal(x):
    """Return the probability that a standard normal number is below x, and exp(-x^2 / 2).

    The error of the probability is below 1e-7: Abramowitz and Stegun, formula 7.1.26, which takes a third of
    the operations of the error function in CUDA's library.
    """
    t = 1.0 / (1.0 + 0.2316418882663604 * tl.abs(x))
    bell = tl.exp(-0.5 * x * x)
    tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    beyond = 0.5 * tail * bell
    return tl.where(x < 0.0, beyond, 1.0 - beyond), bell


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def _gelu_forward(
    hidden,
    bias,
    seed,
    out,
    rows,
    dropout,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    c, is_channel, place, is_inside = _block(tl.program_id(0) * ROWS, rows, WIDTH, ROWS, CHANNELS)
    x = tl.load(hidden + place, mask=is_inside, other=0.0).to(tl.float32)
    if bias is not None:
        x += tl.load(bias + c, mask=is_channel, other=0.0).to(tl.float32)[None, :]
    below, _ = _normal(x)
    result = x * below
    if seed is not None:
        result *= kept_factor(tl.load(seed), place, dropout)
    tl.store(out + place, result.to(out.dtype.element_ty), mask=is_inside)


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def _gelu_backward(
    grad,
    hidden,
    bias,
    seed,
    out,
    sums,
    rows,
    dropout,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    bias_sum = tl.zeros([CHANNELS], tl.float32)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        c, is_channel, place, is_inside = _block(first, rows, WIDTH, ROWS, CHANNELS)
        x = tl.load(hidden + place, mask=is_inside, other=0.0).to(tl.float32)
        if bias is not None:
            x += tl.load(bias + c, mask=is_channel, other=0.0).to(tl.float32)[None, :]
        below, bell = _normal(x)
        slope = below + x * bell * 0.3989422804014327
        result = tl.load(grad + place, mask=is_inside, other=0.0).to(tl.float32) * slope
        if seed is not None:
            result *= kept_factor(tl.load(seed), place, dropout)
        bias_sum += tl.sum(result, 0)
        tl.store(out + place, result.to(out.dtype.element_ty), mask=is_inside)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    tl.store(sums + tl.program_id(0) * WIDTH + c, bias_sum, mask=c < WIDTH)
