"""Hashing by random hyperplanes, and sums over the vectors of the same bucket, in linear time."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Channels per pass of the tables, which limits the memory of the products in the backward pass.
_WIDTH = 256


def sign_codes(vectors: Float[Tensor, "B H N C"], planes: Float[Tensor, "H R C T"]) -> Int[Tensor, "B H R N"]:
    """Hash vectors by their signs on random planes, the normals of T for each head and each of R rounds.

    Two vectors at an angle a have equal codes, below 2^T, in a round with probability (1 - a / pi)^T.

    Source: Charikar 2002.
    """
    powers = 2 ** torch.arange(planes.shape[-1], device=planes.device)
    is_above = vectors.detach()[:, :, None] @ planes.to(vectors.dtype) > 0
    return (is_above * powers).sum(-1)


def sum_collisions(
    query_codes: Int[Tensor, "B H R N"],
    key_codes: Int[Tensor, "B H R M"],
    values: Float[Tensor, "B H M C"],
    num_codes: int,
) -> Float[Tensor, "B H N C"]:
    """Sum the values of colliding tokens, weighted by the share of rounds in which they collide.

    Row i of the result is the sum over j of values_j times the share of rounds in which i and j have equal
    codes. Each round adds the values to a table of `num_codes` rows and reads it, without an N x M tensor.
    """
    rounds = query_codes.shape[2]
    batch, heads, _, channels = values.shape
    empty = values.new_zeros(batch, heads, num_codes, channels)
    total = values.new_zeros(batch, heads, query_codes.shape[3], channels)
    for r in range(rounds):
        table = empty.scatter_add(2, key_codes[:, :, r, :, None].expand(values.shape), values)
        total = total + table.gather(2, query_codes[:, :, r, :, None].expand(total.shape))
    return total / rounds


class _SampledKernel(torch.autograd.Function):
    """The sampled form of E V with the gradients described in `sampled_kernel`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        query_codes: Tensor,
        key_codes: Tensor,
        num_codes: int,
        slope: float,
    ) -> Tensor:
        return sum_collisions(query_codes, key_codes, value, num_codes)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:  # noqa: ANN401
        *tensors, ctx.num_codes, ctx.slope = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        query, key, value, query_codes, key_codes = ctx.saved_tensors
        num_codes = ctx.num_codes
        by_query = ctx.slope * _weighted(query_codes, grad, key_codes, value, key, num_codes)
        by_key = ctx.slope * _weighted(key_codes, value, query_codes, grad, query, num_codes)
        by_value = sum_collisions(key_codes, query_codes, grad, num_codes)
        return by_query, by_key, by_value, None, None, None, None


def _weighted(
    row_codes: Tensor, rows: Tensor, column_codes: Tensor, columns: Tensor, vectors: Tensor, num_codes: int
) -> Tensor:
    """Return for each i the sum over j of (rows_i columns_j) vectors_j times the share of equal codes."""
    width = max(1, _WIDTH // vectors.shape[-1])
    total = torch.zeros_like(rows)
    for row, column in zip(rows.split(width, -1), columns.split(width, -1), strict=True):
        products = (column[..., None] * vectors[..., None, :]).flatten(-2)
        sums = sum_collisions(row_codes, column_codes, products, num_codes)
        total = total + (row[..., None] * sums.unflatten(-1, (-1, vectors.shape[-1]))).sum(-2)
    return total


def sampled_kernel(
    query: Float[Tensor, "B H N C"],
    key: Float[Tensor, "B H M C"],
    value: Float[Tensor, "B H M C"],
    planes: Float[Tensor, "H R C T"],
) -> Float[Tensor, "B H N C"]:
    """Return E V, with E_ij the share of the R rounds in which query_i and key_j have the same code.

    Queries and keys have length one.

    E is constant almost everywhere. Its gradient by the product s = query_i key_j is taken as T / 2 E_ij, a
    lower bound of the gradient of its expectation (1 - arccos(s) / pi)^T. Unlike that gradient, it is finite
    at s = 1.

    Source: Zeng et al. 2021, arXiv 2111.09714.
    """
    query_codes, key_codes = sign_codes(query, planes), sign_codes(key, planes)
    bits = planes.shape[-1]
    return _SampledKernel.apply(query, key, value, query_codes, key_codes, 2**bits, bits / 2)


class _ExpectedKernel(torch.autograd.Function):
    """The expected form of E with the gradient described in `sampled_kernel`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(products: Tensor, bits: int) -> Tensor:
        # By rounding, the product of two unit vectors may exceed 1.
        return (1 - products.clamp(-1, 1).acos() / torch.pi) ** bits

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:  # noqa: ANN401
        ctx.bits = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (kernel,) = ctx.saved_tensors
        return ctx.bits / 2 * kernel * grad, None


def expected_kernel(products: Float[Tensor, "*shape"], bits: int) -> Float[Tensor, "*shape"]:
    """Return (1 - arccos(s) / pi)^bits, the expectation of E in `sampled_kernel`, for products s.

    Its gradient is taken as bits / 2 E, the same lower bound as there.

    Source: Zeng et al. 2021, arXiv 2111.09714.
    """
    return _ExpectedKernel.apply(products, bits)
