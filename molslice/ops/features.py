"""Feature maps whose products approximate a kernel, and weighted averages by them, in linear time.

Projections are drawn once, from their own generator, never from the global one. Exponentials and sums over
many tokens are computed in at least float32, also under autocast.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from molslice.ops.causal import causal_product

SHORTEST = 1e-6  # length below which a vector has no direction
_TINY = 1e-30  # replaces a divisor of zero; its inverse is finite in float32


def precise(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the tensor in at least float32."""
    return x if x.dtype == torch.float64 else x.float()


def unit_vectors(x: Float[Tensor, "*shape C"]) -> Float[Tensor, "*shape C"]:
    """Divide vectors by their length; one shorter than 1e-6 becomes zero, and so does its gradient.

    `torch.nn.functional.normalize` multiplies the gradient of a zero vector by 1 over its epsilon. A token of
    zeros, such as a missing step of a series, has such a query until a bias is learned.
    """
    wide = precise(x)  # squares overflow in float16
    square = wide.square().sum(-1, keepdim=True)
    is_short = square < SHORTEST**2
    return torch.where(is_short, 0.0, wide * torch.where(is_short, 1.0, square).rsqrt()).to(x.dtype)


def full_precision(x: Tensor) -> torch.autocast:
    """Return a context that disables autocast on the device of `x`."""
    return torch.autocast(x.device.type, enabled=False)


def layer_generator(seed: int, layer: int) -> torch.Generator:
    """Return the CPU generator for the fixed random numbers of a layer, counted from 0."""
    return torch.Generator().manual_seed((seed << 20) + layer)


def gaussian_projection(shape: tuple[int, ...], generator: torch.Generator) -> Float[Tensor, "*shape"]:
    """Draw independent standard normal entries in a tensor of this shape, float32."""
    return torch.randn(shape, generator=generator)


def orthogonal_projection(features: int, dim: int, generator: torch.Generator) -> Float[Tensor, "F C"]:
    """Draw random vectors that are standard normal each and orthogonal in blocks of C, float32.

    Source: Choromanski et al. 2021 (Performer), section 2.4; lengths as in its code with `scaling=0`.
    """
    blocks = []
    for _ in range(math.ceil(features / dim)):
        block = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
        directions, triangle = torch.linalg.qr(block)
        # The signs make the directions uniform over the orthogonal group (Mezzadri 2007).
        blocks.append((directions * triangle.diagonal().sign()).T)
    lengths = torch.randn(features, dim, generator=generator, dtype=torch.float64).norm(dim=1, keepdim=True)
    return (torch.cat(blocks)[:features] * lengths).float()


def positive_elu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return elu(x) + 1: x + 1 for positive x, exp(x) otherwise. It does not round to zero.

    Source: Katharopoulos et al. 2020, arXiv 2006.16236, section 3.2.1.
    """
    return torch.where(x > 0, x + 1, x.clamp(max=0.0).exp())


def log_exponential_features(
    x: Float[Tensor, "*tokens C"], projection: Float[Tensor, "F C"]
) -> Float[Tensor, "*tokens F"]:
    """Return the logarithms w_f x - |x|^2 / 2 of F positive features phi_f(x), in at least float32.

    The mean over f of phi_f(x) phi_f(y) is an unbiased estimate of exp(x y) if each w_f is standard normal.

    Source: Choromanski et al. 2021, lemma 1.
    """
    with full_precision(x):
        x = precise(x)
        return x @ projection.to(x.dtype).T - x.square().sum(-1, keepdim=True) / 2


def fourier_features(
    x: Float[Tensor, "B H N C"], projection: Float[Tensor, "H F C"]
) -> Float[Tensor, "B H N G"]:
    """Return G = 2 F features [sin(w x), cos(w x)] / sqrt(F), in at least float32.

    Their product is an unbiased estimate of exp(-|x - y|^2 / 2) if each w is standard normal.

    Source: Rahimi and Recht 2007.
    """
    with full_precision(x):
        x = precise(x)
        angles = x @ projection.to(x.dtype).transpose(1, 2)
        return torch.cat([angles.sin(), angles.cos()], -1) / projection.shape[1] ** 0.5


def positive_average(
    query: Float[Tensor, "B H N F"],
    key: Float[Tensor, "B H M F"],
    value: Float[Tensor, "B H M C"],
    floor: float = _TINY,
) -> Float[Tensor, "B H N C"]:
    """Return sum_j w_ij value_j / max(sum_j w_ij, floor), w_ij = query_i key_j, for non-negative features.

    It is computed as two averages, over the tokens for each feature and over the features for each query. All
    their weights are at most 1, so neither product overflows in half precision. Keys are
    zero at padding.
    """
    total = key.sum(2, keepdim=True)
    by_token = key / total.clamp(min=_TINY)
    weight = query * total
    by_feature = weight / weight.sum(-1, keepdim=True).clamp(min=floor)
    return two_averages(by_feature, by_token, value)


def two_averages(
    by_feature: Float[Tensor, "B H N F"], by_token: Float[Tensor, "B H M F"], value: Float[Tensor, "B H M C"]
) -> Float[Tensor, "B H N C"]:
    """Average the values over the tokens for each feature, then over the features for each query."""
    return by_feature.to(value.dtype) @ (by_token.transpose(2, 3).to(value.dtype) @ value)


def kernel_average(
    query: Float[Tensor, "B H N F"],
    key: Float[Tensor, "B H M F"],
    value: Float[Tensor, "B H M C"],
    floor: float | Tensor = _TINY,
    causal: bool = False,
    log_decay: Float[Tensor, "B H N 1"] | None = None,
) -> Float[Tensor, "B H N C"]:
    """Return sum_j w_ij value_j / max(sum_j w_ij, floor), w_ij = query_i key_j, for features of any sign.

    Queries are in at least float32, as is the result, and keys are zero at padding. `floor` is a number or
    [B, 1 or H, N or 1, 1]. The causal sums run over j <= i, with the decay of `causal_product`.
    """
    with full_precision(query):
        # A column of ones next to the values, so that divisor and dividend are rounded alike.
        value = functional.pad(value.to(query.dtype), (0, 1), value=1.0)
        if causal:
            sums = causal_product(query, key, value, log_decay)
        else:
            sums = query @ (key.transpose(2, 3) @ value)
        return sums[..., :-1] / torch.clamp(sums[..., -1:], min=floor)


def kernel_step(
    query: Float[Tensor, "B H F"],
    key: Float[Tensor, "B H F"],
    value: Float[Tensor, "B H C"],
    past: Float[Tensor, "B H F G"],
    floor: float | Tensor = _TINY,
) -> tuple[Float[Tensor, "B H C"], Float[Tensor, "B H F G"]]:
    """Compute the causal `kernel_average` for the next token.

    `past` is the sum of key_j [value_j, 1] over the tokens before, zeros at the first token. It is returned
    with the next term.
    """
    with full_precision(query):
        value = functional.pad(value.to(query.dtype), (0, 1), value=1.0)
        past = past + key[..., None] * value[..., None, :]
        sums = (query[..., None, :] @ past)[..., 0, :]
        return sums[..., :-1] / torch.clamp(sums[..., -1:], min=floor), past
