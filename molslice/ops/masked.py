"""Reductions over tokens in which padding affects neither values nor gradients.

All functions replace values at padding before they compute, because multiplying NaN by a mask gives NaN. They
return zero, not NaN, where no token is real. Masks are True at entries that count and are broadcast to the
values.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from molslice.ops.features import precise


def zero_padding(
    tokens: Float[Tensor, "B N *rest"], token_mask: Bool[Tensor, "B N"]
) -> Float[Tensor, "B N *rest"]:
    """Return tokens [B, N, ...] with zeros at padding."""
    mask = token_mask.reshape(token_mask.shape + (1,) * (tokens.ndim - 2))
    return tokens.masked_fill(~mask, 0.0)


def masked_sum(
    values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*mask"], dim: int
) -> Float[Tensor, "*sum"]:
    """Sum values along `dim` where `mask` is true, without that axis."""
    return values.masked_fill(~mask, 0.0).sum(dim)


def masked_mean(
    values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*mask"], dim: int
) -> Float[Tensor, "*mean"]:
    """Average values along `dim` where `mask` is true, without that axis; zero without entries."""
    count = mask.expand(values.shape).sum(dim).clamp(min=1)
    total = masked_sum(precise(values), mask, dim)  # a sum of many values overflows in float16
    return (total / count).to(values.dtype)


def masked_max(
    values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*mask"], dim: int
) -> Float[Tensor, "*max"]:
    """Return the maximum along `dim` where `mask` is true, without that axis; zero without entries."""
    mask = mask.expand(values.shape)
    highest = values.masked_fill(~mask, torch.finfo(values.dtype).min).amax(dim)
    return highest.masked_fill(~mask.any(dim), 0.0)


def masked_softmax(
    scores: Float[Tensor, "*shape"], mask: Bool[Tensor, "*mask"], dim: int = -1
) -> Float[Tensor, "*shape"]:
    """Compute softmax of scores along `dim` where `mask` is true, and return zero elsewhere."""
    # A finite lower bound: with -inf, a fully masked row would give NaN in value and gradient.
    filled = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return filled.softmax(dim).masked_fill(~mask, 0.0)


def pair_mask(
    token_mask: Bool[Tensor, "B N"], causal: bool = False, memory_mask: Bool[Tensor, "B M"] | None = None
) -> Bool[Tensor, "B 1 N M"]:
    """Return the mask of an attention: True where query (row) and key (column) are both real.

    It excludes keys after the query if `causal`. Without `memory_mask` the keys come from the tokens.
    """
    mask = token_mask[:, :, None] & (token_mask if memory_mask is None else memory_mask)[:, None, :]
    return (mask.tril() if causal else mask)[:, None]


def masked_pair_bias(
    pair_bias: Float[Tensor, "B H N N"], token_mask: Bool[Tensor, "B N"], causal: bool = False
) -> Float[Tensor, "B H N N"]:
    """Return S + E with a large negative number where a token is padding, as one finite mask of the scores.

    The bias may be arbitrary at padding. With `causal`, keys after the query are excluded too.
    """
    # Half of the lowest finite value: kernels multiply scores by log2(e), which must not overflow.
    floor = torch.finfo(pair_bias.dtype).min / 2
    copied = pair_bias.clone(memory_format=torch.contiguous_format)
    return copied.masked_fill_(~pair_mask(token_mask, causal), floor)


def pair_softmax(
    pair_bias: Float[Tensor, "B H N N"], token_mask: Bool[Tensor, "B N"], causal: bool = False
) -> Float[Tensor, "B H N N"]:
    """Return softmax(S + E) over the real tokens, and up to the query if `causal`.

    The bias may be arbitrary at padding, whose rows and columns are zero; other rows sum to one.
    """
    return masked_softmax(pair_bias, pair_mask(token_mask, causal))


def working_dtype(tokens: Float[Tensor, "*shape"], otherwise: torch.dtype | None = None) -> torch.dtype:
    """Return the type of products of tokens: the type of autocast if it is enabled.

    Without autocast it is `otherwise`, or the type of the tokens if that is None.
    """
    device = tokens.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return tokens.dtype if otherwise is None else otherwise
