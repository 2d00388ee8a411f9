"""Positions that do not depend on padding: ranks among the real tokens, and packed sequences.

Padding may be anywhere between the tokens. What depends on positions (windows, blocks, landmarks, buckets)
uses packed sequences, in which the n real tokens are at 0 to n - 1 in their order, followed by padding.
"""

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from molslice.ops.sorting import front_order, inverse_order


def real_positions(token_mask: Bool[Tensor, "B N"]) -> Integer[Tensor, "B N"]:
    """Return the rank of each real token among the real tokens, from 0; zero at padding [B, N]."""
    return (token_mask.cumsum(1) - 1).masked_fill(~token_mask, 0)


def packed_mask(token_mask: Bool[Tensor, "B N"]) -> Bool[Tensor, "B N"]:
    """Return the mask of the packed sequences [B, N]."""
    positions = torch.arange(token_mask.shape[1], device=token_mask.device)
    return positions < token_mask.sum(1, keepdim=True)


def packing_order(token_mask: Bool[Tensor, "B N"]) -> Integer[Tensor, "B N"]:
    """Return the original index of each position of the packed sequence [B, N]."""
    return front_order(token_mask)[:, 0].long()


def pack_tokens(
    values: Float[Tensor, "B N *rest"], order: Integer[Tensor, "B N"]
) -> Float[Tensor, "B N *rest"]:
    """Move real tokens to the front, by the result of `packing_order`."""
    index = order.reshape(order.shape + (1,) * (values.ndim - 2)).expand(values.shape)
    return values.gather(1, index)


def unpack_tokens(
    values: Float[Tensor, "B N *rest"], order: Integer[Tensor, "B N"]
) -> Float[Tensor, "B N *rest"]:
    """Invert `pack_tokens` with the same `order`."""
    return pack_tokens(values, inverse_order(order[:, None])[:, 0])
