"""Efficient attention: softmax over the features of queries, and over the tokens for each feature of keys."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from molslice.attention.base import QueryKeyValueAttention, Traits
from molslice.ops.features import precise, two_averages
from molslice.ops.masked import masked_softmax
from molslice.types import AttentionOutput, TokenContext


class Efficient(QueryKeyValueAttention):
    """out = softmax_over_features(Q) (softmax_over_tokens(K)^T V) W_O, per head.

    Both softmaxes have no scale, as in the authors' code. The softmax over tokens runs over the real tokens,
    for each channel of K separately. The rows of the product of both sum to one. The bias of K cancels. With
    `pair_bias: mix`, softmax(S + E) V replaces V (ours).

    Source: Shen et al. 2018, section 3, with softmax as the normalization.
    """

    traits: ClassVar[Traits] = Traits(
        source="Efficient Attention, arXiv 1812.01243",
        cost="linear",
        symmetry="equivariant",
        pair_bias=("none", "mix"),
        cross=True,
        head_dim=True,
    )

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Mix through one C x C matrix per head."""
        query, key, value, memory_mask = self.project_heads(tokens, context)
        by_token = masked_softmax(precise(key), memory_mask[:, None, :, None], 2)
        heads = two_averages(precise(query).softmax(-1), by_token, value)
        return AttentionOutput(self.dropout(self.output(self.merge_heads(heads).to(tokens.dtype))))
