"""Softmax attention whose scores update the pair bias of the next layer, to compare with the pair state.

Source: the pair state of GPTrans, Chen et al. 2023, arXiv 2305.11424. With M = 1 it is the residual attention
of RealFormer, He et al. 2020, arXiv 2012.11747.
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.attention.base import QueryKeyValueAttention, Traits
from molslice.ops.masked import masked_softmax, pair_mask
from molslice.types import AttentionOutput, AttentionSpec, TokenContext


class ScoreState(QueryKeyValueAttention):
    """out = softmax(A) V W_O with A = Q K^T / sqrt(C) + P; the P of the next layer is P + M A.

    P is S + E in the first layer. M mixes the heads, [H, H], and starts with zero.
    """

    traits: ClassVar[Traits] = Traits(
        source="GPTrans, arXiv 2305.11424", cost="quadratic", symmetry="equivariant", pair_bias=("logits",)
    )

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.is_last = spec.layer == spec.num_layers - 1
        if not self.is_last:
            self.head_mix = nn.Parameter(torch.zeros(spec.num_heads, spec.num_heads))

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Add the scores, mixed over the heads, to the state."""
        query, key, value, mask = self.project_heads(tokens, context)
        state = context.carry
        if state is None:
            assert context.pair_bias is not None  # checked in `forward`
            state = context.pair_bias.masked_fill(~pair_mask(mask), 0.0)
        scores = query @ key.transpose(2, 3) / self.spec.head_dim**0.5 + state
        heads = self.dropout(masked_softmax(scores, mask[:, None, None])).to(value.dtype) @ value
        tokens = self.output(self.merge_heads(heads))
        return AttentionOutput(tokens, carry=None if self.is_last else state + self._mixed(scores))

    def _mixed(self, scores: Float[Tensor, "B H N N"]) -> Float[Tensor, "B H N N"]:
        return torch.einsum("gh,bhnm->bgnm", self.head_mix, scores)
