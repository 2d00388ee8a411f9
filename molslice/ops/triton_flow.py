"""Flow attention with a bias on its capacities for short sequences, in one Triton kernel for each direction.

A program computes one head of one sequence in registers, in float32: capacities, flows, competition and
allocation, then the product with the values. The backward pass computes the flows again, so that the forward
pass stores only its output.

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

from molslice.ops.triton_attention import head_places, load_head, store_with_sum, supports
from molslice.ops.triton_mix import head_settings, product

__all__ = ["attend_into", "gradients_into", "supports"]  # the sizes are of softmax attention, too

FORWARD_WARPS = {16: 1, 32: 2, 64: 8}  # of a program, by padded length
BACKWARD_WARPS = {16: 1, 32: 2, 64: 8}
EPS: tl.constexpr = tl.constexpr(1e-6)  # as in `attention/flow.py`


def attend_into(
    packed: Tensor, bias: Tensor, token_mask: Tensor, seed: None, dropout: float, out: Tensor
) -> None:
    """Write the map of flow attention times V to a given tensor. All tensors are contiguous.

    The arguments are as in softmax attention, because one operator calls both.

    Args:
        packed: Queries Q, keys K and values V [B, N, 3, H, C], arbitrary at padding.
        bias: What is added to the logarithms of the capacities [B, H, N, N], arbitrary at padding.
        token_mask: True at real tokens [B, N].
        seed: None, because no weights are dropped.
        dropout: 0.
        out: Receives the result [B, N, H, C], zero at padding.
    """
    assert seed is None
    assert not dropout
    grid, settings = _settings(packed, FORWARD_WARPS)
    with torch.cuda.device_of(packed):
        _flow_forward[grid](packed, bias, token_mask.view(torch.uint8), out, packed.shape[1], **settings)


def gradients_into(
    grad: Tensor,
    packed: Tensor,
    bias: Tensor,
    token_mask: Tensor,
    by_next: Tensor | None,
    seed: None,
    dropout: float,
    results: tuple[Tensor, Tensor, Tensor | None],
) -> None:
    """Write the gradients of Q, K, V and the bias to given tensors. All tensors are contiguous.

    Args:
        grad: Gradient of the result [B, N, H, C].
        packed: Queries, keys and values, as in the forward pass.
        bias: The bias.
        token_mask: True at real tokens [B, N].
        by_next: A gradient of the bias to add [B, H, N, N]; None for zero.
        seed: None.
        dropout: 0.
        results: Receive the gradients of `packed` and `bias`, zero at padding, and the sums of the gradients
            of `packed` over each sequence, float32 [B, 3, H, C]; None if unused.
    """
    assert seed is None
    assert not dropout
    inputs = (grad, packed, bias, token_mask.view(torch.uint8), by_next, *results)
    grid, settings = _settings(packed, BACKWARD_WARPS)
    with torch.cuda.device_of(packed):
        _flow_backward[grid](*inputs, packed.shape[1], **settings)


def _settings(packed: Tensor, warps: dict[int, int]) -> tuple[tuple[int], dict[str, object]]:
    batch, length, _, heads, channels = packed.shape
    grid, settings = head_settings((batch, length, heads, channels), warps)
    # phi(Q) and phi(K) are float32; products of TF32 have more digits than the half precision of Q and K
    is_exact = packed.dtype == torch.float32 or torch.version.hip is not None
    return grid, {**settings, "PRECISION": "ieee" if is_exact else "tf32"}


@triton.jit
@no_type_check
def _phi(x, is_entry):
    """Return the sigmoid in float32, zero at padding."""
    return tl.where(is_entry, 1.0 / (1.0 + tl.exp(-x.to(tl.float32))), 0.0)


@triton.jit
@no_type_check
def _factors(bias, is_pair, AXIS: tl.constexpr):
    """Return exp(bias) over its largest value along an axis, zero at padding."""
    largest = tl.max(tl.where(is_pair, bias, -1e30), AXIS)
    largest = tl.expand_dims(tl.where(largest > -1e30, largest, 0.0), AXIS)
    return tl.exp(tl.where(is_pair, bias - largest, float("-inf")))


@triton.jit
@no_type_check
def _flows(queries, keys, bias, is_real, is_pair, PRECISION: tl.constexpr):
    """Return the capacities, what they are multiplied by along rows and columns, and the flows of each token.

    Args:
        queries: phi(Q) [N, C], float32.
        keys: phi(K) [N, C], float32.
        bias: The bias [N, N], float32, arbitrary at padding.
        is_real: True at real tokens [N].
        is_pair: True at pairs of real tokens [N, N].
        PRECISION: Precision of the product.

    Returns:
        phi(Q) phi(K)^T, exp(bias) over the largest of its row, the same of its column, incoming flow of each
        row, outgoing flow of each column, competition and allocation.
    """
    capacity = tl.dot(queries, tl.trans(keys), input_precision=PRECISION)
    by_row, by_column = _factors(bias, is_pair, 1), _factors(bias, is_pair, 0)
    received, sent = capacity * by_row, capacity * by_column
    incoming, outgoing = tl.sum(received, 1) + EPS, tl.sum(sent, 0) + EPS
    sink = tl.sum(sent / outgoing[None, :], 1)
    source = tl.sum(received / incoming[:, None], 0)
    source = tl.where(is_real, source, float("-inf"))
    exponential = tl.exp(source - tl.maximum(tl.max(source, 0), 0.0))
    count = tl.sum(is_real.to(tl.float32), 0)
    competition = exponential * (count / tl.maximum(tl.sum(exponential, 0), 1e-30))
    allocation = 1.0 / (1.0 + tl.exp(-sink))
    return capacity, by_row, by_column, incoming, outgoing, competition, allocation


# A length is not specialized: each would be compiled again. It is a multiple of `MULTIPLE`.
@triton.jit(do_not_specialize=["length"])
@no_type_check
def _flow_forward(
    packed,
    bias,
    token_mask,
    out,
    length,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    MULTIPLE: tl.constexpr,
    LENGTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    length = length // MULTIPLE * MULTIPLE  # the compiler then knows that neighbors can be moved together
    place, in_result, pair, is_real, is_entry, is_pair, exist, pairs_exist = head_places(
        token_mask, length, HEADS, WIDTH, LENGTH, CHANNELS
    )
    q, k, v = load_head(packed + place, is_entry, HEADS, WIDTH)
    queries, keys = _phi(q, is_entry), _phi(k, is_entry)
    logarithms = tl.load(bias + pair, mask=pairs_exist, other=0.0).to(tl.float32)
    capacity, by_row, _, incoming, _, competition, allocation = _flows(
        queries, keys, logarithms, is_real, is_pair, PRECISION
    )
    weights = capacity * by_row * (allocation / incoming)[:, None] * competition[None, :]
    mixed = product(weights.to(v.dtype), v, IN_FLOAT32)
    tl.store(out + in_result, mixed.to(v.dtype), mask=exist)


@triton.jit(do_not_specialize=["length"])
@no_type_check
def _flow_backward(
    grad,
    packed,
    bias,
    token_mask,
    by_next,
    by_packed,
    by_bias,
    sums,
    length,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    MULTIPLE: tl.constexpr,
    LENGTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    length = length // MULTIPLE * MULTIPLE  # the compiler then knows that neighbors can be moved together
    place, in_result, pair, is_real, is_entry, is_pair, exist, pairs_exist = head_places(
        token_mask, length, HEADS, WIDTH, LENGTH, CHANNELS
    )
    q, k, v = load_head(packed + place, is_entry, HEADS, WIDTH)
    queries, keys = _phi(q, is_entry), _phi(k, is_entry)
    upstream = tl.load(grad + in_result, mask=is_entry, other=0.0)
    logarithms = tl.load(bias + pair, mask=pairs_exist, other=0.0).to(tl.float32)
    capacity, by_row, by_column, incoming, outgoing, competition, allocation = _flows(
        queries, keys, logarithms, is_real, is_pair, PRECISION
    )
    shares = capacity * by_row / incoming[:, None]
    outer = allocation[:, None] * competition[None, :]
    by_weights = product(upstream, tl.trans(v), IN_FLOAT32)
    result = product(tl.trans((shares * outer).to(v.dtype)), upstream, IN_FLOAT32)
    store_with_sum(by_packed, sums, result, place, exist, 2, HEADS, WIDTH, CHANNELS)
    # of the capacities by way of the shares of each row: V' and the competition
    by_competition = tl.sum(by_weights * shares * allocation[:, None], 0)
    count = tl.maximum(tl.sum(is_real.to(tl.float32), 0), 1.0)
    by_source = competition * (by_competition - tl.sum(competition * by_competition, 0) / count)
    by_shares = by_weights * outer + by_source[None, :]
    of_row = tl.sum(by_shares * shares, 1)
    by_capacity = by_row * (by_shares - of_row[:, None]) / incoming[:, None]
    # and by way of the shares of each column: the allocation
    by_allocation = tl.sum(by_weights * shares * competition[None, :], 1)
    by_sink = by_allocation * allocation * (1.0 - allocation)
    of_column = tl.sum(by_sink[:, None] * capacity * by_column, 0) / outgoing
    by_capacity += by_column * (by_sink[:, None] - of_column[None, :]) / outgoing[None, :]
    result = tl.dot(by_capacity, keys, input_precision=PRECISION) * queries * (1.0 - queries)
    store_with_sum(by_packed, sums, result, place, exist, 0, HEADS, WIDTH, CHANNELS)
    result = tl.dot(tl.trans(by_capacity), queries, input_precision=PRECISION) * keys * (1.0 - keys)
    store_with_sum(by_packed, sums, result, place, exist, 1, HEADS, WIDTH, CHANNELS)
    by_logarithms = by_capacity * capacity
    if by_next is not None:
        by_logarithms += tl.load(by_next + pair, mask=pairs_exist, other=0.0).to(tl.float32)
    tl.store(by_bias + pair, by_logarithms.to(by_bias.dtype.element_ty), mask=pairs_exist)
