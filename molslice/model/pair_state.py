"""The pair state: a pair bias that each layer changes by a bilinear form of its tokens."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from molslice.ops.masked import zero_padding

RANKS_PER_HEAD = 2


class PairUpdate(nn.Module):
    """Add to the pair bias of head h and tokens i, j: sum over r of w_hr u_r(x_i) v_r(x_j).

    u and v are linear maps of the normalized tokens to R = 2 H numbers. w starts with zero, so that the pair
    bias of a model without training is S + E in all layers. An attention that computes softmax(S + E) without
    query and key then has weights that depend on the content of the tokens.

    Args:
        dim: Width D of the tokens.
        num_heads: Number of heads H.

    Source: a pair state that layers update is the idea of GPTrans (Chen et al. 2023, arXiv 2305.11424), where
    the scores of a softmax attention update it. This form needs no scores.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        rank = RANKS_PER_HEAD * num_heads
        self.norm = nn.LayerNorm(dim)
        self.row = nn.Linear(dim, rank)
        self.column = nn.Linear(dim, rank)
        self.weight = nn.Parameter(torch.zeros(num_heads, rank))

    def forward(
        self,
        tokens: Float[Tensor, "B N D"],
        token_mask: Bool[Tensor, "B N"],
        pair_bias: Float[Tensor, "B H N N"],
    ) -> Float[Tensor, "B H N N"]:
        """Return the changed pair bias, arbitrary but finite at padding if the given one is."""
        normed = self.norm(zero_padding(tokens, token_mask))
        rows = self.row(normed)[:, None] * self.weight[:, None].to(normed.dtype)  # [B, H, N, R]
        return pair_bias + rows @ self.column(normed)[:, None].transpose(2, 3)
