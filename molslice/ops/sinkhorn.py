"""Sinkhorn iterations: alternating normalization of rows and columns of a positive matrix, in log space."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def sinkhorn_log(
    scores: Float[Tensor, "B H N M"],
    row_mask: Bool[Tensor, "B 1 N"],
    col_mask: Bool[Tensor, "B 1 M"],
    iterations: int,
) -> Float[Tensor, "B H N M"]:
    """Normalize rows and columns of exp(scores) in turn and return the logarithm.

    Rows of the result's exponential sum to one over the entries that are real on both sides, and its columns
    approach n / m. All other entries are a finite number whose exponential is zero, in value and gradient,
    for any scores there. The results are in at least float32.

    `iterations` counts normalizations of rows or of columns, rows last: 1 is the softmax over a row, 2 is
    columns, rows, and 3 is rows, columns, rows.

    Source: Sinkhorn 1964; in log space as Mena et al. 2018, arXiv 1802.08665.
    """
    if scores.dtype != torch.float64:
        scores = scores.float()
    outside = ~(row_mask[..., None] & col_mask[..., None, :])
    floor = torch.finfo(scores.dtype).min / 2  # finite, so that a fully masked row does not become NaN
    log = scores.masked_fill(outside, floor)
    for remaining in reversed(range(iterations)):
        log = log.log_softmax(-1 if remaining % 2 == 0 else -2).masked_fill(outside, floor)
    return log


def causal_sinkhorn_log(
    scores: Float[Tensor, "B H N N"], mask: Bool[Tensor, "B 1 N"], iterations: int
) -> Float[Tensor, "B H N N"]:
    """Normalize the entries below the diagonal so that no row depends on a later one.

    A row is normalized over its entries, and an entry of a column by the sum of the column down to itself.
    The first row has no entries.

    Returns:
        Logarithms [B, H, N, N] in at least float32, a finite number with exponential zero from the diagonal
        on.

    Source: Tay et al. 2020 (Sparse Sinkhorn Attention), arXiv 2002.11296, the causal form.
    """
    if scores.dtype != torch.float64:
        scores = scores.float()
    outside = ~(mask[..., None] & mask[..., None, :]).tril(-1)
    floor = torch.finfo(scores.dtype).min / 2
    log = scores.masked_fill(outside, floor)
    for remaining in reversed(range(iterations)):
        log = log.log_softmax(-1) if remaining % 2 == 0 else log - log.logcumsumexp(-2)
        log = log.masked_fill(outside, floor)
    return log
