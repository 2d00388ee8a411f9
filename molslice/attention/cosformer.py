"""cosFormer: rectified features, weighted by the cosine of the distance, in linear time."""

import math
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from molslice.attention.base import QueryKeyValueAttention, Traits
from molslice.ops.features import kernel_average, positive_average, precise
from molslice.ops.packing import real_positions
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, TokenContext

EPS = 1e-6


class Cosformer(QueryKeyValueAttention):
    """out_i = sum_j w_ij V_j / max(sum_j w_ij, eps) W_O, w_ij = relu(Q_i) relu(K_j) cos(pi (i - j) / 2M).

    The formula holds per head. i and j are ranks among the real tokens, from 0. By cos(a - b) = cos a cos b +
    sin a sin b the cost is linear, with features relu(x_i) cos(pi i / 2M) and relu(x_i) sin(pi i / 2M). In
    this formula M is the number n of real tokens of the sequence, or max(n, m) for a memory of m real tokens,
    as in the paper. In the causal form M = max_tokens (ours), which must be set, because n depends on future
    tokens; the authors' code uses the padded length in both forms. Distances stay below M, so weights are not
    negative. A query that shares no channel with any key gives zero, by eps = 1e-6 as in the authors' code.
    With `pair_bias: mix`, softmax(S + E) V replaces V (ours).

    Source: Qin et al. 2022, the cos-based re-weighting. The paper counts positions from 1, which is
    equivalent.
    """

    traits: ClassVar[Traits] = Traits(
        source="cosFormer, arXiv 2202.08791",
        cost="linear",
        symmetry="ordered",
        pair_bias=("none", "mix"),
        causal=True,
        cross=True,
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec) -> None:
        if spec.causal and spec.max_tokens is None:
            raise MolsliceError(
                "the causal form of cosformer needs max_tokens, to which it compares distances"
            )
        super().__init__(spec)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Sum over keys and values first, then apply the queries."""
        query, key, value, memory_mask = self.project_heads(tokens, context)
        mask = context.token_mask
        longest = torch.maximum(mask.sum(1), memory_mask.sum(1)).clamp(min=1)[:, None]
        if self.spec.causal:
            longest = torch.full_like(longest, self.spec.max_tokens or 1)
        query, key = _features(query, mask, longest), _features(key, memory_mask, longest)
        key = key.masked_fill(~memory_mask[:, None, :, None], 0.0)
        if self.spec.causal:
            heads = kernel_average(query, key, value, EPS, causal=True)
        else:
            heads = positive_average(query, key, value, EPS)
        return AttentionOutput(self.dropout(self.output(self.merge_heads(heads).to(tokens.dtype))))


def _features(
    x: Float[Tensor, "B H N C"], mask: Bool[Tensor, "B N"], longest: Tensor
) -> Float[Tensor, "B H N F"]:
    x = precise(x).relu()
    angle = (real_positions(mask).to(x.dtype) / longest * (math.pi / 2))[:, None, :, None]
    return torch.cat([x * angle.cos(), x * angle.sin()], -1)
