"""Landmarks: means over contiguous segments of the real tokens."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from molslice.ops.packing import real_positions


def segment_means(
    values: Float[Tensor, "B *heads N C"], token_mask: Bool[Tensor, "B N"], num: int
) -> tuple[Float[Tensor, "B *heads K C"], Bool[Tensor, "B K"]]:
    """Compute means over K contiguous segments of the n real tokens, and which segments have tokens.

    The real token of rank r, counted from 0, belongs to segment floor(r K / n), so padding does not change
    segments. If n >= K, every segment is used. With fewer tokens, each is a segment by itself, and the unused
    segments between them are zero.
    """
    mask = token_mask[:, None]
    count = token_mask.sum(1, keepdim=True).clamp(min=1)
    segment = real_positions(token_mask) * num // count
    positions = torch.arange(num, device=values.device)[:, None]
    member = (segment[:, None] == positions) & mask
    size = member.sum(-1, keepdim=True)
    # A product with a small matrix instead of a scatter, which is deterministic on a GPU too.
    weights = member.to(values.dtype) / size.clamp(min=1).to(values.dtype)
    heads = (1,) * (values.ndim - 3)
    means = weights.reshape(weights.shape[:1] + heads + weights.shape[1:]) @ values
    return means.to(values.dtype), size[..., 0] > 0
